/**
 * What a deployment's knowledge actor remembers of each document, in a form that stays small: 39 characters a document, so that 20,000 of them fit into
 * a snapshot beside everything else.
 *
 * An entry is the first 64 bits of the SHA-256 of the id, 48 of the path's, 96 of the content's, and its size in 24 bits, in base64url. Entries lie
 * sorted into 256 buckets by their first byte: adding one copies one bucket. Two documents of one deployment whose hashes meet would only be taken
 * for one another by their own owner. Pure: the same events give the same ledger.
 */
import { createHash } from 'node:crypto';
import { distinctId, slugOf } from './slug.ts';

export interface Ledger {
  readonly documents: number;
  /** Of all documents together. */
  readonly bytes: number;
  /** 256 of them. */
  readonly buckets: readonly string[];
}

export const emptyLedger = (): Ledger => ({ documents: 0, bytes: 0, buckets: Array.from({ length: 256 }, () => '') });

const idChars = 11;
const pathChars = 8;
const hashChars = 16;
const sizeChars = 4;
const pathAt = idChars;
const hashAt = pathAt + pathChars;
const sizeAt = hashAt + hashChars;
const entryChars = sizeAt + sizeChars;

const digest = (text: string): Buffer => createHash('sha256').update(text, 'utf8').digest();
const pathOf = (path: string): string => digest(path).subarray(0, 6).toString('base64url');
const hashOf = (hash: string): string => Buffer.from(hash.slice('sha256:'.length, 'sha256:'.length + 24), 'hex').toString('base64url');
const sizeOf = (size: number): string => Buffer.from([size >>> 16, (size >>> 8) & 0xff, size & 0xff]).toString('base64url');

interface Place {
  readonly bucket: number;
  readonly key: string;
  /** Of the entry in its bucket; -1 = there is none. */
  readonly at: number;
}

const find = (ledger: Ledger, id: string): Place => {
  const hash = digest(id);
  const bucket = hash[0] ?? 0;
  const key = hash.subarray(0, 8).toString('base64url');
  const entries = ledger.buckets[bucket] ?? '';
  for (let at = 0; at < entries.length; at += entryChars) if (entries.startsWith(key, at)) return { bucket, key, at };
  return { bucket, key, at: -1 };
};

const entryAt = (ledger: Ledger, { bucket, at }: Place): string | undefined => (at === -1 ? undefined : ledger.buckets[bucket]?.slice(at, at + entryChars));
const storedSize = (entry: string | undefined): number => (entry === undefined ? 0 : Buffer.from(entry.slice(sizeAt), 'base64url').readUIntBE(0, 3));

const put = (ledger: Ledger, place: Place, entry: string): readonly string[] =>
  ledger.buckets.with(place.bucket, place.at === -1
    ? `${ledger.buckets[place.bucket] ?? ''}${entry}`
    : `${ledger.buckets[place.bucket]?.slice(0, place.at) ?? ''}${entry}${ledger.buckets[place.bucket]?.slice(place.at + entryChars) ?? ''}`);

/** The id of a path: the one it has, else its slug, else, where another path has that, the slug with a hash. */
export const idFor = (ledger: Ledger, path: string): string => {
  const own = pathOf(path);
  const distinct = distinctId(path);
  if (entryAt(ledger, find(ledger, distinct))?.startsWith(own, pathAt) === true) return distinct;
  const slug = slugOf(path);
  const holder = entryAt(ledger, find(ledger, slug));
  return holder === undefined || holder.startsWith(own, pathAt) ? slug : distinct;
};

/** Whether exactly this content of this path is there. */
export const isKnown = (ledger: Ledger, id: string, path: string, hash: string): boolean =>
  entryAt(ledger, find(ledger, id))?.startsWith(pathOf(path) + hashOf(hash), pathAt) === true;

export const holds = (ledger: Ledger, id: string): boolean => find(ledger, id).at !== -1;

/** Bytes of the document of that id; 0 = there is none. */
export const sizeIn = (ledger: Ledger, id: string): number => storedSize(entryAt(ledger, find(ledger, id)));

export const indexed = (ledger: Ledger, e: { readonly id: string; readonly path: string; readonly hash: string; readonly size: number }): Ledger => {
  const place = find(ledger, e.id);
  const before = entryAt(ledger, place);
  return {
    documents: ledger.documents + (before === undefined ? 1 : 0),
    bytes: ledger.bytes - storedSize(before) + e.size,
    buckets: put(ledger, place, place.key + pathOf(e.path) + hashOf(e.hash) + sizeOf(e.size)),
  };
};

export const removed = (ledger: Ledger, id: string): Ledger => {
  const place = find(ledger, id);
  const before = entryAt(ledger, place);
  if (before === undefined) return ledger;
  return { documents: ledger.documents - 1, bytes: ledger.bytes - storedSize(before), buckets: put(ledger, place, '') };
};
