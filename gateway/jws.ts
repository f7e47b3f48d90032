/**
 * Compact JWS of two algorithms, checked and made in one go on the calling thread (RFC 7515, 7518, 8725).
 *
 * Synchronous on purpose: check of the address bucket, verification and taking from the bucket happen without another
 * request in between, so the limits of unverified requests are exact; and a remembered token costs no promise.
 * Guarantees: the caller chooses the algorithm, the token never does; ES256 signatures are exactly 64 bytes (r | s);
 * `crit` is refused (nothing critical is understood here); only canonical base64url without padding is read.
 */
import { createHmac, sign, timingSafeEqual, verify, type KeyObject } from 'node:crypto';

export interface Jws {
  readonly alg: string;
  readonly kid: string | undefined;
  /** The payload as JSON; claims are not checked here. */
  readonly claims: Readonly<Record<string, unknown>>;
  readonly signed: Buffer;
  readonly signature: Buffer;
}

const shape = /^([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)$/;

const decode = (part: string): Buffer | undefined => {
  const bytes = Buffer.from(part, 'base64url');
  return bytes.toString('base64url') === part ? bytes : undefined;
};

const readObject = (part: string): Record<string, unknown> | undefined => {
  const bytes = decode(part);
  if (bytes === undefined) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString('utf8'));
  } catch {
    // Not JSON: the token is malformed, which the caller learns from `undefined`.
    return undefined;
  }
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : undefined;
};

/** Takes a token apart; undefined if it is not a compact JWS with a JSON object in it. Verifies nothing. */
export const readJws = (token: string): Jws | undefined => {
  const parts = shape.exec(token);
  if (parts === null) return undefined;
  const [, head = '', body = '', tail = ''] = parts;
  const header = readObject(head);
  const claims = readObject(body);
  const signature = decode(tail);
  if (header === undefined || claims === undefined || signature === undefined) return undefined;
  const { alg, kid, crit } = header;
  if (typeof alg !== 'string' || crit !== undefined || (kid !== undefined && typeof kid !== 'string')) return undefined;
  return { alg, kid, claims, signed: Buffer.from(`${head}.${body}`, 'latin1'), signature };
};

/** `key` is an EC P-256 public key. False also when the header names another algorithm. */
export const verifyEs256 = (jws: Jws, key: KeyObject): boolean =>
  jws.alg === 'ES256' && jws.signature.length === 64 && verify('sha256', jws.signed, { key, dsaEncoding: 'ieee-p1363' }, jws.signature);

export const verifyHs256 = (jws: Jws, secret: Uint8Array): boolean =>
  jws.alg === 'HS256' && jws.signature.length === 32 && timingSafeEqual(createHmac('sha256', secret).update(jws.signed).digest(), jws.signature);

/** `key` is an EC P-256 private key. */
export const signEs256 = (header: Readonly<Record<string, string>>, claims: object, key: KeyObject): string => {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const signed = `${part({ ...header, alg: 'ES256' })}.${part(claims)}`;
  return `${signed}.${sign('sha256', Buffer.from(signed, 'latin1'), { key, dsaEncoding: 'ieee-p1363' }).toString('base64url')}`;
};
