/**
 * Public keys of whoever signs tokens (RFC 7517), fetched and kept: an identity provider's over HTTP, the platform's over the link.
 *
 * Guarantees (decisions, Edge gateway): fresh for `ttlMs`; one fetch in flight, shared by all who wait; an unknown key id
 * causes one refetch, at most one per `cooldownMs`; a new set replaces the old in one assignment; when a fetch fails the
 * last good set stays. Only P-256 signature keys with a key id are used, whatever else the set holds.
 */
import { createPublicKey, type KeyObject } from 'node:crypto';
import { z } from 'zod';
import { coded } from '../contracts/errors.ts';
import { limits } from '../contracts/limits.ts';
import type { Clock } from './clock.ts';
import type { Log } from './log.ts';

const keySet = z.object({ keys: z.array(z.record(z.string(), z.unknown())).max(1_024) });
const ecKey = z.object({
  kty: z.literal('EC'),
  crv: z.literal('P-256'),
  kid: z.string().min(1).max(512),
  x: z.string(),
  y: z.string(),
  alg: z.literal('ES256').optional(),
  use: z.literal('sig').optional(),
  key_ops: z.array(z.string()).refine((ops) => ops.includes('verify')).optional(),
});

export interface PublicJwk {
  readonly kid: string;
  readonly x: string;
  readonly y: string;
}

interface Known extends PublicJwk {
  readonly key: KeyObject;
}

interface KeySet {
  /** null = a key id of the set that is not usable here (RSA, encryption …): known, so it causes no refetch. */
  readonly keys: ReadonlyMap<string, Known | null>;
  readonly fetchedAtMs: number;
}

/** Where a key set comes from. */
export interface KeySource {
  /** For the log. */
  readonly name: string;
  /** The set as JSON text. Rejects when it cannot be had. */
  load(signal: AbortSignal): Promise<string>;
}

export interface JwksOptions {
  readonly source: KeySource;
  readonly ttlMs: number;
  readonly cooldownMs: number;
  readonly clock: Clock;
  readonly log: Log;
}

/** A key set behind an address; redirects are not followed. */
export const httpKeys = (url: string, fetch: typeof globalThis.fetch): KeySource => ({
  name: url,
  load: async (signal) => {
    const answer = await fetch(url, { redirect: 'error', headers: { accept: 'application/json' }, signal });
    if (answer.status !== 200 || answer.body === null) {
      await answer.body?.cancel();
      throw coded('upstream_error', `The JWKS address answered ${answer.status}.`);
    }
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    for await (const chunk of answer.body) {
      bytes += chunk.length;
      if (bytes > limits.jwksMaxBytes) throw coded('payload_too_large', 'The JWKS is too large.');
      chunks.push(chunk);
    }
    return Buffer.concat(chunks).toString('utf8');
  },
});

export class Jwks {
  readonly #options: JwksOptions;
  readonly #abort = new AbortController();
  #set: KeySet | undefined;
  #fetching: Promise<void> | undefined;
  #failures = 0;
  #retryAtMs = -Infinity;
  #unknownAtMs = -Infinity;
  #fetches = 0;

  constructor(options: JwksOptions) {
    this.#options = options;
  }

  /**
   * A promise if the caller should wait for a fetch before it looks `kid` up (never rejects; afterwards look again, once),
   * undefined if what is known now is what counts.
   */
  refreshFor(kid: string): Promise<void> | undefined {
    const now = this.#options.clock.monotonicMs();
    const set = this.#set;
    if (set === undefined || now - set.fetchedAtMs >= this.#options.ttlMs) {
      return now < this.#retryAtMs ? undefined : this.#refresh();
    }
    if (set.keys.has(kid)) return undefined;
    if (this.#fetching !== undefined) return this.#fetching;
    if (now - this.#unknownAtMs < this.#options.cooldownMs || now < this.#retryAtMs) return undefined;
    this.#unknownAtMs = now;
    return this.#refresh();
  }

  /** The key with that id. The same object as long as the key is the same, also over refreshes. */
  key(kid: string): KeyObject | undefined {
    return this.#set?.keys.get(kid)?.key;
  }

  /** False as long as no fetch ever succeeded. */
  get known(): boolean {
    return this.#set !== undefined;
  }

  get fetches(): number {
    return this.#fetches;
  }

  /** Forgets every key, then fetches. Rejects with `upstream_unavailable` if that fails; the next token tries again. */
  async flush(): Promise<number> {
    this.#set = undefined;
    this.#retryAtMs = -Infinity;
    // A fetch that began before the flush may bring the old set: its answer is awaited and not counted.
    await this.#fetching;
    this.#set = undefined;
    await this.#refresh();
    const size = this.dump().keys.length;
    if (!this.known) throw coded('upstream_unavailable', 'The JWKS could not be fetched.');
    return size;
  }

  /** The public keys in use, with the age of the set in milliseconds. */
  dump(): { readonly age_ms: number | null; readonly keys: readonly (PublicJwk & { readonly kty: string; readonly crv: string; readonly alg: string })[] } {
    const set = this.#set;
    if (set === undefined) return { age_ms: null, keys: [] };
    const keys = [...set.keys.values()].flatMap((known) => (known === null ? [] : [{ kty: 'EC', crv: 'P-256', alg: 'ES256', kid: known.kid, x: known.x, y: known.y }]));
    return { age_ms: Math.round(this.#options.clock.monotonicMs() - set.fetchedAtMs), keys };
  }

  close(): void {
    this.#abort.abort();
  }

  #refresh(): Promise<void> {
    this.#fetching ??= this.#fetch().finally(() => {
      this.#fetching = undefined;
    });
    return this.#fetching;
  }

  async #fetch(): Promise<void> {
    this.#fetches += 1;
    const { clock, log, source } = this.#options;
    try {
      const signal = AbortSignal.any([this.#abort.signal, AbortSignal.timeout(limits.jwksFetchMs)]);
      const keys = parse(await source.load(signal), this.#set?.keys);
      this.#set = { keys, fetchedAtMs: clock.monotonicMs() };
      this.#failures = 0;
      this.#retryAtMs = -Infinity;
      log.info({ source: source.name, keys: keys.size }, 'jwks fetched');
    } catch (error) {
      this.#failures += 1;
      const waitMs = Math.min(this.#options.cooldownMs, 500 * 2 ** Math.min(this.#failures, 10));
      this.#retryAtMs = clock.monotonicMs() + waitMs;
      if (!this.#abort.signal.aborted) log.warn({ source: source.name, error: String(error), retry_ms: waitMs }, 'jwks fetch failed, the last good set stays');
    }
  }
}

const parse = (text: string, before: KeySet['keys'] | undefined): Map<string, Known | null> => {
  const keys = new Map<string, Known | null>();
  for (const entry of keySet.parse(JSON.parse(text)).keys) {
    const parsed = ecKey.safeParse(entry);
    if (!parsed.success) {
      if (typeof entry['kid'] === 'string' && !keys.has(entry['kid'])) keys.set(entry['kid'], null);
      continue;
    }
    const { kid, x, y } = parsed.data;
    const old = before?.get(kid);
    keys.set(kid, old?.x === x && old.y === y ? old : { kid, x, y, key: createPublicKey({ format: 'jwk', key: { kty: 'EC', crv: 'P-256', x, y } }) });
  }
  return keys;
};
