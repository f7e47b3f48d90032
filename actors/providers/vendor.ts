/**
 * What every vendor's stream needs around it: attempts before the first byte, a limit to silence, and errors made safe.
 *
 * Guarantees: P3-P5 of provider.ts. An attempt is repeated only while nothing was read from the stream (429, 408, 409, 5xx,
 * network), at most `modelRetriesMax` times, never sooner than a Retry-After. Silence is counted only while we wait for the
 * vendor, not while the session is slow to take what came. Vendors' texts never leave: they may quote a key or a prompt.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { limits } from '../../contracts/limits.ts';
import { ProviderFault } from './provider.ts';

export interface VendorOptions {
  readonly silenceMs: number;
  readonly retriesMax: number;
  readonly retryBaseMs: number;
  readonly retryMaxMs: number;
  /** Unix milliseconds, for a Retry-After that is a date. */
  readonly now: () => number;
  /** 0 ≤ x < 1, spreads attempts. */
  readonly random: () => number;
  /** Waits before an attempt; rejects when the signal aborts. */
  readonly wait: (ms: number, signal: AbortSignal) => Promise<unknown>;
}
export const vendorDefaults: VendorOptions = {
  silenceMs: limits.modelSilenceMs, retriesMax: limits.modelRetriesMax,
  retryBaseMs: limits.modelRetryBaseMs, retryMaxMs: limits.modelRetryMaxMs,
  now: () => Date.now(), random: () => Math.random(),
  wait: async (ms, signal) => pause(ms, undefined, { signal }),
};

/** What an adapter knows of its client library's error. */
export interface VendorError {
  /** HTTP status, or the one its in-stream error stands for; undefined = the connection failed or the answer was unreadable. */
  readonly status: number | undefined;
  readonly headers: Headers | undefined;
}

const retryable = (status: number | undefined): boolean =>
  status === undefined || status === 408 || status === 409 || status === 429 || status >= 500;

const explain = (status: number | undefined): string => {
  if (status === undefined) return 'The connection to the model provider broke.';
  if (status === 401 || status === 403) return 'The model provider refused the credentials of this installation.';
  if (status === 404) return 'The model provider does not know the model.';
  if (status === 413) return 'The conversation is too large for the model.';
  if (status === 429) return 'The model provider limits the rate of requests.';
  return status >= 500 ? `The model provider failed (status ${status}).` : `The model provider refused the request (status ${status}).`;
};

/** Milliseconds a Retry-After (RFC 9110 10.2.3: seconds or a date) or retry-after-ms asks for; undefined = none, or unreadable. */
export const retryAfterMs = (headers: Headers | undefined, now: number): number | undefined => {
  const ms = Number.parseFloat(headers?.get('retry-after-ms') ?? '');
  if (Number.isFinite(ms) && ms >= 0) return ms;
  const text = headers?.get('retry-after')?.trim() ?? '';
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) * 1_000;
  const at = Date.parse(text);
  return Number.isNaN(at) ? undefined : Math.max(0, at - now);
};

/** Milliseconds before attempt n + 1 (n from 0), or undefined if it is not worth another one. */
const waitFor = (error: VendorError, n: number, options: VendorOptions): number | undefined => {
  if (n >= options.retriesMax || !retryable(error.status)) return undefined;
  const asked = retryAfterMs(error.headers, options.now());
  if (asked !== undefined) return asked <= options.retryMaxMs ? asked : undefined;
  return Math.min(options.retryMaxMs, options.retryBaseMs * 2 ** n) * (0.5 + options.random() / 2);
};

/**
 * The vendor's raw chunks. `open` makes one request; `read` translates the client library's errors.
 * Throws ProviderFault; on an abort `provider_error` (the loop knows that it aborted).
 */
export async function* vendorStream<Chunk>(
  open: (signal: AbortSignal) => Promise<AsyncIterable<Chunk>>, read: (error: unknown) => VendorError,
  signal: AbortSignal, options: VendorOptions,
): AsyncGenerator<Chunk> {
  for (let attempt = 0; ; attempt++) {
    const silent = new AbortController();
    let waiting = true;
    const timer = setTimeout(() => { if (waiting) silent.abort(); }, options.silenceMs);
    let begun = false;
    try {
      const chunks = await open(AbortSignal.any([signal, silent.signal]));
      for await (const chunk of chunks) {
        begun = true;
        waiting = false;
        yield chunk;
        waiting = true;
        timer.refresh();
      }
      // The client libraries end an aborted iteration without an error.
      if (!signal.aborted && !silent.signal.aborted) return;
      throw new ProviderFault('provider_error', 'The call was aborted.', false);
    } catch (error) {
      if (signal.aborted) throw new ProviderFault('provider_error', 'The call was aborted.', false);
      if (silent.signal.aborted) throw new ProviderFault('provider_timeout', '', begun);
      const known = read(error);
      const waitMs = begun ? undefined : waitFor(known, attempt, options);
      if (waitMs === undefined) throw new ProviderFault('provider_error', explain(known.status), begun && retryable(known.status), begun);
      await options.wait(waitMs, signal).catch(() => {
        throw new ProviderFault('provider_error', 'The call was aborted.', false);
      });
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Asks a model to take up its reply again; the loop strips what it repeats all the same. */
export const goOnInstruction = 'Your last reply was cut off by a technical fault. Go on exactly where it ended. Repeat nothing of it and do not mention the fault.';
