/**
 * The signin actor: the one-time codes of one e-mail address. Key: address.ts; contract: contracts/signin.ts.
 *
 * Guarantees: turns run one at a time, so a code is used once and wrong tries are counted exactly. The code is derived from the attempt's id
 * with a key of the daemon: in state, journal and log there is none. Its mail is an at-least-once effect; while mail is unavailable it is
 * tried again until the code is over.
 */
import { timingSafeEqual } from 'node:crypto';
import { z } from 'zod';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { signinCommands, signinEvents, type CodePurpose } from '../../contracts/signin.ts';
import type { Mailer } from '../mail/mailer.ts';
import { signInCode, verifyCode } from '../mail/templates.ts';
import { defineActor } from '../runtime/define.ts';

export interface SigninDeps {
  readonly mailer: Pick<Mailer, 'send'>;
  /** The code of an attempt: eight digits, the same on every host. */
  readonly codeOf: (key: string, attemptId: string) => string;
}

interface Attempt {
  readonly id: string;
  readonly email: string;
  /** Unix milliseconds. */
  readonly expires_at: number;
  readonly purpose: CodePurpose;
  /** Wrong tries by address block. */
  readonly misses: Readonly<Record<string, number>>;
  readonly mailsFailed: number;
}

export interface SigninState {
  readonly attempt: Attempt | null;
  /** When codes were made in the last hour, Unix milliseconds. */
  readonly starts: readonly number[];
}

const hourMs = 3_600_000;
const mailInput = z.strictObject({ id: z.string() });
/** Name of the reminder of a mail that is tried again. */
const again = 'mail';

const ofAttempt = (state: SigninState, id: string, change: (attempt: Attempt) => Attempt | null): SigninState =>
  (state.attempt?.id === id ? { ...state, attempt: change(state.attempt) } : state);

const missesOf = ({ misses }: Attempt, from: string): number => (Object.hasOwn(misses, from) ? misses[from] ?? 0 : 0);

const sameText = (a: string, b: string): boolean => a.length === b.length && timingSafeEqual(Buffer.from(a), Buffer.from(b));

/** The signin actor's definition. */
export const signin = ({ mailer, codeOf }: SigninDeps) => defineActor({
  type: 'signin',
  events: signinEvents,
  stateVersion: 3,
  initial: (): SigninState => ({ attempt: null, starts: [] }),
  apply: {
    CodeIssued: (state, e): SigninState => ({
      attempt: { id: e.id, email: e.email, expires_at: e.expires_at, purpose: e.purpose ?? 'sign_in', misses: {}, mailsFailed: 0 },
      starts: [...state.starts.filter((at) => at > e.at - hourMs), e.at],
    }),
    CodeMailed: (state) => state,
    MailFailed: (state, e): SigninState => ofAttempt(state, e.id, (a) => ({ ...a, mailsFailed: a.mailsFailed + 1 })),
    CodeMissed: (state, e): SigninState => ofAttempt(state, e.id, (a) => {
      const misses = { ...a.misses, [e.from ?? '']: missesOf(a, e.from ?? '') + 1 };
      return Object.values(misses).reduce((sum, n) => sum + n, 0) < limits.signinTriesAllMax ? { ...a, misses } : null;
    }),
    CodeUsed: (state, e): SigninState => ofAttempt(state, e.id, () => null),
  },
  effects: (effect) => ({
    mail: effect({
      input: mailInput, output: z.strictObject({}), once: 'at-least', deadlineMs: limits.mailDeadlineMs,
      run: async (context, { id }) => {
        const { attempt } = context.state();
        // Replaced or used meanwhile: its code is of no use to anybody.
        if (attempt?.id !== id) throw coded('aborted');
        const minutes = Math.round(limits.signinCodeTtlMs / 60_000);
        const mail = attempt.purpose === 'verify' ? verifyCode : signInCode;
        await mailer.send({ id: `signin-${id}`, to: attempt.email, ...mail({ code: codeOf(context.self.key, id), minutes }) }, context.signal);
        return {};
      },
      done: (turn, outcome, { id }) => {
        const { attempt } = turn.state;
        if (attempt?.id !== id) return;
        if (outcome.ok) {
          turn.emit('CodeMailed', { id });
          return;
        }
        const waitMs = limits.signinMailRetryMs * 2 ** attempt.mailsFailed;
        turn.emit('MailFailed', { id, code: outcome.code });
        if (outcome.code !== 'mail_refused' && turn.now + waitMs < attempt.expires_at) turn.remind(again, { inMs: waitMs });
      },
    }),
  }),
  commands: (command) => ({
    start: command({
      ...signinCommands.start, access: 'system',
      handle: (turn, { email, purpose }) => {
        const { state, now } = turn;
        const recent = state.starts.filter((at) => at > now - hourMs);
        const [first] = recent;
        if (first !== undefined && recent.length >= limits.signinMailsPerHourMax) {
          const endMs = first + hourMs;
          throw coded('rate_limited', undefined, {
            details: { limit: limits.signinMailsPerHourMax, remaining: 0, reset: Math.ceil(endMs / 1_000), retry_after: Math.max(1, Math.ceil((endMs - now) / 1_000)) },
          });
        }
        const id = turn.newId();
        turn.emit('CodeIssued', { id, email, at: now, expires_at: now + limits.signinCodeTtlMs, ...(purpose === 'sign_in' ? {} : { purpose }) });
        turn.forget(again);
        turn.effect('mail', { id });
        return {};
      },
    }),
    verify: command({
      ...signinCommands.verify, access: 'system',
      handle: (turn, { code, from }) => {
        const { attempt } = turn.state;
        if (attempt === null || attempt.expires_at <= turn.now) return { state: 'refused' as const };
        // Used up from there; the code stays good for whoever got it.
        if (missesOf(attempt, from) >= limits.signinTriesMax) return { state: 'refused' as const };
        if (!sameText(code, codeOf(turn.self.key, attempt.id))) {
          turn.emit('CodeMissed', { id: attempt.id, from });
          return { state: 'refused' as const };
        }
        turn.emit('CodeUsed', { id: attempt.id });
        turn.forget(again);
        return { state: 'verified' as const };
      },
    }),
  }),
  reminders: {
    [again]: (turn) => {
      const { attempt } = turn.state;
      if (attempt !== null && attempt.expires_at > turn.now) turn.effect('mail', { id: attempt.id });
    },
  },
});

export type SigninCommands = NonNullable<ReturnType<typeof signin>['types']>['commands'];
