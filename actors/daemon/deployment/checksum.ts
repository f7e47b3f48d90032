/** An event's checksum: SHA-256, hex, of its payload in canonical JSON (JRN-003). */
import { createHash } from 'node:crypto';
import { canonicalJson } from '../../../contracts/canonical.ts';

/** Throws `invalid_argument` for what JSON cannot hold. */
export const checksumOf = (payload: Readonly<Record<string, unknown>>): string => createHash('sha256').update(canonicalJson(payload)).digest('hex');
