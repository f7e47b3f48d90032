/** A document as an index keeps it: what answers need, and its text, compressed, for excerpts. */
import { deflateRawSync, inflateRawSync } from 'node:zlib';
import type { KnowledgeIndexed } from '../../contracts/knowledge.ts';
import type { Link } from './markdown.ts';

export interface IndexDocument extends Readonly<KnowledgeIndexed> {
  readonly tags: readonly string[];
  readonly aliases: readonly string[];
  readonly links: readonly Link[];
  /** Words of its text. */
  readonly words: number;
  /** `packText` of the text. */
  readonly packed: Uint8Array;
}

/** What a search gives, before anybody asked for its excerpt. */
export interface Hit {
  readonly document: IndexDocument;
  readonly score: number;
}

/** Excerpts come from the first so many characters of a text. All of it is searched. */
const keptMaxChars = 64 * 1024;
/** Little work for most of the gain. */
const level = 3;

/** Copied: what zlib gives is a view of a buffer that is many times as large. */
export const packText = (text: string): Uint8Array => Uint8Array.from(deflateRawSync(text.slice(0, keptMaxChars), { level }));
export const unpackText = (packed: Uint8Array): string => inflateRawSync(packed, { maxOutputLength: keptMaxChars * 4 }).toString('utf8');

/** Bytes of memory that a document costs besides its words, estimated. */
export const costOf = (document: IndexDocument): number =>
  600 + document.packed.byteLength + 2 * (document.path.length + document.title.length + document.id.length)
  + 120 * document.links.length + 60 * (document.tags.length + document.aliases.length);
