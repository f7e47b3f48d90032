/**
 * The words of a deployment's documents, and who has them: an inverted index, ranked by BM25 (Robertson and Zaragoza 2009).
 *
 * Own, and not MiniSearch: that took 50 ms (p99) for 10,000 notes where 20 are allowed, weighs each field's words by how rare they are in that
 * field (so that a match in a title may count less than one in a text), and reads its own dump in a second.
 *
 * Guarantees
 * I1  A word's weight falls with the number of documents that have it, in whichever field (KNO-004).
 * I2  A word in a title, and after it in a tag or an alias, counts more than the same word in any text, however often it stands there (KNO-005):
 *     the text's part is below `k1 + 1`, headings and facts add at most 1, and a tag adds more than both.
 * I3  Equal scores are in the order of their ids: the same documents give the same answer, whatever way they came in.
 * A replaced document leaves its places behind, marked dead; they are swept out when a third of all is dead.
 */
import { limits } from '../../contracts/limits.ts';
import { costOf, type Hit, type IndexDocument } from './index-document.ts';
import { eachWord } from './words.ts';

/** Where a word stands in a document, besides how often in its text. */
export const fields = { title: 1 << 16, name: 1 << 17, heading: 1 << 18, fact: 1 << 19 } as const;
const tfMax = 0xffff;

const k1 = 1.2;
const b = 0.75;
const bonus = { title: 5, name: 4, heading: 0.5, fact: 0.5 } as const;
/** A word that only begins like the one asked for counts so much of it. */
const completionShare = 0.5;
const completionMinChars = 3;

/** What the words of a document are taken from. */
export interface Texts {
  readonly text: string;
  readonly headings: readonly string[];
  readonly facts: readonly string[];
}

export interface WordStats {
  readonly word: string;
  /** Its weight: the rarer, the more. */
  readonly weight: number;
}

export class Inverted {
  /** By number; a number is used once. */
  readonly documents: (IndexDocument | undefined)[] = [];
  /** Word → document numbers, each followed by where and how often. Ascending. */
  readonly places = new Map<string, number[]>();
  readonly #numbers = new Map<string, number>();
  #live = 0;
  #words = 0;
  #placesAll = 0;
  #cost = 0;

  get size(): number {
    return this.#live;
  }

  /** Bytes of memory, estimated: two numbers a place, with room to grow; a word's own string, list and entry. */
  get bytes(): number {
    return this.#cost + this.#placesAll * 20 + this.places.size * 160;
  }

  find(id: string): IndexDocument | undefined {
    const number = this.#numbers.get(id);
    return number === undefined ? undefined : this.documents[number];
  }

  /** Adds a document, in place of the one that has its id. Gives its number. */
  add(made: Omit<IndexDocument, 'words'>, texts: Texts): number {
    this.remove(made.id);
    const found = new Map<string, number>();
    let words = 0;
    eachWord(texts.text, (word) => {
      words += 1;
      const held = found.get(word) ?? 0;
      if (held < tfMax) found.set(word, held + 1);
    });
    const mark = (text: string, field: number): void => eachWord(text, (word) => { found.set(word, (found.get(word) ?? 0) | field); });
    mark(made.title, fields.title);
    for (const name of [...made.tags, ...made.aliases]) mark(name, fields.name);
    for (const heading of texts.headings) mark(heading, fields.heading);
    for (const fact of texts.facts) mark(fact, fields.fact);
    const number = this.restore({ ...made, words });
    for (const [word, where] of found) {
      const list = this.places.get(word);
      if (list === undefined) this.places.set(word, [number, where]);
      else list.push(number, where);
    }
    this.#placesAll += found.size;
    return number;
  }

  /** Puts a document of a snapshot in its place; its words come by `restorePlaces`. Gives its number. */
  restore(document: IndexDocument): number {
    const number = this.documents.push(document) - 1;
    this.#numbers.set(document.id, number);
    this.#live += 1;
    this.#words += document.words;
    this.#cost += costOf(document);
    return number;
  }

  restorePlaces(word: string, list: number[]): void {
    this.places.set(word, list);
    this.#placesAll += list.length / 2;
  }

  /** Gives its number, or undefined where there is none. */
  remove(id: string): number | undefined {
    const number = this.#numbers.get(id);
    const document = number === undefined ? undefined : this.documents[number];
    if (number === undefined || document === undefined) return undefined;
    this.documents[number] = undefined;
    this.#numbers.delete(id);
    this.#live -= 1;
    this.#words -= document.words;
    this.#cost -= costOf(document);
    return number;
  }

  /** Whether so much is dead that it should be swept out. */
  get untidy(): boolean {
    const dead = this.documents.length - this.#live;
    return dead > 256 && dead * 2 > this.#live;
  }

  /** Gives every document a number anew and drops the places of the dead. The numbers of before mean nothing then. */
  sweep(): void {
    const to = new Int32Array(this.documents.length).fill(-1);
    const kept: IndexDocument[] = [];
    for (const [number, document] of this.documents.entries()) {
      if (document === undefined) continue;
      to[number] = kept.length;
      this.#numbers.set(document.id, kept.length);
      kept.push(document);
    }
    this.documents.length = 0;
    for (const document of kept) this.documents.push(document);
    this.#placesAll = 0;
    for (const [word, list] of this.places) {
      const left: number[] = [];
      for (let i = 0; i < list.length; i += 2) {
        const number = to[list[i] ?? 0] ?? -1;
        if (number !== -1) left.push(number, list[i + 1] ?? 0);
      }
      if (left.length === 0) this.places.delete(word);
      else this.places.set(word, left);
      this.#placesAll += left.length / 2;
    }
  }

  /** Documents that are there and have the word. */
  #count(list: readonly number[]): number {
    let count = 0;
    for (let i = 0; i < list.length; i += 2) if (this.documents[list[i] ?? -1] !== undefined) count += 1;
    return count;
  }

  #weight(count: number): number {
    return Math.log(1 + (this.#live - count + 0.5) / (count + 0.5));
  }

  /** Words that begin like one that nobody has; they are looked for only then. */
  #completions(word: string): string[] {
    const found: string[] = [];
    if (word.length < completionMinChars) return found;
    for (const [other, list] of this.places) {
      if (other.startsWith(word) && this.#count(list) > 0) found.push(other);
    }
    return found.toSorted((x, y) => x.length - y.length || (x < y ? -1 : 1)).slice(0, limits.knowledgeCompletionsMax);
  }

  /** The best documents for these words, and the words as they were looked for, with their weights. */
  search(words: readonly string[], most: number): { readonly hits: Hit[]; readonly stats: WordStats[] } {
    const scores = new Float64Array(this.documents.length);
    const touched: number[] = [];
    const stats: WordStats[] = [];
    const average = this.#live === 0 ? 1 : Math.max(1, this.#words / this.#live);
    const take = (word: string, share: number): boolean => {
      const list = this.places.get(word);
      const count = list === undefined ? 0 : this.#count(list);
      if (list === undefined || count === 0) return false;
      const weight = this.#weight(count) * share;
      stats.push({ word, weight });
      for (let i = 0; i < list.length; i += 2) {
        const number = list[i] ?? 0;
        const document = this.documents[number];
        if (document === undefined) continue;
        const where = list[i + 1] ?? 0;
        const tf = where & tfMax;
        const inText = (tf * (k1 + 1)) / (tf + k1 * (1 - b + (b * document.words) / average));
        const score = weight * (inText
          + ((where & fields.title) === 0 ? 0 : bonus.title) + ((where & fields.name) === 0 ? 0 : bonus.name)
          + ((where & fields.heading) === 0 ? 0 : bonus.heading) + ((where & fields.fact) === 0 ? 0 : bonus.fact));
        if (scores[number] === 0) touched.push(number);
        scores[number] = (scores[number] ?? 0) + score;
      }
      return true;
    };
    for (const word of words) if (!take(word, 1)) for (const other of this.#completions(word)) take(other, completionShare);
    const before = (x: Hit, y: Hit): boolean => x.score > y.score || (x.score === y.score && x.document.id < y.document.id);
    // A short sorted list: `most` is at most a hundred, and few of many documents get into it.
    const hits: Hit[] = [];
    for (const number of touched) {
      const document = this.documents[number];
      if (document === undefined) continue;
      const hit = { document, score: scores[number] ?? 0 };
      const last = hits.at(-1);
      if (hits.length === most && last !== undefined && !before(hit, last)) continue;
      let at = hits.length;
      while (at > 0) {
        const other = hits[at - 1];
        if (other === undefined || before(other, hit)) break;
        at -= 1;
      }
      hits.splice(at, 0, hit);
      if (hits.length > most) hits.pop();
    }
    return { hits, stats };
  }
}
