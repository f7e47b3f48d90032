/**
 * A real gateway with the platform's surface and a fake daemon behind it: the test says what the daemon answers, signs access tokens with the
 * key that the fake daemon publishes, and sees what reached it.
 */
import { randomUUID } from 'node:crypto';
import { exportJWK, generateKeyPair, SignJWT, type CryptoKey, type JWTPayload } from 'jose';
import { platformCall, type AnswerHeaders, type PlatformCall } from '../../contracts/platform.ts';
import { startEdge, type Edge, type EdgeOptions } from './gateway.ts';
import type { PeerRequest } from './peer.ts';

export const baseUrl = 'https://platform.example';

/** A request as the fake daemon got it. */
export interface Reached {
  readonly id: string;
  readonly token: string;
  readonly call: PlatformCall;
  /** Answers with a status of the route's. */
  answer(status: number, body?: unknown, headers?: AnswerHeaders | Record<string, unknown>): void;
  /** Answers as the daemon does when it refuses. */
  refuse(status: number, code: string, details?: Record<string, unknown>, message?: string): void;
  readonly request: PeerRequest;
}

export interface AccessOptions {
  readonly iss?: string;
  readonly aud?: string;
  /** Seconds from now. Default 3600. */
  readonly expiresIn?: number;
  readonly key?: CryptoKey;
  readonly kid?: string;
  readonly alg?: string;
  readonly claims?: JWTPayload;
}

export interface PlatformEdge extends Edge {
  /** What the fake daemon does with everything but `jwks`; may be replaced at any time. */
  on: (reached: Reached) => void;
  /** Requests for the public keys so far. */
  readonly keyFetches: number;
  /** All platform requests that reached the daemon, `jwks` left out. */
  readonly reached: readonly Reached[];
  /** An access token of the platform. */
  access(sub: string, options?: AccessOptions): Promise<string>;
  /** Makes a key; published together with all others from now on. */
  newKey(kid: string): Promise<CryptoKey>;
  /** What the daemon answers for its keys from now on: undefined = the keys it has. */
  failKeys(fail: ((request: PeerRequest) => void) | undefined): void;
  /** Signs anything with the platform's key. */
  sign(claims: JWTPayload, options?: { readonly key?: CryptoKey; readonly kid?: string }): Promise<string>;
}

/** Its gateway serves the platform at `baseUrl` with buckets that no test meets by accident. */
export const startPlatformEdge = async (options: EdgeOptions = {}): Promise<PlatformEdge> => {
  const keys = new Map<string, { readonly jwk: object; readonly key: CryptoKey }>();
  const newKey = async (kid: string): Promise<CryptoKey> => {
    const { privateKey, publicKey } = await generateKeyPair('ES256', { extractable: true });
    keys.set(kid, { key: privateKey, jwk: { ...(await exportJWK(publicKey)), kid, alg: 'ES256', use: 'sig' } });
    return privateKey;
  };
  const first = await newKey('platform-1');
  const reached: Reached[] = [];
  let keyFetches = 0;
  let failKeys: ((request: PeerRequest) => void) | undefined;
  const state: Pick<PlatformEdge, 'on'> = { on: (one) => one.answer(200, {}) };

  const request = (request: PeerRequest): void => {
    const id = request.route?.id ?? '';
    if (request.route?.surface !== 'platform') return request.answer(200, id === 'health' ? 'OK' : {});
    if (id === 'jwks') {
      keyFetches += 1;
      if (failKeys !== undefined) return failKeys(request);
      return request.answer(200, { headers: { 'cache-control': 'max-age=300' }, text: JSON.stringify({ keys: [...keys.values()].map(({ jwk }) => jwk) }) });
    }
    const one: Reached = {
      id, token: request.token, call: platformCall.parse(request.json), request,
      answer: (status, body, headers = {}) => request.answer(status, { headers, text: body === undefined ? '' : typeof body === 'string' ? body : JSON.stringify(body) }),
      refuse: (status, code, details, message = `refused: ${code}`) => request.answer(status, { code, message, ...(details === undefined ? {} : { details }) }),
    };
    reached.push(one);
    state.on(one);
  };
  const edge = await startEdge({
    ...options,
    config: { platform: { base_url: baseUrl }, limits: { per_user_capacity: 10_000, per_ip_capacity: 10_000 }, ...options.config },
    on: { request, ...options.on },
  });
  const sign: PlatformEdge['sign'] = (claims, { key = first, kid = 'platform-1' } = {}) => new SignJWT(claims).setProtectedHeader({ alg: 'ES256', kid }).sign(key);
  const access: PlatformEdge['access'] = async (sub, { iss = baseUrl, aud = 'troupe-platform', expiresIn = 3_600, key = first, kid = 'platform-1', claims = {} } = {}) => {
    const now = Math.floor(Date.now() / 1_000);
    return sign({
      iss, aud, sub, email: `${sub}@example.com`, orgs: [], policy: '', iat: now, exp: now + expiresIn, jti: randomUUID(), grant: 'grt_00000000000000000000000000', ...claims,
    }, { key, kid });
  };
  // Descriptors, not values: what counts must go on counting.
  return Object.defineProperties(state, Object.getOwnPropertyDescriptors({
    ...edge, reached, access, newKey, sign,
    get keyFetches(): number {
      return keyFetches;
    },
    failKeys: (fail: ((request: PeerRequest) => void) | undefined): void => {
      failKeys = fail;
    },
  })) as PlatformEdge;
};
