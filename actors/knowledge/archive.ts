/**
 * An index as bytes, and back: its snapshot.
 *
 * Guarantees: an index that was read answers as the one that was written; bytes that are not a whole snapshot of this version give undefined, as if
 * there were none (a snapshot is an optimisation: the journal and the texts are the truth). Layout, deflated behind a mark and a SHA-256:
 * length and JSON of the documents, their packed texts, then for each word its text, the number of its places, and of each place how far its document
 * is from the one before and where the word stands. Numbers are in groups of seven bits, the lowest first.
 */
import { createHash } from 'node:crypto';
import { promisify } from 'node:util';
import { deflate, inflate } from 'node:zlib';
import { z } from 'zod';
import { relation } from '../../contracts/knowledge.ts';
import { limits } from '../../contracts/limits.ts';
import type { IndexDocument } from './index-document.ts';
import { Inverted } from './inverted.ts';

const mark = Buffer.from('TRPKNO1\n');
const hashBytes = 32;
const level = 1;
/**
 * Bytes that zlib gives at once: each such piece is a turn of the thread's event loop, and other asks may be served between two of them.
 */
const pieceBytes = 16 * 1024 * 1024;

/** The journal up to which it is the index: sequence and hash of the last message, and the number of its last event. */
export interface Place {
  readonly seq: number;
  readonly number: number;
}

const head = z.object({
  seq: z.int().nonnegative(), number: z.int().nonnegative(), words: z.int().nonnegative(),
  documents: z.array(z.tuple([
    z.string(), z.string(), z.string(), z.string(), z.int(), z.string(), z.array(z.string()), z.array(z.string()), z.array(z.tuple([z.string(), relation])), z.int(), z.int(),
  ])),
});

/** Writes numbers and bytes one after another into a buffer that grows. */
class Sink {
  #bytes = Buffer.allocUnsafe(1 << 20);
  #at = 0;

  #room(more: number): void {
    if (this.#at + more <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafe(Math.max(this.#bytes.length * 2, this.#at + more));
    this.#bytes.copy(larger, 0, 0, this.#at);
    this.#bytes = larger;
  }

  number(value: number): void {
    this.#room(8);
    let left = value;
    while (left > 0x7f) {
      this.#bytes[this.#at++] = (left & 0x7f) | 0x80;
      left >>>= 7;
    }
    this.#bytes[this.#at++] = left;
  }

  bytes(value: Uint8Array): void {
    this.#room(value.byteLength);
    this.#bytes.set(value, this.#at);
    this.#at += value.byteLength;
  }

  text(value: string): void {
    const bytes = Buffer.from(value, 'utf8');
    this.number(bytes.length);
    this.bytes(bytes);
  }

  end(): Buffer {
    return this.#bytes.subarray(0, this.#at);
  }
}

/** Reads the same; past the end it throws a RangeError. */
class Source {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  number(): number {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = this.#bytes[this.#at++];
      if (byte === undefined || shift > 28) throw new RangeError('not a number');
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value;
    }
  }

  bytes(length: number): Buffer {
    const end = this.#at + length;
    if (end > this.#bytes.length) throw new RangeError('past the end');
    const part = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return part;
  }

  text(): string {
    return this.bytes(this.number()).toString('utf8');
  }
}

const compress = promisify(deflate);
const expand = promisify(inflate);

/** The snapshot of an index that stands at a place of its journal. Tidies the index up first. */
export const writeArchive = async (index: Inverted, { seq, number }: Place): Promise<Uint8Array> => {
  if (index.documents.length > index.size) index.sweep();
  const documents = index.documents.filter((document) => document !== undefined);
  const sink = new Sink();
  sink.text(JSON.stringify({
    seq, number, words: index.places.size,
    documents: documents.map((d) => [d.id, d.path, d.title, d.hash, d.size, d.ref, d.tags, d.aliases, d.links.map(({ name, relation: to }) => [name, to]), d.words, d.packed.byteLength]),
  }));
  for (const { packed } of documents) sink.bytes(packed);
  for (const [word, list] of index.places) {
    sink.text(word);
    sink.number(list.length / 2);
    let before = 0;
    for (let i = 0; i < list.length; i += 2) {
      const document = list[i] ?? 0;
      sink.number(document - before);
      sink.number(list[i + 1] ?? 0);
      before = document;
    }
  }
  const plain = sink.end();
  const body = await compress(plain, { level, chunkSize: Math.min(pieceBytes, Math.max(1_024, plain.length)) });
  return Buffer.concat([mark, createHash('sha256').update(body).digest(), body]);
};

/** Undefined = not a whole snapshot of this version. */
export const readArchive = async (bytes: Uint8Array): Promise<{ readonly index: Inverted; readonly place: Place } | undefined> => {
  const whole = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const body = whole.subarray(mark.length + hashBytes);
  if (!whole.subarray(0, mark.length).equals(mark) || !createHash('sha256').update(body).digest().equals(whole.subarray(mark.length, mark.length + hashBytes))) return undefined;
  try {
    const source = new Source(await expand(body, { maxOutputLength: limits.knowledgeSnapshotMaxBytes * 4, chunkSize: Math.min(pieceBytes, Math.max(1_024, body.length * 4)) }));
    const { documents, words, seq, number } = head.parse(JSON.parse(source.text()));
    const index = new Inverted();
    for (const [id, path, title, hash, size, ref, tags, aliases, links, count, packedBytes] of documents) {
      const document: IndexDocument = {
        id, path, title, hash, size, ref, tags, aliases, words: count, links: links.map(([name, to]) => ({ name, relation: to })),
        // Copied: a view would keep the whole snapshot in memory.
        packed: Uint8Array.from(source.bytes(packedBytes)),
      };
      index.restore(document);
    }
    for (let i = 0; i < words; i++) {
      const word = source.text();
      const list: number[] = [];
      let before = 0;
      for (let left = source.number(); left > 0; left--) {
        before += source.number();
        list.push(before, source.number());
      }
      index.restorePlaces(word, list);
    }
    return { index, place: { seq, number } };
  } catch (error) {
    if (error instanceof RangeError || error instanceof z.ZodError || error instanceof SyntaxError) return undefined;
    throw error;
  }
};
