/**
 * Encodes, decodes and hashes a journal message (contracts/event.ts `Commit`).
 *
 * Guarantee: `decodeCommit(encodeCommit(c))` equals `c`, and the bytes of a commit built from parts equal those of the
 * same commit encoded whole. The hash is SHA-256 over the message's bytes, so it needs no canonical form.
 * It does not check the chain; fold.ts does.
 */
import { hash } from 'node:crypto';
import type { Commit, StoredEvent } from '../../contracts/event.ts';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { unpack } from './pack.ts';

export type CommitHead = Omit<Commit, 'ev'>;

/** A commit around events that are JSON already: each part is one or more events, comma separated, without brackets. */
export const encodeParts = (c: CommitHead, parts: readonly string[]): Uint8Array => {
  const events = parts.length === 1 ? parts[0] : parts.join(',');
  // Every field is a number or hex, so the head needs no escaping; the order of keys is that of `encodeCommit`.
  return Buffer.from(
    `{"v":1,"e":${c.e},"n":${c.n},"f":${c.f},"c":${c.c},"m":${c.m},"p":${c.p},"h":"${c.h}","t":${c.t},"ev":[${events}]}`,
  );
};

/** Events as a part for `encodeParts`. Throws a TypeError for what JSON cannot hold (a bigint, a cycle). */
export const encodeEvents = (events: readonly StoredEvent[]): string => JSON.stringify(events).slice(1, -1);

export const encodeCommit = (c: Commit): Uint8Array => encodeParts(c, c.ev.length === 0 ? [''] : [encodeEvents(c.ev)]);

/** SHA-256 of a message, hex: the `h` of the commit after it. */
export const hashOf = (data: Uint8Array): string => hash('sha256', data, 'hex');

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);
const isCount = (value: unknown): value is number => typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;

const isEvent = (value: unknown): value is StoredEvent =>
  isObject(value) && typeof value['id'] === 'string' && typeof value['k'] === 'string' && isObject(value['d'])
  && (value['v'] === undefined || isCount(value['v'])) && (value['t'] === undefined || isCount(value['t']));

const isCommit = (value: unknown): value is Commit =>
  isObject(value) && value['v'] === 1
  && isCount(value['e']) && isCount(value['n']) && isCount(value['f']) && isCount(value['c']) && isCount(value['m'])
  && isCount(value['p']) && typeof value['h'] === 'string' && isCount(value['t'])
  && Array.isArray(value['ev']) && value['ev'].every(isEvent);

/** Of a message, packed or not. Throws `journal_unreadable` for bytes that are not a commit of version 1. */
export const decodeCommit = (data: Uint8Array): Commit => {
  const plain = unpack(data, limits.turnEventsMaxBytes + limits.commitMaxBytes);
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(plain.buffer, plain.byteOffset, plain.byteLength).toString('utf8'));
  } catch (cause) {
    throw coded('journal_unreadable', 'A journal message is not JSON.', { cause });
  }
  if (!isCommit(value)) throw coded('journal_unreadable', 'A journal message is not a commit.');
  return value;
};
