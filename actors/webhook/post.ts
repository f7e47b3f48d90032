/**
 * One delivery attempt over https, to exactly the address that was checked.
 *
 * Guarantees: the host is resolved here, once per attempt, and every one of its addresses must pass; the connection goes to these
 * addresses and no other, while the certificate must be the host's. No redirect is followed, no proxy of the environment used, no
 * connection kept. Of the answer only its status counts; its body is read within `limits.webhookAnswerMaxBytes` and
 * `limits.webhookAnswerMs`, then dropped. At most `limits.webhookPostsMax` attempts at once in one process.
 * It has no deadline of its own beyond the caller's signal, and tries once.
 */
import { isIP, type LookupFunction } from 'node:net';
import { rootCertificates } from 'node:tls';
import { Client } from 'undici';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { WebhookFailure } from '../../contracts/webhook.ts';
import type { Address, Resolve } from './resolve.ts';

export interface PostDeps {
  readonly resolve: Resolve;
  /** True for an address that must not be reached: `isPrivateAddress`, or nothing where `webhooks.allow_private` is set. */
  readonly refuses: (address: string) => boolean;
  /** Further certificate authorities, PEM. */
  readonly ca?: string | undefined;
}

export interface PostRequest {
  /** As `webhookUrl` of contracts/webhook.ts takes it. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly signal: AbortSignal;
}

export type PostResult =
  | { readonly ok: true; readonly status: number }
  | { readonly ok: false; readonly failure: WebhookFailure; readonly status?: number };

/** Throws `aborted` when the signal says so; everything the network does is a result. */
export type Post = (request: PostRequest) => Promise<PostResult>;

const failed = (failure: WebhookFailure): PostResult => ({ ok: false, failure });

const tlsCode = /^(?:ERR_TLS_|ERR_SSL_|CERT_|UNABLE_TO_|HOSTNAME_MISMATCH$|EPROTO$|(?:DEPTH_ZERO_)?SELF_SIGNED_CERT)/;
const timeOuts: ReadonlySet<string> = new Set(['UND_ERR_CONNECT_TIMEOUT', 'UND_ERR_HEADERS_TIMEOUT', 'UND_ERR_BODY_TIMEOUT', 'ETIMEDOUT']);

/** Undefined for what is no failure of the network. */
const failureOf = (error: unknown): WebhookFailure | undefined => {
  if (!(error instanceof Error) || !('code' in error) || typeof error.code !== 'string' || error.code.startsWith('UND_ERR_INVALID')) return undefined;
  if (tlsCode.test(error.code)) return 'tls_failed';
  return timeOuts.has(error.code) ? 'timed_out' : 'connection_failed';
};

/** All addresses of the host, checked; or why not. */
const pin = async (host: string, deps: PostDeps): Promise<readonly Address[] | WebhookFailure> => {
  const family = isIP(host);
  let addresses: readonly Address[] = [{ address: host, family }];
  if (family === 0) {
    try {
      addresses = await deps.resolve(host);
    } catch {
      return 'host_unknown';
    }
  }
  if (addresses.length === 0) return 'host_unknown';
  // All of them, also those that would not be tried: one private address among public ones is an attack or a mistake.
  if (addresses.some(({ address }) => deps.refuses(address))) return 'address_refused';
  return addresses.slice(0, limits.webhookAddressesMax);
};

const send = async (url: URL, to: readonly Address[], request: PostRequest, ca: string | undefined): Promise<PostResult> => {
  const pinned: LookupFunction = (_host, options, callback) => {
    const [first] = to;
    if (first === undefined) throw new TypeError('nothing to connect to');
    if (options.all === true) callback(null, to.map(({ address, family }) => ({ address, family })));
    else callback(null, first.address, first.family);
  };
  const client = new Client(url.origin, {
    connect: {
      lookup: pinned, rejectUnauthorized: true, minVersion: 'TLSv1.2', timeout: limits.webhookDeadlineMs,
      ...(ca === undefined ? {} : { ca: [...rootCertificates, ca] }),
    },
    headersTimeout: limits.webhookDeadlineMs, maxHeaderSize: limits.webhookAnswerMaxBytes,
  });
  try {
    const { statusCode: status, body } = await client.request({
      method: 'POST', path: `${url.pathname}${url.search}`, headers: request.headers, body: request.body, signal: request.signal,
    });
    const read = body.dump({ limit: limits.webhookAnswerMaxBytes, signal: AbortSignal.any([request.signal, AbortSignal.timeout(limits.webhookAnswerMs)]) });
    // The status has decided; how the rest of the answer ends changes nothing.
    await read.catch(() => undefined);
    if (status >= 200 && status < 300) return { ok: true, status };
    return { ok: false, failure: status >= 300 && status < 400 ? 'redirect' : 'status', status };
  } catch (error) {
    if (request.signal.aborted) throw coded('aborted');
    const failure = failureOf(error);
    if (failure === undefined) throw error;
    return failed(failure);
  } finally {
    await client.destroy();
  }
};

/** The sender of deliveries for one process. */
export const createPost = (deps: PostDeps): Post => {
  let running = 0;
  return async (request) => {
    if (running >= limits.webhookPostsMax) return failed('overloaded');
    running += 1;
    try {
      const url = new URL(request.url);
      const to = await pin(url.hostname.replace(/^\[|\]$/g, ''), deps);
      if (request.signal.aborted) throw coded('aborted');
      if (typeof to === 'string') return failed(to);
      return await send(url, to, request, deps.ca);
    } finally {
      running -= 1;
    }
  };
};
