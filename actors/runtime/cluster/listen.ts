/**
 * What a host serves on NATS: the owner's address of each partition it holds, and, with all hosts as one queue group, the
 * public address of every actor.
 *
 * Guarantees
 * L1  Every request is answered, with its output or a coded error; nothing that arrives before `stop` resolved is dropped:
 *     a request that comes after the hand-over began gets `not_owner`, which its sender repeats elsewhere.
 *     While its lease is over so long that another host may serve, it says nothing: a request then waits here until the
 *     lease is renewed (nobody served meanwhile, membership.ts M1), or is dropped with the partition. Answered with
 *     `not_owner` it would be sent again although the new owner, who got it too, may run it.
 * L2  At most `limits.servedAsksMax` requests are served at once, more get `overloaded`; bodies are bounded by
 *     `limits.commandMaxBytes`.
 * L3  A public caller is the integrator of the organization its subject names: NATS permissions confine it to that, and
 *     the engine admits it to public commands only. Owner addresses (`part.>`) are for hosts; a credential for
 *     integrators must not allow them, since their principal is believed.
 * L4  Answers go to inboxes only (`isReplyAddress`): a caller cannot make this host write anywhere else in its name.
 */
import type { Msg, NatsConnection, Subscription } from 'nats';
import { coded } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { isReplyAddress, parseCommandSubject, parseOwnerSubject, queueGroup, wildcards } from '../../../contracts/subjects.ts';
import type { Log } from '../log.ts';
import type { Engine, Message, Sender } from '../message.ts';
import type { Clock } from '../store.ts';
import type { Statistics } from './service.ts';
import { decodeOwnerRequest, decodePublicRequest, respondError, respondOutput } from './wire.ts';

export interface ListenOptions {
  readonly nc: NatsConnection;
  readonly engine: Engine;
  readonly sender: Sender;
  readonly clock: Clock;
  readonly log: Log;
  readonly statistics: Statistics;
}

export interface Listening {
  /** Ends the subscription after what is on the way was handed to us (L1). Resolves at once when the connection is gone. */
  stop(): Promise<void>;
}

export interface Listener {
  /** Serves the owner's address of a partition. */
  partition(n: number): Listening;
  /** Serves the public addresses. */
  commands(): Listening;
  /** Nobody else serves this host's partitions before this monotonic time. Default: for ever. */
  lease(aloneUntilMs: number): void;
  /** Requests being served. */
  readonly serving: number;
  /** Resolves when no request is being served. */
  idle(): Promise<void>;
}

/** `part.<n>.<tokens>.<command>`, once it has been parsed. */
const ownerHead = 'part.';

export const createListener = ({ nc, engine, sender, clock, log, statistics }: ListenOptions): Listener => {
  let serving = 0;
  let aloneUntilMs = Number.POSITIVE_INFINITY;
  /** Requests that wait for the lease (L1), over all partitions. */
  let waiting = 0;
  /** Serves what waits, by partition served. */
  const resumes = new Set<() => void>();
  const whenIdle: (() => void)[] = [];

  /** Answers one request; never rejects. */
  const answer = async (msg: Msg, run: () => Promise<unknown>): Promise<boolean> => {
    let fine = false;
    serving++;
    try {
      if (serving > limits.servedAsksMax) throw coded('overloaded');
      respondOutput(msg, await run());
      fine = true;
    } catch (error) {
      try {
        respondError(msg, error);
      } catch (cause) {
        // The connection closed under us: its caller sees that, or its deadline.
        log.debug({ err: cause, subject: msg.subject }, 'an answer could not be sent');
      }
    } finally {
      serving--;
      if (serving === 0) for (const resolve of whenIdle.splice(0)) resolve();
    }
    return fine;
  };

  const messageOf = (msg: Msg): Message => {
    const { org, type, key, command } = parseOwnerSubject(msg.subject);
    const request = decodeOwnerRequest(msg);
    return {
      address: { org, type, key }, tokens: msg.subject.slice(msg.subject.indexOf('.', ownerHead.length) + 1, msg.subject.lastIndexOf('.')),
      command, input: request.input, principal: request.principal,
      ...(request.id === undefined ? {} : { id: request.id }),
      deadlineAt: clock.monotonic() + request.deadlineMs,
    };
  };
  const ownerRequest = (msg: Msg): Promise<unknown> => engine.deliver(messageOf(msg));

  const publicRequest = async (msg: Msg): Promise<void> => {
    const startedMs = clock.monotonic();
    let endpoint: { type: string; command: string } | undefined;
    let failure = '';
    const fine = await answer(msg, async () => {
      try {
        const { org, type, key, command } = parseCommandSubject(msg.subject);
        endpoint = { type, command };
        const request = decodePublicRequest(msg);
        return await sender.ask({
          address: { org, type, key }, command, input: request.input, principal: { kind: 'integrator', org },
          ...(request.id === undefined ? {} : { id: request.id }),
          deadlineAt: clock.monotonic() + request.deadlineMs,
        });
      } catch (error) {
        failure = error instanceof Error ? error.message : 'unknown';
        throw error;
      }
    });
    if (endpoint !== undefined) statistics.count(endpoint.type, endpoint.command, clock.monotonic() - startedMs, fine ? undefined : failure);
  };

  const listen = (subject: string, queue: string | undefined, onRequest: (msg: Msg) => void): Listening => {
    const subscription: Subscription = nc.subscribe(subject, {
      ...(queue === undefined ? {} : { queue }),
      callback: (error, msg) => {
        if (error !== null) {
          log.error({ err: error, subject }, 'a subscription was refused');
          return;
        }
        // Without a reply subject nobody waits; a durable tell is what a caller wants then.
        if (msg.reply === undefined || msg.reply === '') return;
        if (isReplyAddress(msg.reply)) onRequest(msg);
        else log.debug({ subject: msg.subject, reply: msg.reply }, 'a request was dropped: its reply subject is no inbox');
      },
    });
    return {
      async stop() {
        if (nc.isClosed() || subscription.isClosed()) return;
        const late = AbortSignal.timeout(limits.unsubscribeMs);
        await Promise.race([
          // A connection that ends meanwhile has ended the subscription too.
          subscription.drain().catch((error: unknown) => log.debug({ err: error, subject }, 'a subscription ended with its connection')),
          new Promise<void>((resolve) => { late.addEventListener('abort', () => resolve(), { once: true }); }),
        ]);
        if (!subscription.isClosed()) subscription.unsubscribe();
      },
    };
  };

  const partition = (n: number): Listening => {
    let isLost = false;
    let held: (() => void)[] = [];
    /** Read now: the receive buffer is reused. */
    const hold = (msg: Msg): void => {
      if (isLost || waiting >= limits.servedAsksMax) return;
      let message: Message;
      try {
        message = messageOf(msg);
      } catch (error) {
        void answer(msg, () => Promise.reject(error instanceof Error ? error : coded('internal_error')));
        return;
      }
      waiting++;
      held.push(() => { void answer(msg, () => engine.deliver(message)); });
    };
    const take = (): (() => void)[] => {
      const all = held;
      held = [];
      waiting -= all.length;
      return all;
    };
    const resume = (): void => { for (const serve of take()) serve(); };
    resumes.add(resume);
    const listening = listen(wildcards.owner(n), undefined, (msg) => {
      if (clock.monotonic() < aloneUntilMs) void answer(msg, () => ownerRequest(msg));
      else hold(msg);
    });
    return {
      stop() {
        isLost = true;
        resumes.delete(resume);
        take();
        return listening.stop();
      },
    };
  };

  return {
    partition,
    lease(untilMs) {
      aloneUntilMs = untilMs;
      if (clock.monotonic() < untilMs) for (const resume of resumes) resume();
    },
    commands: () => listen(wildcards.commands, queueGroup, (msg) => { void publicRequest(msg); }),
    get serving() { return serving; },
    idle: () => (serving === 0 ? Promise.resolve() : new Promise((resolve) => { whenIdle.push(resolve); })),
  };
};
