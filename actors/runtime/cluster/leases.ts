/**
 * Leases: which partitions this host holds. One key per partition in the bucket `partitions`: {host, instance}, or {} if free.
 *
 * Guarantees (P1-P5):
 * P1  A partition is taken by compare-and-set on its key, and only when it is free or the instance it names lives no more
 *     (membership.ts M1). The revision of that write is the epoch: strictly increasing per partition.
 * P2  A lease lives as long as its host's heartbeat; there is nothing to renew per partition.
 * P3  A partition that rendezvous places elsewhere is handed over: `give` first (nothing can commit afterwards), then the
 *     key is written free, then the other host takes it.
 * P4  A host that was ended by others gives everything up and joins anew under a new instance. One that was replaced by a
 *     process of its own name gives everything up and stops (`replaced`).
 * P5  What is read may be stale and hints may be missing: only writes decide. Everything is looked at again each TTL/3.
 *
 * It does not fence the journal: the expected sequence does that. It does not know actors: `take` and `give` do.
 */
import { coded, CodedError } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import type { Clock } from '../store.ts';
import type { Log } from '../log.ts';
import { isSilence } from '../nats/retry.ts';
import type { Bucket, Entry } from './bucket.ts';
import { Membership, ownerOf, type Owner } from './membership.ts';
import { placed } from './placement.ts';

type Slot =
  | { readonly kind: 'claiming' }
  | { readonly kind: 'held'; readonly epoch: number }
  | { readonly kind: 'leaving'; readonly epoch: number };

export interface LeaseOptions {
  readonly hosts: Bucket;
  readonly partitions: Bucket;
  readonly host: string;
  readonly count: number;
  readonly ttlMs: number;
  readonly clock: Clock;
  readonly log: Log;
  /** The host's lease is good until this monotonic time. */
  readonly onLease: (untilMs: number) => void;
  /** The partition is ours under this epoch: serve it. */
  readonly take: (n: number, epoch: number) => void;
  /** Stop serving the partition; resolves when nothing of it can commit any more. */
  readonly give: (n: number) => Promise<void>;
  /** The set of held partitions changed. */
  readonly onOwned: (owned: readonly number[]) => void;
  /** P4: another process of the same host name has started. */
  readonly onReplaced: () => void;
}

/** What a join that failed may be followed by: another. Each begins by reading, under a new instance, so that nothing of the one before is in its way. */
const mayJoinAgain = (error: unknown): boolean => isSilence(error) || (error instanceof CodedError && error.code === 'journal_unavailable');

export class Leases {
  readonly #options: LeaseOptions;
  readonly #membership: Membership;
  readonly #slots = new Map<number, Slot>();
  readonly #moves = new Set<Promise<void>>();
  readonly #joined = Promise.withResolvers<void>();
  readonly #ready = Promise.withResolvers<void>();
  readonly #hints: { stop(): void }[] = [];
  #state: 'joining' | 'joined' | 'draining' | 'stopped' = 'joining';
  #untilMs = 0;
  #beatTimer: NodeJS.Timeout | undefined;
  #lookTimer: NodeJS.Timeout | undefined;
  #beating: Promise<void> | undefined;
  #looking: Promise<void> | undefined;
  #lookAgain = false;
  readonly #keys: readonly string[];

  constructor(options: LeaseOptions) {
    this.#options = options;
    this.#membership = new Membership({ bucket: options.hosts, host: options.host, ttlMs: options.ttlMs, clock: options.clock });
    this.#keys = Array.from({ length: options.count }, (_, n) => String(n));
    for (const { promise } of [this.#joined, this.#ready]) promise.catch(() => undefined);
  }

  /** Resolves when every partition that rendezvous places here is held for the first time; rejects when stopped before. */
  get ready(): Promise<void> {
    return this.#ready.promise;
  }

  get instance(): string {
    return this.#membership.instance;
  }

  owned(): number[] {
    return [...this.#slots].filter(([, slot]) => slot.kind === 'held').map(([n]) => n).sort((a, b) => a - b);
  }

  /**
   * Joins the cluster. What is not answered is tried again, each tenth of the TTL and at each `wake`, for `withinMs` milliseconds: then
   * it throws `journal_unavailable`. Any other failure of the first try is thrown at once.
   */
  async start(withinMs: number = limits.natsStartMs): Promise<void> {
    const { hosts, partitions, host, log } = this.#options;
    this.#hints.push(
      hosts.hints((key, value) => {
        if (key !== host) {
          if (this.#membership.isNews(key, value)) this.look();
        } else if (this.#membership.isForeign(value)) this.#scheduleBeat(0);
      }),
      partitions.hints(() => this.look()),
    );
    let cause: unknown;
    const late = setTimeout(() => { this.#joined.reject(coded('journal_unavailable', 'The cluster could not be joined: NATS does not answer.', { cause })); }, withinMs);
    this.#beating = this.#beat().catch((error: unknown) => {
      cause = error;
      if (mayJoinAgain(error)) log.warn({ err: error, host }, 'the cluster could not be joined yet');
      else this.#joined.reject(error);
    });
    try {
      await this.#joined.promise;
    } finally {
      clearTimeout(late);
    }
  }

  /** Renews and looks now: after a reconnection nothing waits for its timer. */
  wake(): void {
    if (this.#state === 'stopped') return;
    this.#scheduleBeat(0);
    this.look();
  }

  // --- heartbeat -----------------------------------------------------------------------------------------------------

  #scheduleBeat(inMs: number): void {
    clearTimeout(this.#beatTimer);
    if (this.#state === 'stopped') return;
    this.#beatTimer = setTimeout(() => { void this.#beatNow(); }, inMs);
  }

  /** One renewal, or the one in flight. Never rejects: what fails is tried again. */
  #beatNow(): Promise<void> {
    this.#beating ??= this.#beat().catch((error: unknown) => {
      this.#options.log.warn({ err: error, host: this.#options.host }, 'the lease could not be renewed');
    });
    return this.#beating;
  }

  async #beat(): Promise<void> {
    let nextMs = this.#options.ttlMs / 10;
    try {
      const renewal = this.#state === 'joining' ? await this.#membership.join() : await this.#membership.renew();
      if (this.#stopped()) return;
      switch (renewal.kind) {
        case 'renewed':
          nextMs = this.#options.ttlMs / 3;
          this.#untilMs = renewal.untilMs;
          this.#options.onLease(renewal.untilMs);
          if (this.#state === 'joining') {
            this.#state = 'joined';
            this.#joined.resolve();
            this.look();
          }
          break;
        case 'ended':
          this.#options.log.warn({ host: this.#options.host }, 'this host was silent too long and lost its partitions; it joins again');
          await this.#loseAll();
          if (this.#state === 'joined') this.#state = 'joining';
          nextMs = 0;
          break;
        case 'replaced':
          this.#options.log.error({ host: this.#options.host }, 'another process with this host name has started; this one stops');
          this.#untilMs = 0;
          this.#options.onLease(0);
          this.stop();
          this.#options.onReplaced();
          break;
      }
    } finally {
      this.#beating = undefined;
      this.#scheduleBeat(nextMs);
    }
  }

  #stopped(): boolean {
    return this.#state === 'stopped';
  }

  /** Gives up every partition without touching its key: it is not ours to write any more. */
  async #loseAll(): Promise<void> {
    this.#untilMs = 0;
    this.#options.onLease(0);
    await Promise.all([...this.#slots.keys()].map((n) => this.#leave(n, false)));
    await Promise.all(this.#moves);
  }

  // --- looking -------------------------------------------------------------------------------------------------------

  /** Reads both buckets and acts on what differs from what should be; calls while it runs make it run once more. */
  look(): void {
    if (this.#state !== 'joined') return;
    if (this.#looking !== undefined) {
      this.#lookAgain = true;
      return;
    }
    clearTimeout(this.#lookTimer);
    this.#looking = this.#look().catch((error: unknown) => {
      this.#options.log.warn({ err: error, host: this.#options.host }, 'the leases could not be read');
    }).finally(() => {
      this.#looking = undefined;
      if (this.#lookAgain) {
        this.#lookAgain = false;
        this.look();
      } else this.#scheduleLook();
    });
  }

  #scheduleLook(): void {
    if (this.#stopped()) return;
    const endMs = this.#membership.nextEndMs();
    const periodMs = this.#options.ttlMs / 3;
    const dueMs = endMs === undefined ? periodMs : Math.min(periodMs, Math.max(5, endMs - this.#options.clock.monotonic() + 1));
    this.#lookTimer = setTimeout(() => this.look(), dueMs);
  }

  async #look(): Promise<void> {
    const { hosts, partitions, ttlMs, log, host } = this.#options;
    const [hostEntries, partitionEntries] = await Promise.all([hosts.list(['*'], ttlMs), partitions.list(this.#keys, ttlMs)]);
    this.#membership.observe(hostEntries);
    const ended = await this.#membership.endSilent();
    if (ended.length > 0) log.warn({ host, ended }, 'hosts fell silent; their partitions are taken over');
    if (this.#state !== 'joined') return;
    const takers = this.#membership.takers();
    const entries = new Map(partitionEntries.map((entry) => [Number(entry.key), entry]));
    let waiting = 0;
    for (let n = 0; n < this.#options.count; n++) {
      const wanted = placed(n, takers) === host;
      if (!this.#settle(n, entries.get(n), wanted) && wanted) waiting++;
    }
    if (waiting === 0) this.#becomeReady();
  }

  /** Brings one partition nearer to what should be. True if it is held. */
  #settle(n: number, entry: Entry | undefined, wanted: boolean): boolean {
    const slot = this.#slots.get(n);
    const revision = entry?.revision ?? 0;
    if (slot !== undefined) {
      if (slot.kind !== 'held') return false;
      if (revision > slot.epoch) {
        // Cannot happen while M1 holds; an operator's hand on the bucket can do it.
        this.#options.log.error({ partition: n, epoch: slot.epoch, revision }, 'a held partition was taken by another host');
        void this.#leave(n, false);
        return false;
      }
      if (wanted) return true;
      if (this.#leaving() < limits.handOversMax) void this.#leave(n, true);
      return false;
    }
    if (!wanted) return false;
    const owner = ownerOf(entry);
    const own = owner.host === this.#options.host && owner.instance === this.instance;
    if (!own && this.#membership.isAlive(owner)) return false;
    this.#claim(n, revision, own ? {} : owner);
    return false;
  }

  #leaving(): number {
    let count = 0;
    for (const slot of this.#slots.values()) if (slot.kind === 'leaving') count++;
    return count;
  }

  #track(move: Promise<void>): void {
    this.#moves.add(move);
    void move.finally(() => this.#moves.delete(move));
  }

  #claim(n: number, revision: number, before: Owner): void {
    this.#slots.set(n, { kind: 'claiming' });
    this.#track(this.#claimNow(n, revision, before));
  }

  async #claimNow(n: number, revision: number, before: Owner): Promise<void> {
    const { partitions, host, ttlMs, clock, log } = this.#options;
    const instance = this.instance;
    try {
      // The list of hosts may have come from a follower that does not know the owner yet; an instance that ended never returns.
      if (await this.#membership.livesNow(before)) {
        this.#slots.delete(n);
        return;
      }
      const written = await partitions.put(String(n), JSON.stringify({ host, instance }), revision, ttlMs);
      // The key may be ours though we may serve no more: then it is freed by drain, or by our heartbeat's end.
      if (written.ok && this.#state === 'joined' && instance === this.instance && clock.monotonic() < this.#untilMs) {
        this.#slots.set(n, { kind: 'held', epoch: written.revision });
        this.#options.take(n, written.revision);
        this.#options.onOwned(this.owned());
        return;
      }
      this.#slots.delete(n);
    } catch (error) {
      this.#slots.delete(n);
      log.warn({ err: error, partition: n }, 'a partition could not be claimed');
    } finally {
      this.look();
    }
  }

  #leave(n: number, free: boolean): Promise<void> {
    const slot = this.#slots.get(n);
    if (slot?.kind !== 'held') return Promise.resolve();
    this.#slots.set(n, { kind: 'leaving', epoch: slot.epoch });
    this.#options.onOwned(this.owned());
    const move = this.#leaveNow(n, slot.epoch, free);
    this.#track(move);
    return move;
  }

  async #leaveNow(n: number, epoch: number, free: boolean): Promise<void> {
    const { give, partitions, ttlMs, log } = this.#options;
    try {
      await give(n);
      if (free) await partitions.put(String(n), '{}', epoch, ttlMs);
    } catch (error) {
      // Not freed: we stay its owner by the record, so the next look claims it again or frees it in turn.
      log.warn({ err: error, partition: n }, 'a partition could not be handed over');
    } finally {
      this.#slots.delete(n);
      this.look();
    }
  }

  #becomeReady(): void {
    this.#ready.resolve();
  }

  // --- the end -------------------------------------------------------------------------------------------------------

  /** Hands every partition over, then leaves the cluster. What takes longer than `withinMs` is left to the others' take-over. */
  async drain(withinMs: number): Promise<void> {
    if (this.#state === 'stopped' || this.#state === 'draining') return;
    this.#state = 'draining';
    this.#ready.reject(new Error('drained before ready'));
    this.#membership.announceDrain();
    clearTimeout(this.#lookTimer);
    const end = Promise.withResolvers<'late'>();
    const timer = setTimeout(() => end.resolve('late'), withinMs);
    const all = (async (): Promise<void> => {
      // Others must see the announcement before partitions fall free, or they would leave them to us.
      await this.#beating;
      await this.#beatNow();
      await Promise.all(this.#moves);
      const left = [...this.#slots.keys()];
      await Promise.all(Array.from({ length: limits.handOversMax }, async () => {
        for (let n = left.pop(); n !== undefined; n = left.pop()) await this.#leave(n, true);
      }));
      await Promise.all(this.#moves);
    })();
    const outcome = await Promise.race([all, end.promise]).finally(() => clearTimeout(timer));
    if (outcome === 'late') this.#options.log.warn({ left: this.#slots.size }, 'the drain ran out of time');
    this.stop();
  }

  /** Removes the heartbeat. Call after `drain` or `stop`, when nothing can commit any more. */
  async leave(): Promise<void> {
    await this.#beating?.catch(() => undefined);
    await this.#membership.leave();
  }

  /** Stops timers and hints; writes nothing. */
  stop(): void {
    this.#state = 'stopped';
    this.#joined.reject(new Error('stopped before it joined'));
    this.#ready.reject(new Error('stopped before ready'));
    clearTimeout(this.#beatTimer);
    clearTimeout(this.#lookTimer);
    for (const hint of this.#hints.splice(0)) hint.stop();
  }
}
