/**
 * What a webhook actor remembers, and how its events change it. Pure and total; bounded by `limits.webhookPending*` (kept by the
 * commands, which give up the oldest first) and `limits.webhookDead*` (kept here: the oldest dead letters are forgotten).
 */
import type { z } from 'zod';
import { limits } from '../../contracts/limits.ts';
import type { WebhookType, webhookEvents } from '../../contracts/webhook.ts';

export type WebhookEvents = typeof webhookEvents;
type Payload<K extends keyof WebhookEvents> = z.output<WebhookEvents[K]>;

export interface Delivery {
  readonly id: string;
  readonly type: WebhookType;
  readonly created: string;
  /** The bytes of every attempt, as text. */
  readonly body: string;
  /** Unix milliseconds: since when it is tried, and when it is tried next. */
  readonly since: number;
  readonly due: number;
  /** Attempts that failed. */
  readonly attempts: number;
}

export interface Dead {
  readonly id: string;
  readonly type: WebhookType;
  readonly created: string;
  readonly body: string;
  readonly attempts: number;
  readonly error: string;
  readonly at: number;
}

export interface WebhookState {
  readonly url: string | null;
  /** Of the last configuration taken; -1 = none yet. */
  readonly revision: number;
  readonly secretVersion: number;
  /** Versions it has replaced that still sign, the newest first, each until a time. */
  readonly formerSecrets: readonly { readonly version: number; readonly until: number }[];
  readonly forgotten: boolean;
  /** Oldest first. */
  readonly pending: readonly Delivery[];
  /** UTF-8 bytes of the bodies pending. */
  readonly pendingBytes: number;
  /** Newest first. */
  readonly dead: readonly Dead[];
  /** The attempt under way. */
  readonly running: { readonly id: string; readonly run: number; readonly effect: string } | null;
  /** Attempts begun so far. */
  readonly runs: number;
}

export const initialWebhook = (): WebhookState => ({
  url: null, revision: -1, secretVersion: 1, formerSecrets: [], forgotten: false, pending: [], pendingBytes: 0, dead: [], running: null, runs: 0,
});

export const bytesOf = (body: string): number => Buffer.byteLength(body);

const bury = (dead: readonly Dead[], added: readonly Dead[]): readonly Dead[] => {
  const kept: Dead[] = [];
  let bytes = 0;
  for (const letter of [...added, ...dead]) {
    bytes += bytesOf(letter.body);
    if (kept.length >= limits.webhookDeadMax || bytes > limits.webhookDeadMaxBytes) break;
    kept.push(letter);
  }
  return kept;
};

const deadOf = ({ id, type, created, body }: Delivery, attempts: number, error: string, at: number): Dead => ({ id, type, created, body, attempts, error, at });

/** Without the attempt under way, if it is this delivery's. */
const ended = (state: WebhookState, id: string): WebhookState['running'] => (state.running?.id === id ? null : state.running);

const without = (state: WebhookState, id: string): Pick<WebhookState, 'pending' | 'pendingBytes' | 'running'> => {
  const pending = state.pending.filter((delivery) => delivery.id !== id);
  return { pending, pendingBytes: pending.reduce((sum, { body }) => sum + bytesOf(body), 0), running: ended(state, id) };
};

const change = (state: WebhookState, id: string, of: (delivery: Delivery) => Delivery): readonly Delivery[] =>
  state.pending.map((delivery) => (delivery.id === id ? of(delivery) : delivery));

export const fold = {
  WebhookConfigured: (state: WebhookState, e: Payload<'WebhookConfigured'>): WebhookState => {
    const configured = { ...state, url: e.url, revision: e.revision, secretVersion: e.secret_version };
    if (e.url === null) {
      const dead = bury(state.dead, state.pending.map((delivery) => deadOf(delivery, delivery.attempts, 'no_url', e.at)).toReversed());
      return { ...configured, pending: [], pendingBytes: 0, dead, running: null };
    }
    return e.url === state.url ? configured : { ...configured, pending: state.pending.map((delivery) => ({ ...delivery, due: e.at })) };
  },
  DeliveryQueued: (state: WebhookState, e: Payload<'DeliveryQueued'>): WebhookState => ({
    ...state,
    pending: [...state.pending, { id: e.id, type: e.type, created: e.created, body: e.body, since: e.at, due: e.at, attempts: 0 }],
    pendingBytes: state.pendingBytes + bytesOf(e.body),
  }),
  DeliveryStarted: (state: WebhookState, e: Payload<'DeliveryStarted'>): WebhookState => ({ ...state, running: e, runs: e.run }),
  Delivered: (state: WebhookState, e: Payload<'Delivered'>): WebhookState => ({ ...state, ...without(state, e.id) }),
  DeliveryFailed: (state: WebhookState, e: Payload<'DeliveryFailed'>): WebhookState => ({
    ...state, running: ended(state, e.id), pending: change(state, e.id, (delivery) => ({ ...delivery, attempts: delivery.attempts + 1, due: e.due })),
  }),
  DeliveryCalledOff: (state: WebhookState, e: Payload<'DeliveryCalledOff'>): WebhookState => ({
    ...state, running: ended(state, e.id), pending: change(state, e.id, (delivery) => ({ ...delivery, due: e.at })),
  }),
  DeliveryGivenUp: (state: WebhookState, e: Payload<'DeliveryGivenUp'>): WebhookState => {
    const delivery = state.pending.find(({ id }) => id === e.id);
    if (delivery === undefined) return state;
    return { ...state, ...without(state, e.id), dead: bury(state.dead, [deadOf(delivery, e.attempts, e.error, e.at)]) };
  },
  DeliveryRevived: (state: WebhookState, e: Payload<'DeliveryRevived'>): WebhookState => {
    const letter = state.dead.find(({ id }) => id === e.id);
    if (letter === undefined) return state;
    const { id, type, created, body } = letter;
    return {
      ...state,
      dead: state.dead.filter((other) => other !== letter),
      pending: [...state.pending, { id, type, created, body, since: e.at, due: e.at, attempts: 0 }],
      pendingBytes: state.pendingBytes + bytesOf(body),
    };
  },
  SecretRotated: (state: WebhookState, e: Payload<'SecretRotated'>): WebhookState => ({
    ...state, secretVersion: e.version,
    formerSecrets: [{ version: state.secretVersion, until: e.former_until }, ...state.formerSecrets].slice(0, limits.webhookFormerSecretsMax),
  }),
  WebhookForgotten: (): WebhookState => ({ ...initialWebhook(), forgotten: true }),
} as const;
