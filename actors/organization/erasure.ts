/**
 * Erasing what a deleted organization has elsewhere: conversations, memories, attachments and their rows (ORG-027, ORG-030).
 *
 * Guarantees: it goes on until it is done, whatever is lost meanwhile: its state is journaled, the work is an at-least-once effect that
 * may repeat itself, and a reminder stands until the end. It is done twice: at once, and again after `limits.eraseAgainMs`, when
 * nothing that was admitted before the deletion can still be writing.
 */
import { z } from 'zod';
import { limits } from '../../contracts/limits.ts';
import type { Outcome } from '../runtime/define.ts';
import type { eraseInput, OrganizationTurn } from './turn.ts';

/**
 * Erases everything of an organization but its tombstone and keys of custody; what was told of the deletion (its webhook, its payments) only
 * the last time. Safe to repeat. Throws coded errors: it is tried again.
 */
export type Erase = (organizationId: string, last: boolean, signal: AbortSignal) => Promise<void>;

export const eraseOutput = z.strictObject({});

/** Passes in all. */
const passes = 2;
export const isLastPass = (pass: number): boolean => pass >= passes;

/** Starts a pass that is due and sets the reminder for what comes after. */
export const eraseOn = (turn: OrganizationTurn): void => {
  if (turn.state.phase !== 'deleted') return;
  const { erasure, billed } = turn.state;
  if (erasure === null) {
    turn.forget('erase');
    return;
  }
  // The last pass erases what knows the subscriptions: not before they are cancelled, which is told here when it is so.
  if (isLastPass(erasure.pass) && billed) {
    turn.remind('erase', { inMs: limits.organizationRetryMaxMs });
    return;
  }
  if (!erasure.running && erasure.due <= turn.now) {
    turn.effect('erase', { pass: erasure.pass });
    turn.emit('EraseStarted', { pass: erasure.pass });
    turn.remind('erase', { inMs: limits.organizationWakeMs });
    return;
  }
  turn.remind('erase', erasure.running ? { inMs: limits.organizationWakeMs } : { atMs: erasure.due });
};

export const erased = (turn: OrganizationTurn, outcome: Outcome<unknown>, { pass }: z.output<typeof eraseInput>): void => {
  if (turn.state.phase !== 'deleted' || turn.state.erasure === null) return;
  const { attempts } = turn.state.erasure;
  if (outcome.ok) turn.emit('Erased', { pass, due: isLastPass(pass) ? null : turn.now + limits.eraseAgainMs });
  else turn.emit('EraseFailed', { pass, code: outcome.code, due: turn.now + Math.min(limits.organizationRetryMs * 2 ** Math.min(attempts, 20), limits.organizationRetryMaxMs) });
  eraseOn(turn);
};
