/**
 * Membership: which hosts live. One key per host in the bucket `hosts`: {host, instance, at, draining?}.
 *
 * Guarantees (M1-M4), on which the leases stand:
 * M1  A host lives as long as its key bears its instance. The key changes in two ways only, both compare-and-set on its
 *     revision: the host renews it, or somebody else ends it. So a renewal that was stored proves that nobody had taken
 *     anything from this host before it, however long it was silent: an outage of NATS ends no lease by itself.
 * M2  A host serves only until (monotonic time its last stored renewal was SENT) + 0.8 TTL. Others end a host's key only
 *     after its revision stood still for a full TTL of their own monotonic clock. Wall clocks are never compared.
 * M3  Time in which an observer could not read does not count against anybody.
 * M4  A process that finds another instance in its own key is the predecessor of a restarted one: it stops for good.
 */
import { z } from 'zod';
import { ulid } from 'ulid';
import type { Clock } from '../store.ts';
import type { Bucket, Entry } from './bucket.ts';

/** Part of the TTL, counted from the sending of a renewal, for which its owner trusts it. */
export const trusted = 0.8;
/** Tries of one join or renewal that meets a conflict; the next tick goes on. */
const triesMax = 5;

const hostRecord = z.object({ host: z.string(), instance: z.string(), at: z.number(), draining: z.boolean().optional() });
type HostRecord = z.infer<typeof hostRecord>;

/** What a partition's key names: nobody ({}) or a host's instance. */
const partitionRecord = z.object({ host: z.string().optional(), instance: z.string().optional() });
export type Owner = z.infer<typeof partitionRecord>;

/** What is not a record of ours (an operator's hand) counts as absent. */
const decodeAs = <S extends z.ZodType>(schema: S, value: string | undefined): z.output<S> | undefined => {
  if (value === undefined) return undefined;
  let json: unknown;
  try {
    json = JSON.parse(value);
  } catch {
    return undefined;
  }
  const parsed = schema.safeParse(json);
  return parsed.success ? parsed.data : undefined;
};
const decode = (value: string | undefined): HostRecord | undefined => decodeAs(hostRecord, value);

/** The owner that a partition's entry names. */
export const ownerOf = (entry: Entry | undefined): Owner => decodeAs(partitionRecord, entry?.value) ?? {};

export type Renewal =
  /** Stored; serving is allowed until `untilMs` (monotonic). */
  | { readonly kind: 'renewed'; readonly untilMs: number }
  /** Another host ended this one: nothing is owned any more, join again. */
  | { readonly kind: 'ended' }
  /** A process with the same host name has started (M4). */
  | { readonly kind: 'replaced' };

interface Seen {
  readonly instance: string;
  readonly draining: boolean;
  readonly revision: number;
  /** Monotonic milliseconds when we first saw this revision. */
  readonly sinceMs: number;
}

export interface MembershipOptions {
  readonly bucket: Bucket;
  readonly host: string;
  readonly ttlMs: number;
  readonly clock: Clock;
}

export class Membership {
  readonly #bucket: Bucket;
  readonly #host: string;
  readonly #ttlMs: number;
  readonly #clock: Clock;
  #instance = '';
  #revision = 0;
  #draining = false;
  #seen = new Map<string, Seen>();
  #lookedMs: number | undefined;

  constructor(options: MembershipOptions) {
    this.#bucket = options.bucket;
    this.#host = options.host;
    this.#ttlMs = options.ttlMs;
    this.#clock = options.clock;
  }

  /** This process's incarnation; a new one at each join. */
  get instance(): string {
    return this.#instance;
  }

  /** From the next renewal on, others place nothing on this host. */
  announceDrain(): void {
    this.#draining = true;
  }

  #record(): string {
    const record: HostRecord = { host: this.#host, instance: this.#instance, at: this.#clock.now(), ...(this.#draining ? { draining: true } : {}) };
    return JSON.stringify(record);
  }

  /** Writes the key under a new instance, over a predecessor's if there is one. Throws when the bucket does not answer. */
  async join(): Promise<Renewal> {
    this.#instance = ulid();
    for (let tries = 0; tries < triesMax; tries++) {
      const before = await this.#bucket.get(this.#host, this.#ttlMs);
      const sentMs = this.#clock.monotonic();
      const written = await this.#bucket.put(this.#host, this.#record(), before.revision, this.#ttlMs);
      if (written.ok) {
        this.#revision = written.revision;
        return { kind: 'renewed', untilMs: sentMs + this.#ttlMs * trusted };
      }
    }
    return { kind: 'ended' };
  }

  /** Renews the key. Throws when the bucket does not answer: the lease then runs out by itself unless a later call succeeds. */
  async renew(): Promise<Renewal> {
    for (let tries = 0; tries < triesMax; tries++) {
      const sentMs = this.#clock.monotonic();
      const written = await this.#bucket.put(this.#host, this.#record(), this.#revision, this.#ttlMs / 3);
      if (written.ok) {
        this.#revision = written.revision;
        return { kind: 'renewed', untilMs: sentMs + this.#ttlMs * trusted };
      }
      const now = await this.#bucket.get(this.#host, this.#ttlMs / 3);
      const record = decode(now.value);
      if (record === undefined) return { kind: 'ended' };
      if (record.instance !== this.#instance) return { kind: 'replaced' };
      // An earlier renewal was stored though its answer was lost: go on from its revision.
      this.#revision = now.revision;
    }
    throw new TypeError('the heartbeat key changed at every renewal, though only its own host may change it');
  }

  /** Removes the key: every partition of this host is free to take at once. Only after nothing can commit any more. */
  async leave(): Promise<void> {
    await this.#bucket.remove(this.#host, this.#revision, this.#ttlMs);
  }

  /** Takes in a reading of the whole bucket. */
  observe(entries: readonly Entry[]): void {
    const nowMs = this.#clock.monotonic();
    const blind = this.#lookedMs === undefined || nowMs - this.#lookedMs > this.#ttlMs;
    this.#lookedMs = nowMs;
    const next = new Map<string, Seen>();
    for (const entry of entries) {
      const record = decode(entry.value);
      if (record === undefined) continue;
      const before = this.#seen.get(entry.key);
      // A follower may show an older revision than we saw: that is no change.
      const still = before !== undefined && entry.revision <= before.revision && !blind;
      next.set(entry.key, still ? before : { instance: record.instance, draining: record.draining === true, revision: entry.revision, sinceMs: nowMs });
    }
    this.#seen = next;
  }

  /** True when a write to the bucket says something that we have not seen: somebody came, went, or drains. */
  isNews(host: string, value: string | undefined): boolean {
    const record = decode(value);
    const seen = this.#seen.get(host);
    if (record === undefined) return seen !== undefined;
    return seen?.instance !== record.instance || seen.draining !== (record.draining === true);
  }

  /** True when a write to this host's own key is not ours: it was ended or replaced, which the next renewal will tell. */
  isForeign(value: string | undefined): boolean {
    return decode(value)?.instance !== this.#instance;
  }

  /** Ends every host whose key stood still for a TTL (M2). Gives their names; a host that renewed meanwhile is left alone. */
  async endSilent(): Promise<string[]> {
    const nowMs = this.#clock.monotonic();
    const silent = [...this.#seen].filter(([host, seen]) => host !== this.#host && nowMs - seen.sinceMs >= this.#ttlMs);
    const ended = await Promise.all(silent.map(async ([host, seen]) => {
      const written = await this.#bucket.remove(host, seen.revision, this.#ttlMs / 3);
      this.#seen.delete(host);
      return written.ok ? host : undefined;
    }));
    return ended.filter((host) => host !== undefined);
  }

  /** Monotonic milliseconds at which the next silent host is due; undefined if no other host is known. */
  nextEndMs(): number | undefined {
    let next: number | undefined;
    for (const [host, seen] of this.#seen) {
      if (host === this.#host) continue;
      const due = seen.sinceMs + this.#ttlMs;
      if (next === undefined || due < next) next = due;
    }
    return next;
  }

  /** Whether a partition's record names a living host, as far as we saw. */
  isAlive(owner: Owner): boolean {
    return owner.host !== undefined && owner.instance !== undefined && this.#seen.get(owner.host)?.instance === owner.instance;
  }

  /** The same by a leader read. */
  async livesNow(owner: Owner): Promise<boolean> {
    if (owner.host === undefined || owner.instance === undefined) return false;
    const entry = await this.#bucket.get(owner.host, this.#ttlMs);
    return decode(entry.value)?.instance === owner.instance;
  }

  /** Living hosts that take partitions, this one included unless it drains. */
  takers(): string[] {
    const hosts = [...this.#seen].filter(([host, seen]) => host !== this.#host && !seen.draining).map(([host]) => host);
    if (!this.#draining) hosts.push(this.#host);
    return hosts;
  }
}
