/**
 * Finds the actors whose time is over (`forgetAfterMs`) and has the engine forget them. Needs no list of actors and no timer per actor: a
 * stream holds its messages in the order of their times, so the old ones are at its beginning, and whose last message is among them is
 * forgotten.
 *
 * Guarantees: only in partitions this host holds. Each old message is looked at once per host and partition; a partition that is taken anew, and
 * a host that starts, begins at the beginning. An actor that is busy is looked at again, `limits.forgetBusyMax` of them a partition and type at
 * most: beyond that the look stops there until they are done. One look forgets at most `limits.forgetPerLookMax` actors; the next goes on.
 * What fails is tried again at the next look.
 */
import { CodedError } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { parseStateSubject, streams, wildcards } from '../../../contracts/subjects.ts';
import type { ActorDefinition } from '../define.ts';
import type { Log } from '../log.ts';
import type { Engine } from '../message.ts';
import type { Lean } from '../nats/lean.ts';
import { forward } from '../nats/read.ts';
import type { Clock, StoredMessage } from '../store.ts';

export interface ForgettingOptions {
  readonly engine: Pick<Engine, 'held' | 'forget'>;
  readonly definitions: readonly Pick<ActorDefinition, 'type' | 'spec'>[];
  readonly lean: Lean;
  readonly journalStreams: number;
  readonly clock: Clock;
  readonly log: Log;
}

export interface Forgetting {
  /** One look at all partitions held. Gives how many actors were forgotten. Looks at the same time are one. */
  look(): Promise<number>;
  /** Resolves when a look under way has ended. */
  stop(): Promise<void>;
}

/** How far a partition was looked at for a type, and who is to be looked at again: subject → sequence. */
interface Progress {
  readonly epoch: number;
  next: number;
  readonly busy: Map<string, number>;
}

/** Looks every `limits.forgetLookMs` from now on. */
export const startForgetting = (options: ForgettingOptions): Forgetting => {
  const { engine, lean, clock, log } = options;
  const types = options.definitions.flatMap(({ type, spec: { forgetAfterMs } }) => (forgetAfterMs === undefined ? [] : [{ type, forgetAfterMs }]));
  const progress = new Map<string, Progress>();
  let stopped = false;
  let looking: Promise<number> | undefined;
  let left = 0;

  /** True = it need not be looked at again. */
  const forget = async (subject: string, seq: number): Promise<boolean> => {
    const { partition: _n, ...address } = parseStateSubject(subject);
    const outcome = await engine.forget(address, seq);
    if (outcome === 'forgotten') left -= 1;
    return outcome !== 'busy';
  };

  const lookAt = async (n: number, epoch: number, { type, forgetAfterMs }: (typeof types)[number]): Promise<void> => {
    const name = `${n}.${type}`;
    const known = progress.get(name);
    const at = known?.epoch === epoch ? known : { epoch, next: 1, busy: new Map<string, number>() };
    progress.set(name, at);
    const goesOn = (): boolean => !stopped && left > 0 && engine.held.get(n) === epoch;
    for (const [subject, seq] of at.busy) {
      if (!goesOn()) return;
      if (await forget(subject, seq)) at.busy.delete(subject);
    }
    const before = clock.now() - forgetAfterMs;
    const stream = streams.journal(n, options.journalStreams);
    for await (const batch of forward(lean, stream, wildcards.journalsIn(n, type), at.next, Number.MAX_SAFE_INTEGER)) {
      const old = batch.filter(({ time }) => time <= before);
      // Of several messages of an actor only the last can be its last.
      const lasts = new Map<string, StoredMessage>(old.map((message) => [message.subject, message]));
      for (const { subject, seq } of lasts.values()) {
        if (!goesOn() || at.busy.size >= limits.forgetBusyMax) return;
        if (!await forget(subject, seq)) at.busy.set(subject, seq);
      }
      at.next = (old.at(-1)?.seq ?? at.next - 1) + 1;
      if (old.length < batch.length) return;
    }
  };

  const look = async (): Promise<number> => {
    left = limits.forgetPerLookMax;
    for (const name of progress.keys()) if (!engine.held.has(Number.parseInt(name, 10))) progress.delete(name);
    for (const type of types) {
      for (const [n, epoch] of engine.held) {
        if (stopped || left <= 0) break;
        try {
          await lookAt(n, epoch, type);
        } catch (error) {
          if (!(error instanceof CodedError)) log.error({ partition: n, type: type.type, err: error }, 'forgetting failed on our side; it is tried again');
          else log.warn({ partition: n, type: type.type, code: error.code, reason: error.message }, 'forgetting was interrupted; it goes on at the next look');
        }
      }
    }
    const forgotten = limits.forgetPerLookMax - left;
    if (forgotten > 0) log.info({ actors: forgotten }, 'actors whose time was over were forgotten');
    return forgotten;
  };
  const once = (): Promise<number> => {
    if (stopped || types.length === 0) return Promise.resolve(0);
    looking ??= look().finally(() => { looking = undefined; });
    return looking;
  };
  const timer = setInterval(() => { void once(); }, limits.forgetLookMs);
  timer.unref();

  return {
    look: once,
    stop: async () => {
      stopped = true;
      clearInterval(timer);
      await looking;
    },
  };
};
