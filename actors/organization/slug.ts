/**
 * An organization's hold on its slug. The daemon has claimed it for a while in the organization's name; here it becomes one for good.
 *
 * Guarantees: it is tried until it is known, over any failure and any lost host: the state is journaled and a reminder stands. A slug that
 * somebody else has by then (nobody answered for longer than `limits.slugClaimMs`) is noted in the audit log; the organization lives on.
 */
import { z } from 'zod';
import { limits } from '../../contracts/limits.ts';
import { nameCommands } from '../../contracts/name.ts';
import { nameAddress } from '../name/address.ts';
import type { EffectContext, Outcome } from '../runtime/define.ts';
import type { OrganizationState } from './state.ts';
import type { OrganizationTurn, slugInput } from './turn.ts';

type Input = z.output<typeof slugInput>;
export const slugOutput = z.strictObject({ mine: z.boolean() });

/** Starts a try that is due and sets the reminder for what comes after. */
export const slugOn = (turn: OrganizationTurn): void => {
  if (turn.state.phase !== 'live' || turn.state.slug_claim === null) {
    turn.forget('slug');
    return;
  }
  const { slug, slug_claim: claim } = turn.state;
  const starts = !claim.running && claim.due <= turn.now;
  if (starts) {
    turn.effect('slug', { slug });
    turn.emit('SlugStarted', {});
  }
  turn.remind('slug', starts || claim.running ? { inMs: limits.organizationWakeMs } : { atMs: claim.due });
};

/** Claims without an end: takes what is held for this organization, or free. */
export const keepSlug = async (context: EffectContext<OrganizationState>, { slug }: Input): Promise<z.output<typeof slugOutput>> => {
  const { mine } = nameCommands.claim.output.parse(await context.ask(nameAddress('slug', slug), 'claim', { holder: context.self.key }));
  return { mine };
};

export const slugDone = (turn: OrganizationTurn, outcome: Outcome<z.output<typeof slugOutput>>, { slug }: Input): void => {
  if (turn.state.phase !== 'live') {
    // Deleted meanwhile: what was taken is given back.
    turn.tell(nameAddress('slug', slug), 'release', { holder: turn.self.key });
    return;
  }
  const attempts = turn.state.slug_claim?.attempts ?? 0;
  if (outcome.ok) turn.emit(outcome.output.mine ? 'SlugKept' : 'SlugLost', {});
  else turn.emit('SlugFailed', { code: outcome.code, due: turn.now + Math.min(limits.organizationRetryMs * 2 ** Math.min(attempts, 20), limits.organizationRetryMaxMs) });
  slugOn(turn);
};
