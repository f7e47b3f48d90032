/**
 * The signin actor: the one-time codes of one e-mail address. Key: address.ts; contract: contracts/signin.ts; what it remembers: state.ts.
 *
 * Guarantees: turns run one at a time, so a code is used once and wrong tries are counted exactly. The code is derived from the attempt's id
 * with a key of the daemon: in state, journal and log there is none. Its mail is an at-least-once effect; while mail is unavailable it is
 * tried again until the code is over.
 */
import { timingSafeEqual } from 'node:crypto';
import { z } from 'zod';
import { coded, type CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { signinCommands, signinEvents } from '../../contracts/signin.ts';
import type { Mailer } from '../mail/mailer.ts';
import { signInCode, verifyCode } from '../mail/templates.ts';
import { defineActor } from '../runtime/define.ts';
import { hourMs, initialSignin, isOpenTo, missesOf, ofAttempt, type Attempt, type SigninState, type Start } from './state.ts';

export interface SigninDeps {
  readonly mailer: Pick<Mailer, 'send'>;
  /** The code of an attempt: eight digits, the same on every host. */
  readonly codeOf: (key: string, attemptId: string) => string;
}

const mailInput = z.strictObject({ id: z.string() });
/** Name of the reminder of mails that are tried again. */
const again = 'mail';

const sameText = (a: string, b: string): boolean => a.length === b.length && timingSafeEqual(Buffer.from(a), Buffer.from(b));

const attemptOf = (state: SigninState, id: string): Attempt | undefined => state.attempts.find((attempt) => attempt.id === id);

/** Until the oldest of so many starts is an hour old. */
const tooMany = (limit: number, starts: readonly Start[], now: number): CodedError => {
  const endMs = (starts.at(-limit)?.at ?? now) + hourMs;
  return coded('rate_limited', undefined, {
    details: { limit, remaining: 0, reset: Math.ceil(endMs / 1_000), retry_after: Math.max(1, Math.ceil((endMs - now) / 1_000)) },
  });
};

interface Reminding {
  readonly state: SigninState;
  remind(name: string, when: { readonly atMs: number }): void;
  forget(name: string): void;
}

/** Sets the reminder of the mail that is tried again first. */
const remindMail = (turn: Reminding): void => {
  const due = turn.state.attempts.flatMap(({ mailAt }) => (mailAt === null ? [] : [mailAt]));
  if (due.length === 0) turn.forget(again);
  else turn.remind(again, { atMs: Math.min(...due) });
};

/** The signin actor's definition. */
export const signin = ({ mailer, codeOf }: SigninDeps) => defineActor({
  type: 'signin',
  events: signinEvents,
  stateVersion: 4,
  forgetAfterMs: limits.signinForgetMs,
  initial: initialSignin,
  apply: {
    CodeIssued: (state, e): SigninState => ({
      attempts: [
        ...state.attempts.filter(({ expires_at }) => expires_at > e.at),
        { id: e.id, email: e.email, from: e.from ?? '', expires_at: e.expires_at, purpose: e.purpose ?? 'sign_in', misses: {}, mailsFailed: 0, mailAt: null },
      ],
      starts: [...state.starts.filter(({ at }) => at > e.at - hourMs), { at: e.at, from: e.from ?? '' }],
    }),
    CodeMailed: (state) => state,
    MailFailed: (state, e): SigninState => ofAttempt(state, e.id, (a) => ({ ...a, mailsFailed: a.mailsFailed + 1, mailAt: e.again_at ?? null })),
    MailTriedAgain: (state, e): SigninState => ofAttempt(state, e.id, (a) => ({ ...a, mailAt: null })),
    CodeMissed: (state, e): SigninState => ofAttempt(state, e.id, (a) => ({ ...a, misses: { ...a.misses, [e.from ?? '']: missesOf(a, e.from ?? '') + 1 } })),
    CodeUsed: (state, e): SigninState => ofAttempt(state, e.id, () => undefined),
  },
  effects: (effect) => ({
    mail: effect({
      input: mailInput, output: z.strictObject({}), once: 'at-least', deadlineMs: limits.mailDeadlineMs,
      run: async (context, { id }) => {
        const attempt = attemptOf(context.state(), id);
        // Used meanwhile: its code is of no use to anybody.
        if (attempt === undefined) throw coded('aborted');
        const minutes = Math.round(limits.signinCodeTtlMs / 60_000);
        const mail = attempt.purpose === 'verify' ? verifyCode : signInCode;
        await mailer.send({ id: `signin-${id}`, to: attempt.email, ...mail({ code: codeOf(context.self.key, id), minutes }) }, context.signal);
        return {};
      },
      done: (turn, outcome, { id }) => {
        const attempt = attemptOf(turn.state, id);
        if (attempt === undefined) return;
        if (outcome.ok) {
          turn.emit('CodeMailed', { id });
          return;
        }
        const againAt = turn.now + limits.signinMailRetryMs * 2 ** attempt.mailsFailed;
        const goesOn = outcome.code !== 'mail_refused' && againAt < attempt.expires_at;
        turn.emit('MailFailed', { id, code: outcome.code, ...(goesOn ? { again_at: againAt } : {}) });
        remindMail(turn);
      },
    }),
  }),
  commands: (command) => ({
    start: command({
      ...signinCommands.start, access: 'system',
      handle: (turn, { email, purpose, from }) => {
        const { state, now } = turn;
        const recent = state.starts.filter(({ at }) => at > now - hourMs);
        const fromThere = recent.filter((start) => start.from === from);
        if (fromThere.length >= limits.signinMailsPerBlockMax) throw tooMany(limits.signinMailsPerBlockMax, fromThere, now);
        if (recent.length >= limits.signinMailsPerHourMax) throw tooMany(limits.signinMailsPerHourMax, recent, now);
        const id = turn.newId();
        turn.emit('CodeIssued', { id, email, from, at: now, expires_at: now + limits.signinCodeTtlMs, ...(purpose === 'sign_in' ? {} : { purpose }) });
        turn.effect('mail', { id });
        return {};
      },
    }),
    verify: command({
      ...signinCommands.verify, access: 'system',
      handle: (turn, { code, from }) => {
        // A code whose tries are used up from there stays good for whoever got it.
        const open = turn.state.attempts.filter((attempt) => isOpenTo(attempt, from, turn.now));
        const right = open.find(({ id }) => sameText(code, codeOf(turn.self.key, id)));
        if (right === undefined) {
          for (const { id } of open) turn.emit('CodeMissed', { id, from });
          return { state: 'refused' as const };
        }
        turn.emit('CodeUsed', { id: right.id });
        remindMail(turn);
        return { state: 'verified' as const };
      },
    }),
  }),
  reminders: {
    [again]: (turn) => {
      for (const { id, mailAt, expires_at } of turn.state.attempts) {
        if (mailAt === null || mailAt > turn.now) continue;
        turn.emit('MailTriedAgain', { id });
        if (expires_at > turn.now) turn.effect('mail', { id });
      }
      remindMail(turn);
    },
  },
});

export type SigninCommands = NonNullable<ReturnType<typeof signin>['types']>['commands'];
