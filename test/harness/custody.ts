/**
 * A stack with everything that custody needs, and a client of its routes: capabilities by bootstrap or signed with the gateway's
 * own key, so that a test can hold one that the gateway would never give.
 */
import { createPrivateKey, type KeyObject } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { Agent } from 'node:https';
import { join } from 'node:path';
import { SignJWT, type JWTPayload } from 'jose';
import { z } from 'zod';
import { audiences, bootstrapScopes } from '../../contracts/capability.ts';
import { callEdge, type Reply } from './gateway.ts';
import { passkeyHolder, type PasskeyHolder } from './passkey.ts';
import { startStack, type StackOptions, type TestStack } from './stack.ts';

export const rpId = 'localhost';
export const origin = 'https://localhost:8443';

export interface CustodyEdge {
  readonly stack: TestStack;
  readonly capabilityKey: KeyObject;
  /** POST /custody/<route>; the body gets `user_id` = the token's holder unless it has one. */
  call(route: string, token: string | undefined, body: object): Promise<Reply>;
  /** Any path. */
  post(path: string, token: string | undefined, body: unknown): Promise<Reply>;
  get(path: string, token: string): Promise<Reply>;
  /** A bootstrap capability. */
  capability(sub: string, org?: string): Promise<string>;
  /** Signed with the gateway's key unless another is given, with these claims. */
  forge(sub: string, claims?: JWTPayload, key?: KeyObject): Promise<string>;
  /** A fresh challenge of the user, standard base64. */
  challenge(sub: string, token: string): Promise<string>;
  passkey(): PasskeyHolder;
}

/** A text field of a 200. */
export const textOf = (reply: Reply, field: string): string => {
  if (reply.status !== 200) throw new Error(`${reply.status} ${reply.text}`);
  return z.record(z.string(), z.unknown()).transform((body) => z.string().parse(body[field])).parse(reply.json);
};

/** `[status, error]` of a refusal. */
export const refusalOf = (reply: Reply): [number, unknown] => [reply.status, z.object({ error: z.string() }).safeParse(reply.json).data?.error];

/** The caller stops `stack`. */
export const startCustody = async (options: StackOptions = {}): Promise<CustodyEdge> => {
  const wide = { per_user_capacity: 10_000, per_user_refill_per_sec: 10_000, per_ip_capacity: 10_000, per_ip_refill_per_sec: 10_000 };
  const stack = await startStack(undefined, { ...options, daemon: { webauthn: { rp_id: rpId, origins: [origin] }, log_level: 'trace' }, gateway: { limits: wide, log_level: 'trace' } });
  const capabilityKey = createPrivateKey(await readFile(join(stack.folder, 'capability.key'), 'utf8'));
  const agent = new Agent({ ca: stack.ca, keepAlive: false });
  let turn = 0;
  const port = (): number => stack.gateways[turn++ % stack.gateways.length]?.port ?? 0;
  const post: CustodyEdge['post'] = (path, token, body) => callEdge(port(), agent, path, { method: 'POST', body, ...(token === undefined ? {} : { token }) });
  const call: CustodyEdge['call'] = (route, token, body) => post(`/custody/${route}`, token, body);
  return {
    stack, capabilityKey, post, call,
    get: (path, token) => callEdge(port(), agent, path, { token }),
    capability: async (sub, org) => textOf(await post('/troupe/v1/auth/bootstrap', await stack.token(sub, org), { user_id: sub }), 'access_token'),
    forge: (sub, claims = {}, key = capabilityKey) => {
      const nowSec = Math.floor(Date.now() / 1_000);
      return new SignJWT({
        iss: stack.audience, aud: audiences.custody, sub, org: `u-${sub}`, iat: nowSec, nbf: nowSec - 1, exp: nowSec + 600, jti: 'j', scope: [...bootstrapScopes], ...claims,
      }).setProtectedHeader({ alg: 'ES256' }).sign(key);
    },
    challenge: async (sub, token) => textOf(await call('challenge', token, { user_id: sub }), 'challenge_b64'),
    passkey: () => passkeyHolder({ origin, rpId }),
  };
};
