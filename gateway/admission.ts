/**
 * Who may use the admin socket: processes of the configured group, by the kernel's word (interface 5.2).
 *
 * Guarantees: primary and supplementary groups count, uid 0 is no exception; a lookup that fails refuses (fail closed) and
 * is not tried again for that user for `groupLookupNegativeMs`. Nothing the client sends is looked at.
 */
import { LRUCache } from 'lru-cache';
import { limits } from '../contracts/limits.ts';
import type { Clock } from './clock.ts';
import type { Log } from './log.ts';
import type { PeerLookup } from './peer.ts';

export class Admission {
  readonly #group: string;
  readonly #lookup: PeerLookup;
  readonly #clock: Clock;
  readonly #log: Log;
  /** uid → until when its lookups count as failed. */
  readonly #failed = new LRUCache<number, number>({ max: 4_096 });

  constructor(group: string, lookup: PeerLookup, clock: Clock, log: Log) {
    this.#group = group;
    this.#lookup = lookup;
    this.#clock = clock;
    this.#log = log;
  }

  /** `fd`: the accepted socket. */
  admits(fd: number): boolean {
    let uid: number | undefined;
    try {
      const credentials = this.#lookup.credentials(fd);
      ({ uid } = credentials);
      const failedUntilMs = this.#failed.get(uid);
      if (failedUntilMs !== undefined && this.#clock.monotonicMs() < failedUntilMs) return false;
      const gid = this.#lookup.groupId(this.#group);
      if (gid === undefined) throw new TypeError(`There is no group ${this.#group}.`);
      const admitted = credentials.gid === gid || this.#lookup.groups(fd).includes(gid);
      if (!admitted) this.#log.warn({ uid, gid: credentials.gid, pid: credentials.pid }, 'admin peer refused');
      return admitted;
    } catch (error) {
      // A lookup that fails is a refusal, whatever the reason.
      if (uid !== undefined) this.#failed.set(uid, this.#clock.monotonicMs() + limits.groupLookupNegativeMs);
      this.#log.warn({ uid, error: String(error) }, 'admin peer refused, its groups cannot be looked up');
      return false;
    }
  }
}
