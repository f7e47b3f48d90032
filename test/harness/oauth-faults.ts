/**
 * A provider that misbehaves on demand: OpenID Connect as Google's and the endpoints of GitHub, on one loopback server. Every answer is
 * a good one until a test changes it.
 */
import { createHash, randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair, SignJWT, type CryptoKey, type JWTPayload } from 'jose';
import type { TestScope } from './stack.ts';
import { freePort } from './port.ts';

export interface Answered {
  readonly status?: number;
  readonly json?: unknown;
  readonly text?: string;
  readonly contentType?: string;
}

export interface FaultyProvider {
  readonly url: string;
  /** Requests by path, in order. */
  readonly asked: readonly { readonly path: string; readonly form: URLSearchParams; readonly headers: IncomingMessage['headers'] }[];
  /** Resolves when the test holds; looked at after every request. */
  until(test: () => boolean): Promise<void>;
  /** What stands in place of a path's good answer; `silent` answers nothing. */
  readonly instead: Map<string, Answered | 'silent'>;
  /** Changes the ID token before it is signed. */
  claims: (claims: JWTPayload) => JWTPayload;
  /** Signs with a key that is not published. */
  forged: boolean;
  user: unknown;
  emails: unknown;
  /** What the browser brings back after a sign-in at this authorization address. */
  answerTo(authorizeUrl: string): { readonly code: string; readonly state: string };
  close(): Promise<void>;
}

interface Begun {
  readonly nonce: string | null;
  readonly challenge: string | null;
  readonly clientId: string | null;
}

export const startFaultyProvider = async (scope: TestScope): Promise<FaultyProvider> => {
  const good = await generateKeyPair('RS256');
  const other = await generateKeyPair('RS256');
  const jwk = { ...await exportJWK(good.publicKey), kid: 'one', alg: 'RS256', use: 'sig' };
  const asked: { readonly path: string; readonly form: URLSearchParams; readonly headers: IncomingMessage['headers'] }[] = [];
  const codes = new Map<string, Begun>();
  const looks = new Set<() => void>();
  const provider = {
    url: '', asked, instead: new Map<string, Answered | 'silent'>(), claims: (claims: JWTPayload) => claims, forged: false,
    user: { id: 4_711, login: 'mona', name: 'Mona Lisa' }, emails: [{ email: 'mona@example.com', primary: true, verified: true }],
    until: (test: () => boolean): Promise<void> => new Promise((resolve) => {
      const look = (): void => {
        if (!test()) return;
        looks.delete(look);
        resolve();
      };
      looks.add(look);
      look();
    }),
    answerTo(authorizeUrl: string) {
      const query = new URL(authorizeUrl).searchParams;
      const code = randomUUID();
      codes.set(code, { nonce: query.get('nonce'), challenge: query.get('code_challenge'), clientId: query.get('client_id') });
      return { code, state: query.get('state') ?? '' };
    },
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };

  const tokens = async (form: URLSearchParams): Promise<Answered> => {
    const code = form.get('code') ?? '';
    const begun = codes.get(code);
    codes.delete(code);
    const challenge = createHash('sha256').update(form.get('code_verifier') ?? '').digest('base64url');
    if (begun === undefined || begun.challenge !== challenge) return { status: 400, json: { error: 'invalid_grant', error_description: 'no' } };
    const payload = provider.claims({
      iss: provider.url, aud: begun.clientId ?? '', sub: 'sub-1', email: 'mona@example.com', email_verified: true, name: 'Mona Lisa',
      iat: Math.floor(Date.now() / 1_000), exp: Math.floor(Date.now() / 1_000) + 600, ...(begun.nonce === null ? {} : { nonce: begun.nonce }),
    });
    const key: CryptoKey = provider.forged ? other.privateKey : good.privateKey;
    const idToken = await new SignJWT(payload).setProtectedHeader({ alg: 'RS256', kid: 'one' }).sign(key);
    return { json: { access_token: 'provider-access-token-Kd93', token_type: 'bearer', ...(begun.nonce === null ? {} : { id_token: idToken }) } };
  };

  const answerOf = async (path: string, form: URLSearchParams): Promise<Answered> => {
    switch (path) {
      case '/.well-known/openid-configuration': return { json: {
        issuer: provider.url, authorization_endpoint: `${provider.url}/authorize`, token_endpoint: `${provider.url}/token`, jwks_uri: `${provider.url}/keys`,
        response_types_supported: ['code'], subject_types_supported: ['public'], id_token_signing_alg_values_supported: ['RS256'],
      } };
      case '/keys': return { json: { keys: [jwk] } };
      case '/token': return tokens(form);
      case '/user': return { json: provider.user };
      case '/user/emails': return { json: provider.emails };
      default: return { status: 404, json: {} };
    }
  };

  const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(Buffer.from(chunk));
    const path = request.url ?? '';
    const form = new URLSearchParams(Buffer.concat(chunks).toString('utf8'));
    asked.push({ path, form, headers: request.headers });
    for (const look of looks) look();
    const instead = provider.instead.get(path);
    if (instead === 'silent') return;
    const { status = 200, json, text, contentType = 'application/json' } = instead ?? await answerOf(path, form);
    response.writeHead(status, { 'content-type': contentType }).end(text ?? JSON.stringify(json));
  };
  const server = createServer((request, response) => {
    serve(request, response).catch((error: unknown) => response.destroy(error instanceof Error ? error : undefined));
  });
  server.listen(await freePort(), '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  provider.url = `http://127.0.0.1:${port}`;
  scope.after(async () => { if (server.listening) await provider.close(); });
  return provider;
};
