/**
 * Token buckets by key: `capacity` at once, refilled at `refillPerSec`, never above capacity (interface 8.3).
 *
 * Guarantees: a key that was never seen has a full bucket; at most `limits.bucketsMax` are remembered, a full one is the
 * first to be forgotten (forgetting it changes nothing), then the oldest; every call costs constant time.
 * Process-wide only: two gateway processes count separately.
 */
import { coded } from '../contracts/errors.ts';
import { limits } from '../contracts/limits.ts';

export interface BucketLimit {
  /** Tokens a full bucket holds. */
  readonly capacity: number;
  /** Tokens per second. */
  readonly refillPerSec: number;
}

export interface BucketState extends BucketLimit {
  readonly key: string;
  readonly tokens: number;
  readonly overridden: boolean;
}

interface Bucket {
  tokens: number;
  atMs: number;
}

/** Buckets looked at for one to forget when the map is full. */
const sweepLength = 32;

export class Buckets {
  readonly #limit: BucketLimit;
  readonly #nowMs: () => number;
  readonly #max: number;
  readonly #nameOf: (key: string) => string;
  readonly #buckets = new Map<string, Bucket>();
  readonly #overrides = new Map<string, BucketLimit>();

  /** `nowMs` is monotonic. `nameOf`: what a key is counted by, where several are one. */
  constructor(limit: BucketLimit, nowMs: () => number, max: number = limits.bucketsMax, nameOf: (key: string) => string = (key) => key) {
    this.#limit = limit;
    this.#nowMs = nowMs;
    this.#max = max;
    this.#nameOf = nameOf;
  }

  /** Takes a token. 0 = taken; else nothing was taken and a token is there in that many whole seconds (at least 1). */
  take(ofKey: string): number {
    const key = this.#nameOf(ofKey);
    const limit = this.#overrides.get(key) ?? this.#limit;
    const now = this.#nowMs();
    let bucket = this.#buckets.get(key);
    if (bucket === undefined) {
      if (this.#buckets.size >= this.#max) this.#forgetOne(now);
      bucket = { tokens: limit.capacity, atMs: now };
      this.#buckets.set(key, bucket);
    } else {
      bucket.tokens = level(bucket, limit, now);
      bucket.atMs = now;
    }
    if (bucket.tokens < 1) return waitSec(bucket.tokens, limit);
    bucket.tokens -= 1;
    return 0;
  }

  /** Gives a token back that was taken, never above capacity. */
  give(ofKey: string): void {
    const key = this.#nameOf(ofKey);
    const bucket = this.#buckets.get(key);
    // A bucket that was forgotten meanwhile is full.
    if (bucket === undefined) return;
    const limit = this.#overrides.get(key) ?? this.#limit;
    const now = this.#nowMs();
    bucket.tokens = Math.min(limit.capacity, level(bucket, limit, now) + 1);
    bucket.atMs = now;
  }

  /** What `take` would answer, without taking. */
  wait(ofKey: string): number {
    const key = this.#nameOf(ofKey);
    const bucket = this.#buckets.get(key);
    const limit = this.#overrides.get(key) ?? this.#limit;
    const tokens = bucket === undefined ? limit.capacity : level(bucket, limit, this.#nowMs());
    return tokens >= 1 ? 0 : waitSec(tokens, limit);
  }

  /** Replaces the limit of one key, `null` = back to the common one. The bucket keeps its tokens, cut to the new capacity. */
  override(ofKey: string, limit: BucketLimit | null): void {
    const key = this.#nameOf(ofKey);
    const now = this.#nowMs();
    const bucket = this.#buckets.get(key);
    if (bucket !== undefined) {
      // What was earned so far was earned at the old rate.
      bucket.tokens = level(bucket, this.#overrides.get(key) ?? this.#limit, now);
      bucket.atMs = now;
    }
    if (limit === null) {
      this.#overrides.delete(key);
    } else {
      if (!this.#overrides.has(key) && this.#overrides.size >= limits.bucketOverridesMax) {
        throw coded('bad_request', `There are ${limits.bucketOverridesMax} overrides already. Remove one first.`);
      }
      this.#overrides.set(key, limit);
    }
    const capacity = (limit ?? this.#limit).capacity;
    if (bucket !== undefined && bucket.tokens > capacity) bucket.tokens = capacity;
  }

  /** The named bucket, or all that are not full or have a limit of their own, at most `max`. */
  inspect(key: string | undefined, max: number): BucketState[] {
    if (key !== undefined) return [this.#state(this.#nameOf(key))];
    const states: BucketState[] = [];
    for (const overridden of this.#overrides.keys()) {
      if (states.length >= max) return states;
      states.push(this.#state(overridden));
    }
    for (const known of this.#buckets.keys()) {
      if (states.length >= max) return states;
      if (this.#overrides.has(known)) continue;
      const state = this.#state(known);
      if (state.tokens < state.capacity) states.push(state);
    }
    return states;
  }

  /** Buckets remembered now. */
  get size(): number {
    return this.#buckets.size;
  }

  #state(key: string): BucketState {
    const override = this.#overrides.get(key);
    const limit = override ?? this.#limit;
    const bucket = this.#buckets.get(key);
    const tokens = bucket === undefined ? limit.capacity : level(bucket, limit, this.#nowMs());
    return { key, tokens, capacity: limit.capacity, refillPerSec: limit.refillPerSec, overridden: override !== undefined };
  }

  #forgetOne(now: number): void {
    let seen = 0;
    let oldest: string | undefined;
    for (const [key, bucket] of this.#buckets) {
      oldest ??= key;
      const limit = this.#overrides.get(key) ?? this.#limit;
      if (level(bucket, limit, now) >= limit.capacity) {
        this.#buckets.delete(key);
        return;
      }
      if (++seen >= sweepLength) break;
    }
    if (oldest !== undefined) this.#buckets.delete(oldest);
  }
}

const level = (bucket: Bucket, limit: BucketLimit, nowMs: number): number =>
  Math.min(limit.capacity, bucket.tokens + ((nowMs - bucket.atMs) / 1_000) * limit.refillPerSec);

/** ceil(missing tokens / refill per second); decisions, Edge gateway. */
const waitSec = (tokens: number, limit: BucketLimit): number => Math.max(1, Math.ceil((1 - tokens) / limit.refillPerSec));
