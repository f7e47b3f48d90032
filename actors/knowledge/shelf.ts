/**
 * Where the texts of a deployment's documents and the snapshot of its index lie.
 *
 * Guarantees of an implementation: a text is exactly what was put under its `ref` (never used twice, so a text never changes), or undefined; `load` gives
 * one whole snapshot that `save` was given, or undefined. Bounded: what is put or read is in memory, a text at most
 * `limits.knowledgeDocumentMaxBytes`, a snapshot at most `limits.knowledgeSnapshotMaxBytes`. Both are packed by whoever puts them.
 */
import { createHash } from 'node:crypto';
import { promisify } from 'node:util';
import { deflateRaw, inflateRaw } from 'node:zlib';
import { limits } from '../../contracts/limits.ts';

export interface Shelf {
  put(ref: string, bytes: Uint8Array): Promise<void>;
  /** Throws `journal_unavailable`. */
  get(ref: string): Promise<Uint8Array | undefined>;
  /** Nothing, if there is none. */
  drop(ref: string): Promise<void>;
  /** In place of the snapshot before. Of two at once one stays. */
  save(snapshot: Uint8Array): Promise<void>;
  load(): Promise<Uint8Array | undefined>;
}

/** The shelf of one deployment of an organization: nobody else's names reach it. */
export type Shelves = (org: string, deployment: string) => Shelf;

const compress = promisify(deflateRaw);
const expand = promisify(inflateRaw);

export const hashOfText = (content: string): string => `sha256:${createHash('sha256').update(content, 'utf8').digest('hex')}`;
export const encodeText = async (content: string): Promise<Uint8Array> => compress(Buffer.from(content, 'utf8'));
/** Undefined for bytes that are not the text of that hash. */
export const decodeText = async (bytes: Uint8Array, hash: string): Promise<string | undefined> => {
  try {
    const content = (await expand(bytes, { maxOutputLength: limits.knowledgeDocumentMaxBytes })).toString('utf8');
    return hashOfText(content) === hash ? content : undefined;
  } catch {
    // Not what was written.
    return undefined;
  }
};

/** In process memory, for tests. */
export const memoryShelves = (): Shelves => {
  const shelves = new Map<string, Shelf>();
  return (org, deployment) => {
    const key = JSON.stringify([org, deployment]);
    const found = shelves.get(key);
    if (found !== undefined) return found;
    const texts = new Map<string, Uint8Array>();
    let snapshot: Uint8Array | undefined;
    const made: Shelf = {
      put: async (ref, bytes) => { texts.set(ref, Uint8Array.from(bytes)); },
      get: async (ref) => texts.get(ref),
      drop: async (ref) => { texts.delete(ref); },
      save: async (bytes) => { snapshot = Uint8Array.from(bytes); },
      load: async () => snapshot,
    };
    shelves.set(key, made);
    return made;
  };
};
