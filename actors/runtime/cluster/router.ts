/**
 * The way to any actor of the cluster: straight into the engine if this host holds its partition, else one request to the
 * owner's address. Typed references are made here.
 *
 * Guarantees
 * R1  Local or remote, an ask means the same: the input the actor gets and the output the caller gets are copies.
 * R2  What certainly did nothing (`no_owner`, `not_owner`, `draining`) is tried again until the deadline, so a hand-over or
 *     a restart shows as latency. What may have taken effect is tried again only if the message has an id.
 * R3  Every ask ends at its deadline (default `limits.askDeadlineMs`); at most `limits.remoteAsksMax` asks of this process
 *     wait for other hosts, more are refused with `overloaded`.
 * An abort frees the caller; it does not travel to another host, where the message may still be handled.
 */
import type { Msg } from 'nats';
import { ulid } from 'ulid';
import { coded, CodedError } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { addressTokens, encodeToken, inboxSubject, partitionOf, partitionOfTokens, type ActorAddress } from '../../../contracts/subjects.ts';
import type { ActorDefinition, ActorReference, AskOptions, EventSpecs, TellOptions } from '../define.ts';
import type { Engine, Message, Sender } from '../message.ts';
import type { Lean } from '../nats/lean.ts';
import type { Clock, Inbox } from '../store.ts';
import { copyJson } from './copy.ts';
import { encodeTell } from './tell.ts';
import { decodeAnswer, encodeOwnerRequest } from './wire.ts';

export interface Actors extends Sender {
  /** A typed reference. Costs no round trip and activates nothing. Asks without a `principal` are the system's. */
  ref<Type extends string, State, Events extends EventSpecs, Commands>(
    definition: ActorDefinition<Type, State, Events, Commands>, org: string, key: string,
  ): ActorReference<Commands>;
  /** Partition of an actor. */
  partitionOf(address: ActorAddress): number;
  /** True if this host serves the actor. */
  isLocal(address: ActorAddress): boolean;
}

export interface RouterOptions {
  readonly partitions: number;
  readonly lean: Lean;
  readonly inbox: Inbox;
  readonly clock: Clock;
  /** The host's engine; a function because the engine is made with this router as its sender. */
  readonly engine: () => Engine;
}

/** Faults after which an ask may have taken effect: sent again only under an id. */
const unsure: ReadonlySet<string> = new Set(['deadline_exceeded', 'fenced', 'interrupted', 'journal_unavailable']);

/** Whether an ask that failed may be sent again (R2). */
const repeatable = (error: unknown, message: Message): boolean => {
  if (!(error instanceof CodedError)) return false;
  return error.entry.retry === 'safe' || (message.id !== undefined && unsure.has(error.code));
};

const backoffMs = (tries: number): number => {
  const most = Math.min(limits.askRetryMaxMs, limits.askRetryBaseMs * 2 ** Math.min(tries, 10));
  return most / 2 + Math.random() * (most / 2);
};

const pause = (ms: number, signal: AbortSignal | undefined): Promise<void> => new Promise((resolve, reject) => {
  const abort = (): void => {
    clearTimeout(timer);
    reject(coded('aborted'));
  };
  const timer = setTimeout(() => {
    signal?.removeEventListener('abort', abort);
    resolve();
  }, ms);
  signal?.addEventListener('abort', abort, { once: true });
});

export const createRouter = ({ partitions, lean, inbox, clock, engine }: RouterOptions): Actors => {
  let waiting = 0;

  /** A promise less a call than an async function: an ask passes here three hundred thousand times a second. May throw. */
  const attempt = (message: Message, tokens: string, n: number, deadlineAt: number): Promise<unknown> => {
    const local = engine();
    if (local.held.has(n)) return local.deliver({ ...message, tokens, input: copyJson(message.input), deadlineAt }).then(copyJson);
    return send(message, tokens, n, deadlineAt).then(decodeAnswer);
  };

  const send = (message: Message, tokens: string, n: number, deadlineAt: number): Promise<Msg> => {
    const leftMs = deadlineAt - clock.monotonic();
    if (leftMs <= 0) throw coded('deadline_exceeded');
    const data = encodeOwnerRequest({ input: message.input, principal: message.principal, id: message.id, deadlineMs: Math.ceil(leftMs) });
    // With an id a lost answer is asked for again before the deadline; without one it must be waited for.
    const timeoutMs = message.id === undefined ? leftMs : Math.min(leftMs, limits.askAttemptMs);
    const { signal } = message;
    return lean.request(`part.${n}.${tokens}.${encodeToken(message.command)}`, data, signal === undefined ? { timeoutMs } : { timeoutMs, signal });
  };

  /** Tries until an answer, a failure that may not be repeated, or the deadline. `failure`: of a first try that has been made. */
  const persist = async (message: Message, tokens: string, n: number, deadlineAt: number, failure: unknown): Promise<unknown> => {
    for (let tries = 0; ; tries++) {
      const ms = backoffMs(tries);
      if (!repeatable(failure, message) || clock.monotonic() + ms >= deadlineAt) throw failure;
      await pause(ms, message.signal);
      if (message.signal?.aborted === true) throw coded('aborted');
      try {
        return await attempt(message, tokens, n, deadlineAt);
      } catch (error) {
        failure = error;
      }
    }
  };

  /** To another host; its first try costs two promises. */
  const askRemote = (message: Message, tokens: string, n: number, deadlineAt: number): Promise<unknown> => {
    if (waiting >= limits.remoteAsksMax) throw coded('overloaded');
    if (message.signal?.aborted === true) throw coded('aborted');
    const again = (error: unknown): Promise<unknown> => persist(message, tokens, n, deadlineAt, error).finally(() => { waiting--; });
    waiting++;
    let sent: Promise<Msg>;
    try {
      sent = send(message, tokens, n, deadlineAt);
    } catch (error) {
      return again(error);
    }
    return sent.then((reply) => {
      let output: unknown;
      try {
        output = decodeAnswer(reply);
      } catch (error) {
        return again(error);
      }
      waiting--;
      return output;
    }, again);
  };

  const ask = (message: Message): Promise<unknown> => {
    try {
      const tokens = addressTokens(message.address);
      const n = partitionOfTokens(tokens, partitions);
      const deadlineAt = message.deadlineAt ?? clock.monotonic() + limits.askDeadlineMs;
      if (!engine().held.has(n)) return askRemote(message, tokens, n, deadlineAt);
      return attempt(message, tokens, n, deadlineAt).catch((error: unknown) => {
        if (!repeatable(error, message)) throw error;
        return askAgain(message, tokens, n, deadlineAt);
      });
    } catch (error) {
      return Promise.reject(error instanceof Error ? error : coded('internal_error'));
    }
  };

  /** After this host would not serve it: at once, wherever the partition is now. */
  const askAgain = async (message: Message, tokens: string, n: number, deadlineAt: number): Promise<unknown> => {
    if (waiting >= limits.remoteAsksMax) throw coded('overloaded');
    if (message.signal?.aborted === true) throw coded('aborted');
    waiting++;
    try {
      return await attempt(message, tokens, n, deadlineAt).catch((error: unknown) => persist(message, tokens, n, deadlineAt, error));
    } finally {
      waiting--;
    }
  };

  const tell = async (address: ActorAddress, command: string, input: unknown, id: string): Promise<void> => {
    await inbox.send(inboxSubject(partitionOf(address, partitions), address, command), id, encodeTell({ id, input }));
  };

  const ref = <Type extends string, State, Events extends EventSpecs, Commands>(
    definition: ActorDefinition<Type, State, Events, Commands>, org: string, key: string,
  ): ActorReference<Commands> => {
    const address: ActorAddress = { org, type: definition.type, key };
    const asks: Record<string, (input: unknown, options?: AskOptions) => Promise<unknown>> = {};
    const tells: Record<string, (input: unknown, options?: TellOptions) => Promise<void>> = {};
    for (const command of Object.keys(definition.spec.commands)) {
      asks[command] = (input, options = {}) => ask({
        address, command, input,
        principal: options.principal ?? { kind: 'system' },
        ...(options.idempotencyKey === undefined ? {} : { id: options.idempotencyKey }),
        deadlineAt: clock.monotonic() + (options.deadlineMs ?? limits.askDeadlineMs),
        ...(options.signal === undefined ? {} : { signal: options.signal }),
      });
      tells[command] = (input, options = {}) => tell(address, command, input, options.id ?? ulid());
    }
    // The names and types of the methods are those of the definition's commands: the one place that says so by a cast.
    return { address, ask: asks, tell: tells } as unknown as ActorReference<Commands>;
  };

  return {
    ask,
    tell,
    ref,
    partitionOf: (address) => partitionOf(address, partitions),
    isLocal: (address) => engine().held.has(partitionOf(address, partitions)),
  };
};
