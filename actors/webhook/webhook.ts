/**
 * The webhook actor: delivers an organization's events to its URL. Org = key = the organization's id; contract: contracts/webhook.ts.
 *
 * Guarantees
 * W1  An event that was queued ends as delivered or as a dead letter, whatever is lost meanwhile: the queue is journaled, an attempt is
 *     an at-least-once effect, and a reminder stands whenever something is pending.
 * W2  Every attempt of an event sends the same id and the same bytes; only the signature's time differs.
 * W3  One attempt at a time per organization: the event that is due longest first. A failed one waits as `retryDelaysMs` says and does
 *     not hold up others; its last attempt is made 24 hours after it was queued, or as soon after as a host is there.
 * W4  Bounded: the oldest pending event becomes a dead letter when a new one finds the queue full.
 * The secret is asked for at each attempt and never in state, journal or log.
 */
import { z } from 'zod';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { retryDelaysMs, signatureHeader, webhookCommands, webhookEvents, webhookFailure, type DeliveredEvent, type WebhookTarget } from '../../contracts/webhook.ts';
import { defineActor, type EffectContext, type Outcome, type PayloadOf, type Turn } from '../runtime/define.ts';
import type { Post } from './post.ts';
import { signature } from './signature.ts';
import { bytesOf, fold, initialWebhook, type WebhookEvents, type WebhookState } from './state.ts';

export interface WebhookDeps {
  readonly post: Post;
  /** An organization's secret as it is shown: `webhookSecret` with the master key. */
  readonly secret: (orgId: string, version: number) => string;
  /** Unix milliseconds. */
  readonly now: () => number;
}

const attemptInput = z.strictObject({ id: z.string(), run: z.int() });
type AttemptInput = z.output<typeof attemptInput>;
const attemptOutput = z.union([
  z.strictObject({ ok: z.literal(true), status: z.int() }),
  z.strictObject({ ok: z.literal(false), failure: webhookFailure, status: z.int().optional() }),
]);
type AttemptOutput = z.output<typeof attemptOutput>;

/** The part of a turn that is needed here; commands', reminders' and effects' turns all have it. */
interface WebhookTurn extends Pick<Turn<WebhookState, WebhookEvents, Record<never, never>>, 'state' | 'now' | 'self' | 'abort' | 'remind' | 'forget'> {
  emit<K extends keyof WebhookEvents>(kind: K, payload: PayloadOf<WebhookEvents[K]>): void;
  effect(name: 'attempt', input: AttemptInput): string;
}

/** Name of the reminder of W1. */
const wake = 'wake';

/** Begins the attempt that is due, and sets the reminder for what comes after. The last thing of every turn that changes the queue. */
const goOn = (turn: WebhookTurn): void => {
  const { pending, running, runs } = turn.state;
  const [first] = pending.toSorted((a, b) => a.due - b.due);
  if (first === undefined) {
    turn.forget(wake);
    return;
  }
  if (running === null && first.due <= turn.now) {
    const run = runs + 1;
    const effect = turn.effect('attempt', { id: first.id, run });
    turn.emit('DeliveryStarted', { id: first.id, run, effect });
  }
  // While an attempt runs: only in case its host is lost. The next activation resumes it.
  turn.remind(wake, turn.state.running === null ? { atMs: first.due } : { inMs: limits.webhookWakeMs });
};

/** Gives up the oldest events until the queue is within its bounds again. The one under way is spared. */
const trim = (turn: WebhookTurn): void => {
  for (;;) {
    const { pending, pendingBytes, running } = turn.state;
    if (pending.length <= limits.webhookPendingMax && pendingBytes <= limits.webhookPendingMaxBytes) return;
    const oldest = pending.find(({ id }) => id !== running?.id);
    if (oldest === undefined) return;
    turn.emit('DeliveryGivenUp', { id: oldest.id, error: 'queue_full', attempts: oldest.attempts, at: turn.now });
  }
};

const attempt = (deps: WebhookDeps) => async (context: EffectContext<WebhookState>, input: AttemptInput): Promise<AttemptOutput> => {
  const { url, running, pending, secretVersion, formerSecrets } = context.state();
  const delivery = pending.find(({ id }) => id === input.id);
  if (url === null || delivery === undefined || running?.run !== input.run) throw coded('aborted');
  const { body } = delivery;
  const now = deps.now();
  const versions = [secretVersion, ...formerSecrets.filter(({ until }) => until > now).map(({ version }) => version)];
  const header = signature(versions.map((version) => deps.secret(context.self.key, version)), Math.floor(now / 1_000), body);
  const headers = { 'content-type': 'application/json', 'user-agent': 'Troupe-Webhook/1', [signatureHeader]: header };
  return deps.post({ url, headers, body, signal: context.signal });
};

/** What is written of a failed attempt. */
const errorOf = (outcome: Outcome<AttemptOutput>): string => {
  if (!outcome.ok) return outcome.code === 'deadline_exceeded' ? 'timed_out' : 'internal_error';
  if (outcome.output.ok) return 'internal_error';
  const { failure, status } = outcome.output;
  return status === undefined ? failure : `${failure} ${status}`;
};

const attempted = (turn: WebhookTurn, outcome: Outcome<AttemptOutput>, { id, run }: AttemptInput): void => {
  const { running, pending } = turn.state;
  const delivery = pending.find((candidate) => candidate.id === id);
  // Otherwise it was called off by a turn that has decided already.
  if (running?.run === run && delivery !== undefined) {
    if (outcome.ok && outcome.output.ok) turn.emit('Delivered', { id, status: outcome.output.status });
    else {
      const error = errorOf(outcome);
      const attempts = delivery.attempts + 1;
      const until = delivery.since + limits.webhookRetryForMs;
      const delay = retryDelaysMs[Math.min(attempts, retryDelaysMs.length) - 1] ?? limits.webhookRetryForMs;
      if (turn.now >= until) turn.emit('DeliveryGivenUp', { id, error, attempts, at: turn.now });
      else turn.emit('DeliveryFailed', { id, error, due: Math.min(turn.now + delay, until) });
    }
  }
  goOn(turn);
};

/** Refuses what comes for an organization that was deleted. */
const alive = (turn: WebhookTurn): void => {
  if (turn.state.forgotten) throw coded('not_found');
};

/** Takes where to deliver, unless it is late or nothing new. */
const retarget = (turn: WebhookTurn, target: WebhookTarget): void => {
  const { state } = turn;
  const revision = target.revision ?? state.revision;
  const secretVersion = target.secret_version ?? state.secretVersion;
  if (revision < state.revision) return;
  if (target.url === state.url && revision === state.revision && secretVersion === state.secretVersion) return;
  if (state.running !== null && target.url !== state.url) {
    turn.abort(state.running.effect);
    if (target.url !== null) turn.emit('DeliveryCalledOff', { id: state.running.id, at: turn.now });
  }
  turn.emit('WebhookConfigured', { url: target.url, revision, secret_version: secretVersion, at: turn.now });
  goOn(turn);
};

/** The webhook actor's definition. */
export const webhook = (deps: WebhookDeps) => defineActor({
  type: 'webhook',
  events: webhookEvents,
  initial: initialWebhook,
  apply: fold,
  stateVersion: 2,
  effects: (effect) => ({
    attempt: effect({
      input: attemptInput, output: attemptOutput, once: 'at-least', deadlineMs: limits.webhookDeadlineMs,
      run: attempt(deps),
      done: (turn, outcome, input) => attempted(turn, outcome, input),
    }),
  }),
  commands: (command) => ({
    configure: command({
      ...webhookCommands.configure, access: 'system',
      handle: (turn, input) => {
        alive(turn);
        retarget(turn, input);
        return {};
      },
    }),
    notify: command({
      ...webhookCommands.notify, access: 'system',
      handle: (turn, { id, type, created, data, target }) => {
        if (target !== undefined && !turn.state.forgotten) retarget(turn, target);
        const { url, pending, dead } = turn.state;
        if (url === null || pending.some((known) => known.id === id) || dead.some((known) => known.id === id)) return { queued: false };
        if (bytesOf(JSON.stringify(data)) > limits.webhookDataMaxBytes) throw coded('payload_too_large', 'The data of a webhook event is too large.');
        const event: DeliveredEvent = { id, type, created, organizationId: turn.self.key, data };
        const body = JSON.stringify(event);
        turn.emit('DeliveryQueued', { id, type, created, body, at: turn.now });
        trim(turn);
        goOn(turn);
        return { queued: true };
      },
    }),
    describe: command({
      ...webhookCommands.describe, access: 'system',
      handle: (turn) => {
        alive(turn);
        const { url, secretVersion, pending, dead } = turn.state;
        return { url, secret_version: secretVersion, pending: pending.length, dead: dead.length };
      },
    }),
    dead_letters: command({
      ...webhookCommands.dead_letters, access: 'system',
      handle: (turn) => {
        alive(turn);
        return { dead_letters: turn.state.dead.map(({ id, type, created, attempts, error, at }) => ({ id, type, created, attempts, last_error: error, at })) };
      },
    }),
    redeliver: command({
      ...webhookCommands.redeliver, access: 'system',
      handle: (turn, { id }) => {
        alive(turn);
        const letter = turn.state.dead.find((candidate) => candidate.id === id);
        if (letter === undefined) throw coded('not_found');
        if (turn.state.url === null) throw coded('conflict', 'The webhook has no URL.');
        turn.emit('DeliveryRevived', { id, at: turn.now });
        trim(turn);
        goOn(turn);
        return {};
      },
    }),
    rotate: command({
      ...webhookCommands.rotate, access: 'system',
      handle: (turn) => {
        alive(turn);
        const version = turn.state.secretVersion + 1;
        const until = turn.now + limits.webhookFormerSecretMs;
        turn.emit('SecretRotated', { version, former_until: until });
        return { secret_version: version, former_until: until };
      },
    }),
    forget: command({
      ...webhookCommands.forget, access: 'system',
      handle: (turn) => {
        if (turn.state.forgotten) return {};
        if (turn.state.running !== null) turn.abort(turn.state.running.effect);
        turn.emit('WebhookForgotten', {});
        goOn(turn);
        return {};
      },
    }),
  }),
  reminders: { [wake]: (turn) => goOn(turn) },
});

export type WebhookCommands = NonNullable<ReturnType<typeof webhook>['types']>['commands'];
