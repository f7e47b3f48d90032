/**
 * What a signin actor remembers: the codes that stand, and when codes were asked for. Pure and total; bounded by
 * `limits.signinMailsPerHourMax`, as an event that makes a code drops those that are over, and by the tries that count.
 *
 * Guarantee: nobody's code ends by what others ask for or try: a code counts the tries of those who asked for it apart from all others'.
 */
import { limits } from '../../contracts/limits.ts';
import type { CodePurpose } from '../../contracts/signin.ts';

export interface Attempt {
  readonly id: string;
  readonly email: string;
  /** Address block of who asked for it. */
  readonly from: string;
  /** Unix milliseconds. */
  readonly expires_at: number;
  readonly purpose: CodePurpose;
  /** Wrong tries by address block. */
  readonly misses: Readonly<Record<string, number>>;
  readonly mailsFailed: number;
  /** When its mail is tried again, Unix milliseconds; null = not at all, or it is under way. */
  readonly mailAt: number | null;
}

/** When a code was made, Unix milliseconds, and for which address block. */
export interface Start {
  readonly at: number;
  readonly from: string;
}

export interface SigninState {
  /** Oldest first. */
  readonly attempts: readonly Attempt[];
  /** Of the last hour, oldest first. */
  readonly starts: readonly Start[];
}

export const hourMs = 3_600_000;

export const initialSignin = (): SigninState => ({ attempts: [], starts: [] });

export const missesOf = ({ misses }: Attempt, from: string): number => (Object.hasOwn(misses, from) ? misses[from] ?? 0 : 0);

/** Whether a try from this address block counts: there it has tries left, and it is its own or the tries of strangers are not used up. */
export const isOpenTo = (attempt: Attempt, from: string, now: number): boolean => {
  if (attempt.expires_at <= now || missesOf(attempt, from) >= limits.signinTriesMax) return false;
  if (from === attempt.from) return true;
  const all = Object.values(attempt.misses).reduce((sum, n) => sum + n, 0);
  return all - missesOf(attempt, attempt.from) < limits.signinTriesAllMax;
};

/** The state with one of its attempts changed, or without it. */
export const ofAttempt = (state: SigninState, id: string, change: (attempt: Attempt) => Attempt | undefined): SigninState => ({
  ...state,
  attempts: state.attempts.flatMap((attempt) => {
    if (attempt.id !== id) return [attempt];
    const changed = change(attempt);
    return changed === undefined ? [] : [changed];
  }),
});
