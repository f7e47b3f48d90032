/**
 * Retention (`settings.retentionDays`): sessions older than that are deleted, once a day (decisions, Small print).
 *
 * Guarantees: as long as it is set a reminder stands, so it goes on over any failure and any lost host; a pass is an at-least-once effect that may
 * repeat itself. What a pass leaves over is taken up soon, what failed is tried again. Off, or in a deleted organization, none begins.
 */
import { z } from 'zod';
import { limits } from '../../contracts/limits.ts';
import type { Outcome } from '../runtime/define.ts';
import type { OrganizationTurn, retainInput } from './turn.ts';

/** Deletes sessions of an organization that are older than so many days; `more`: some are left. Safe to repeat. Throws coded errors: it is tried again. */
export type Retain = (organizationId: string, days: number, signal: AbortSignal) => Promise<z.output<typeof retainOutput>>;

export const retainOutput = z.strictObject({ more: z.boolean() });

const daysOf = ({ state }: Pick<OrganizationTurn, 'state'>): number | null => (state.phase === 'live' ? state.settings.retentionDays : null);

/** The reminder's handler, and what is called when the setting has changed: begins a pass, and sets the reminder for the next. */
export const retainOn = (turn: OrganizationTurn): void => {
  const days = daysOf(turn);
  if (days === null) {
    turn.forget('retain');
    return;
  }
  turn.effect('retain', { days });
  turn.remind('retain', { inMs: limits.retentionEveryMs });
};

export const retained = (turn: OrganizationTurn, outcome: Outcome<z.output<typeof retainOutput>>, { days }: z.output<typeof retainInput>): void => {
  // A pass for another number of days was begun meanwhile, or none is wanted.
  if (daysOf(turn) !== days) return;
  if (!outcome.ok) turn.remind('retain', { inMs: limits.organizationRetryMaxMs });
  else if (outcome.output.more) turn.remind('retain', { inMs: limits.organizationRetryMs });
};
