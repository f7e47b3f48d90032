/**
 * The signature of a delivery: header `Troupe-Signature: t=<unix seconds>,v1=<hex>`, v1 = HMAC-SHA256 of `<t>.<body>` (AUD-014).
 *
 * The secret is derived, never stored: HKDF-SHA256 (RFC 5869) of the daemon's master key, one per organization and version. The HMAC key
 * is the text shown to the organization (`whsec_…`) as UTF-8, so that a receiver needs no decoding.
 */
import { createHmac, hkdfSync, timingSafeEqual, type KeyObject } from 'node:crypto';
import { limits } from '../../contracts/limits.ts';

const secretBytes = 32;
const info = 'troupe webhook v1';

/** An organization's secret, `whsec_` and 43 characters of base64url. `version` from 1; a new version is another secret. */
export const webhookSecret = (masterKey: KeyObject, orgId: string, version: number): string =>
  `whsec_${Buffer.from(hkdfSync('sha256', masterKey, `${orgId}.${version}`, info, secretBytes)).toString('base64url')}`;

const mac = (secret: string, atSec: number, body: string): Buffer => createHmac('sha256', secret).update(`${atSec}.${body}`).digest();

/** The header's value for a body sent at a time, Unix seconds. One `v1` for each secret, in their order: the one in force first, then those it has replaced. */
export const signature = (secrets: readonly string[], atSec: number, body: string): string =>
  [`t=${atSec}`, ...secrets.map((secret) => `v1=${mac(secret, atSec, body).toString('hex')}`)].join(',');

export interface Signed {
  readonly secret: string;
  /** Value of the header. */
  readonly header: string;
  /** The body exactly as received. */
  readonly body: string;
  /** The receiver's time, Unix seconds. */
  readonly nowSec: number;
  /** Seconds the header's time may differ from it. Default `limits.webhookSignatureSec`. */
  readonly toleranceSec?: number;
}

const canonical = /^(?:0|[1-9]\d{0,14})$/;

/** What a receiver does: true if the header is of this secret and body, and fresh. Any of several `v1` may match; unknown parts are ignored. */
export const verifySignature = ({ secret, header, body, nowSec, toleranceSec = limits.webhookSignatureSec }: Signed): boolean => {
  const parts = header.split(',').map((part): [string, string] => {
    const at = part.indexOf('=');
    return [part.slice(0, at), part.slice(at + 1)];
  });
  const times = parts.filter(([name]) => name === 't');
  const [first] = times;
  if (first === undefined || times.length > 1 || !canonical.test(first[1])) return false;
  const atSec = Number(first[1]);
  if (Math.abs(nowSec - atSec) > toleranceSec) return false;
  const expected = mac(secret, atSec, body);
  return parts.some(([name, value]) => name === 'v1' && /^[0-9a-f]{64}$/.test(value) && timingSafeEqual(Buffer.from(value, 'hex'), expected));
};
