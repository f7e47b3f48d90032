/**
 * A Tier 1 identity provider on a real HTTP port: ES256 keys, a JWKS that counts, fails, stalls and rotates, and tokens of
 * every good and bad kind. For tests of the gateway. Signs with `jose`, so the gateway's own JWS code meets another's.
 */
import { createServer, type Server, type ServerResponse } from 'node:http';
import { exportJWK, generateKeyPair, SignJWT, type CryptoKey, type JWK, type JWTPayload } from 'jose';
import { freePort } from './port.ts';

export interface IssuerKey {
  readonly kid: string;
  readonly privateKey: CryptoKey;
  readonly publicJwk: JWK;
}

export interface TokenOptions {
  /** Default: the gateway's default name. */
  readonly aud?: string | string[];
  /** Seconds from now. Default 3600. */
  readonly expiresIn?: number;
  /** Seconds from now. */
  readonly notBefore?: number;
  readonly org?: string;
  /** Default: the current key. */
  readonly key?: IssuerKey;
  /** Overrides the key's id in the header; null = no kid. */
  readonly kid?: string | null;
  readonly claims?: JWTPayload;
}

export type Fault = 'none' | 'status' | 'garbage' | 'stall' | 'reset' | 'large';

export interface Issuer {
  readonly jwksUrl: string;
  /** JWKS requests so far. */
  readonly fetches: number;
  readonly key: IssuerKey;
  token(sub: string, options?: TokenOptions): Promise<string>;
  /** Makes a key without publishing it. */
  makeKey(kid: string): Promise<IssuerKey>;
  /** Publishes exactly these keys; the last signs. */
  publish(...keys: IssuerKey[]): void;
  /** Publishes further JWKs as they are. */
  publishRaw(...keys: JWK[]): void;
  /** What the JWKS address does from now on. */
  fail(fault: Fault): void;
  /** Holds answers back until `release`; gives the number waiting through `waiting`. */
  hold(): { release(): void; readonly waiting: Promise<void> };
  stop(): Promise<void>;
}

export const makeIssuerKey = async (kid: string): Promise<IssuerKey> => {
  const { privateKey, publicKey } = await generateKeyPair('ES256', { extractable: true });
  return { kid, privateKey, publicJwk: { ...(await exportJWK(publicKey)), kid, alg: 'ES256', use: 'sig' } };
};

export const startIssuer = async (audience = 'troupe-gateway'): Promise<Issuer> => {
  let keys: IssuerKey[] = [await makeIssuerKey('key-1')];
  let raw: JWK[] = [];
  let fetches = 0;
  let fault: Fault = 'none';
  let held: { answers: (() => void)[]; arrived: () => void } | undefined;

  const answer = (response: ServerResponse): void => {
    switch (fault) {
      case 'none':
        response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ keys: [...keys.map((key) => key.publicJwk), ...raw] }));
        return;
      case 'status':
        response.writeHead(500).end('no');
        return;
      case 'garbage':
        response.writeHead(200, { 'content-type': 'application/json' }).end('{"keys": "none"');
        return;
      case 'large':
        response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ keys: [], pad: 'x'.repeat(1024 * 1024) }));
        return;
      case 'reset':
        response.socket?.destroy();
        return;
      case 'stall':
        return;
    }
  };
  const server: Server = createServer((_request, response) => {
    fetches += 1;
    if (held === undefined) return answer(response);
    held.answers.push(() => answer(response));
    held.arrived();
  });
  // A port nobody else gets when the issuer is gone.
  const port = await freePort();
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  const address = server.address();
  if (typeof address !== 'object' || address === null) throw new TypeError('The issuer has no port.');
  const current = (): IssuerKey => {
    const key = keys.at(-1);
    if (key === undefined) throw new TypeError('The issuer has no key.');
    return key;
  };
  return {
    jwksUrl: `http://127.0.0.1:${address.port}/jwks.json`,
    get fetches() {
      return fetches;
    },
    get key() {
      return current();
    },
    token: (sub, options = {}) => {
      const key = options.key ?? current();
      const nowSec = Math.floor(Date.now() / 1_000);
      const { kid = key.kid } = options;
      const claims: JWTPayload = {
        sub, aud: options.aud ?? audience, iat: nowSec, exp: nowSec + (options.expiresIn ?? 3_600),
        ...(options.org === undefined ? {} : { org: options.org }),
        ...(options.notBefore === undefined ? {} : { nbf: nowSec + options.notBefore }), ...options.claims,
      };
      return new SignJWT(claims).setProtectedHeader({ alg: 'ES256', ...(kid === null ? {} : { kid }) }).sign(key.privateKey);
    },
    makeKey: makeIssuerKey,
    publish: (...next) => {
      keys = next;
    },
    publishRaw: (...next) => {
      raw = next;
    },
    fail: (next) => {
      fault = next;
    },
    hold: () => {
      let arrived = (): void => undefined;
      const waiting = new Promise<void>((resolve) => {
        arrived = resolve;
      });
      const mine = { answers: [] as (() => void)[], arrived };
      held = mine;
      return {
        waiting,
        release: () => {
          held = undefined;
          for (const give of mine.answers.splice(0)) give();
        },
      };
    },
    stop: () => new Promise((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    }),
  };
};
