/**
 * The ids of handled messages, kept in an actor's state (design G4): a repeat gets the first answer and changes nothing.
 *
 * Guarantee: what is remembered is a pure fold of the journal's `$handled` events, whose times are those of their turns; it
 * holds at most `limits.dedupMax` ids, none older than `limits.dedupTtlMs`. Past either bound the oldest is forgotten, so
 * a repeat that comes later than that takes effect again.
 */
import { limits } from '../../contracts/limits.ts';

export interface Handled {
  /** Unix milliseconds of the turn that handled it. */
  readonly at: number;
  /** The turn's output; undefined if it had none. */
  readonly output: unknown;
  /** The command it was an id of; absent in journals older than the field. */
  readonly command?: string | undefined;
}

/** Ids in the order they were handled. */
export type HandledIds = Map<string, Handled>;

/** Adds an id and forgets what is past a bound. */
export const remember = (ids: HandledIds, id: string, handled: Handled): void => {
  ids.delete(id);
  ids.set(id, handled);
  for (const [oldest, { at }] of ids) {
    if (ids.size <= limits.dedupMax && at > handled.at - limits.dedupTtlMs) break;
    ids.delete(oldest);
  }
};

/** What the id was answered with, or undefined if it is not remembered at the time `now`. */
export const handledBefore = (ids: HandledIds | undefined, id: string, now: number): Handled | undefined => {
  const handled = ids?.get(id);
  return handled !== undefined && handled.at > now - limits.dedupTtlMs ? handled : undefined;
};
