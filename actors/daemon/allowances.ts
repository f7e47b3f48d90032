/**
 * Whether a request may pass under its limits: asked of the allowance actor (actors/allowance) for many requests at a time.
 *
 * Guarantees
 * L1  No request passes that the actor has not counted, whatever daemons and gateways there are and however they end: never more than
 *     the limit. A grant taken ahead is used only while its windows last, by this process's own monotonic clock from before the ask.
 * L2  One ask in flight per key: who comes meanwhile forms the next. A first ask takes what the same tick brings.
 * L3  A refusal is remembered until its window ends, so a flood of refused requests costs no asks. What is remembered belongs to the
 *     limits it was said under: a changed plan is asked for at once.
 * L4  Nobody waits longer than two asks (`limits.allowanceWaitMs` each); at most `limits.allowanceWaitersMax` wait. It fails closed: an
 *     actor that does not answer lets nobody pass.
 * An ask that is repeated has its number, so an answer that was lost costs no allowance. It writes no headers: the caller does.
 */
import { randomUUID } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { TakeInput, TakeOutput } from '../../contracts/allowance.ts';
import { coded, CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';
import type { Allowance } from '../allowance/address.ts';
import { allowance } from '../allowance/allowance.ts';
import type { Actors } from '../runtime/cluster/router.ts';
import { systemClock, type Clock } from '../runtime/store.ts';

/** What a request that passes may say in its headers. -1 = unlimited. */
export interface Verdict {
  /** Of the window with less left, and what is left of it after this request. */
  readonly limit: number;
  readonly remaining: number;
  /** Unix seconds at which it ends; 0 for unlimited. */
  readonly reset: number;
}

export interface AllowanceRequest extends Allowance {
  /** Aborted: nothing is counted for it any more, unless it is being counted. */
  readonly signal?: AbortSignal;
}

export interface Allowances {
  /**
   * Resolves when the request may pass. Rejects with `rate_limited` (details `limit`, `remaining` 0, `reset` in Unix seconds, `retry_after`
   * in seconds, at least 1), `overloaded`, `aborted`, or the fault why the actor did not answer (`deadline_exceeded`, `no_owner` …).
   */
  take(request: AllowanceRequest): Promise<Verdict>;
  stats(): AllowanceStats;
}

export interface AllowanceStats {
  readonly asks: number;
  readonly passed: number;
  readonly refused: number;
  readonly waiting: number;
}

/** Asks an allowance actor; throws coded errors. */
export type AskAllowance = (address: ActorAddress, input: TakeInput, deadlineMs: number) => Promise<TakeOutput>;

export interface AllowancesOptions {
  readonly ask: AskAllowance;
  readonly clock?: Clock;
  /** Names this process among those that take; unique over its restarts. Default random. */
  readonly by?: string;
  /** Requests that one ask takes ahead at most. Default `limits.allowanceAheadMax`; 0 = none. */
  readonly aheadMax?: number;
}

/** Over the actors of a host. */
export const askAllowance = (actors: Pick<Actors, 'ref'>): AskAllowance => {
  const definition = allowance();
  return ({ org, key }, input, deadlineMs) => actors.ref(definition, org, key).ask.take(input, { deadlineMs });
};

interface Waiter {
  readonly request: AllowanceRequest;
  readonly resolve: (verdict: Verdict) => void;
  readonly reject: (error: unknown) => void;
}

/** One key with an ask under way. */
interface Line {
  readonly name: string;
  waiters: Waiter[];
}

/** What is remembered of a key under its limits; monotonic milliseconds. */
type Known =
  /** `left` of what was taken ahead, `used` of it since the last ask; `passed`: requests of this process since it is remembered. */
  | { readonly name: 'open'; readonly untilMs: number; readonly answer: TakeOutput; left: number; used: number; passed: number }
  | { readonly name: 'refused'; readonly untilMs: number; readonly retryMs: number; readonly answer: TakeOutput };

const unlimited: Verdict = { limit: -1, remaining: -1, reset: 0 };

/** `spare`: grants beyond the answer's `remaining` that other requests of this process may still use. */
const verdictOf = ({ limit, remaining, resetAtMs }: TakeOutput, spare: number): Verdict =>
  ({ limit, remaining: limit === -1 ? -1 : remaining + spare, reset: Math.ceil(resetAtMs / 1_000) });

const sameLimits = (a: Allowance, b: Allowance): boolean => a.perMinute === b.perMinute && a.perDay === b.perDay;

/** Before an ask that failed is tried again: doubles with jitter. */
const pause = (tries: number): Promise<void> => new Promise((resolve) => {
  const most = Math.min(limits.askRetryMaxMs, limits.askRetryBaseMs * 2 ** Math.min(tries, 10));
  setTimeout(resolve, most / 2 + Math.random() * (most / 2));
});

export const createAllowances = (options: AllowancesOptions): Allowances => {
  const { clock = systemClock, by = randomUUID(), aheadMax = limits.allowanceAheadMax } = options;
  const lines = new Map<string, Line>();
  const known = new LRUCache<string, Known>({ max: limits.allowancesKnownMax });
  let asks = 0;
  let passed = 0;
  let refused = 0;
  let waiting = 0;

  const nameOf = ({ org, key }: Allowance): string => `${org.length}:${org}${key}`;
  const idOf = (name: string, { perMinute, perDay }: Allowance): string => `${perMinute}/${perDay}/${name}`;

  const refusal = ({ answer: { limit, resetAtMs }, retryMs }: Known & { name: 'refused' }, now: number): CodedError => coded('rate_limited', undefined, {
    details: { limit, remaining: 0, reset: Math.ceil(resetAtMs / 1_000), retry_after: Math.max(1, Math.ceil((retryMs - now) / 1_000)) },
  });

  const current = (id: string, now: number): Known | undefined => {
    const state = known.get(id);
    return state !== undefined && now < state.untilMs ? state : undefined;
  };

  /** What is known decides: a verdict, a refusal, or nothing. */
  const decided = (id: string, now: number): Verdict | CodedError | undefined => {
    const state = current(id, now);
    if (state?.name === 'refused') {
      refused += 1;
      return refusal(state, now);
    }
    if (state === undefined || state.left === 0) return undefined;
    state.left -= 1;
    state.used += 1;
    state.passed += 1;
    passed += 1;
    return verdictOf(state.answer, state.left);
  };

  const settle = ({ resolve, reject }: Waiter, outcome: Verdict | CodedError): void => {
    waiting -= 1;
    if (outcome instanceof CodedError) reject(outcome);
    else resolve(outcome);
  };

  /** Repeats an ask under its number until it is answered, refused or late. Gives when the answered try was sent. */
  const ask = async (address: ActorAddress, input: TakeInput): Promise<{ answer: TakeOutput; sentMs: number }> => {
    const endMs = clock.monotonic() + limits.allowanceWaitMs;
    for (let tries = 0; ; tries++) {
      const sentMs = clock.monotonic();
      try {
        return { answer: await options.ask(address, input, Math.min(limits.askAttemptMs, endMs - sentMs)), sentMs };
      } catch (error) {
        if (!(error instanceof CodedError) || error.entry.kind !== 'fault' || clock.monotonic() + limits.askRetryMaxMs >= endMs) throw error;
        await pause(tries);
      }
    }
  };

  /** Asks for those in front who have the same limits, and answers them. */
  const askFor = async (batch: readonly Waiter[], id: string, { org, key, perMinute, perDay }: Allowance): Promise<void> => {
    const state = current(id, clock.monotonic());
    const lease = state?.name === 'open' ? state : undefined;
    const used = lease?.used ?? 0;
    // Reported once, even if the answer is lost: then it counts as held, and less is given ahead.
    if (lease !== undefined) lease.used = 0;
    asks += 1;
    const { answer, sentMs } = await ask(
      { org, type: 'allowance', key },
      { count: batch.length, perMinute, perDay, by, ask: asks, ahead: Math.min(aheadMax, lease?.passed ?? 0), used },
    );
    const now = clock.monotonic();
    batch.slice(0, answer.granted).forEach((waiter, i) => {
      passed += 1;
      settle(waiter, verdictOf(answer, answer.ahead + answer.granted - 1 - i));
    });
    if (answer.granted === batch.length) {
      known.set(id, { name: 'open', untilMs: sentMs + answer.goodForMs, answer, left: answer.ahead, used: 0, passed: (lease?.passed ?? 0) + answer.granted });
      return;
    }
    // Forgotten rather early than late; said rather late than early.
    const said = { name: 'refused', untilMs: sentMs + answer.retryAfterMs, retryMs: now + answer.retryAfterMs, answer } as const;
    known.set(id, said);
    for (const waiter of batch.slice(answer.granted)) {
      refused += 1;
      settle(waiter, refusal(said, now));
    }
  };

  /** Serves a line until nobody waits. Never rejects. */
  const serve = async (line: Line): Promise<void> => {
    for (;;) {
      const now = clock.monotonic();
      line.waiters = line.waiters.filter((waiter) => {
        const { request } = waiter;
        const outcome = request.signal?.aborted === true ? coded('aborted') : decided(idOf(line.name, request), now);
        if (outcome === undefined) return true;
        settle(waiter, outcome);
        return false;
      });
      const [first] = line.waiters;
      if (first === undefined) {
        lines.delete(line.name);
        return;
      }
      const batch = line.waiters.filter(({ request }) => sameLimits(request, first.request)).slice(0, limits.allowanceCountMax);
      const asked = new Set(batch);
      line.waiters = line.waiters.filter((waiter) => !asked.has(waiter));
      try {
        await askFor(batch, idOf(line.name, first.request), first.request);
      } catch (error) {
        waiting -= batch.length;
        for (const { reject } of batch) reject(error);
      }
    }
  };

  const take = (request: AllowanceRequest): Promise<Verdict> => {
    if (request.perMinute === -1 && request.perDay === -1) return Promise.resolve(unlimited);
    if (request.signal?.aborted === true) return Promise.reject(coded('aborted'));
    const name = nameOf(request);
    const line = lines.get(name);
    // Behind those who wait: what was taken ahead is theirs.
    if (line === undefined) {
      const outcome = decided(idOf(name, request), clock.monotonic());
      if (outcome !== undefined) return outcome instanceof CodedError ? Promise.reject(outcome) : Promise.resolve(outcome);
    }
    if (waiting >= limits.allowanceWaitersMax) return Promise.reject(coded('overloaded'));
    waiting += 1;
    return new Promise((resolve, reject) => {
      const waiter: Waiter = { request, resolve, reject };
      if (line !== undefined) {
        line.waiters.push(waiter);
        return;
      }
      const begun: Line = { name, waiters: [waiter] };
      lines.set(name, begun);
      queueMicrotask(() => { void serve(begun); });
    });
  };

  return { take, stats: () => ({ asks, passed, refused, waiting }) };
};
