/** What the daemon and its index thread say to each other. Values are copied by structured clone. */
import type { GraphAnswer, KnowledgeIndexed, KnowledgeResult } from '../../contracts/knowledge.ts';
import type { Place } from './archive.ts';

/** A document that is new or another: its event and its text. Undefined text = it is lost: what the event says of it is all there is. */
export interface Change {
  readonly event: KnowledgeIndexed;
  readonly content: string | undefined;
}

export interface DocumentFacts {
  readonly title: string;
  readonly tags: readonly string[];
  readonly aliases: readonly string[];
  readonly facts: readonly string[];
}

/** Each with its answer. `index`: key of an index. An index that is not there is empty. */
export interface ThreadAsks {
  /** Reads a snapshot into an index, in place of what it was. Undefined = it is not one. */
  readonly load: { readonly input: { readonly index: string; readonly bytes: Uint8Array }; readonly output: (Place & { readonly bytes: number; readonly documents: number }) | undefined };
  /** Removals first. Refs of texts that nothing names any more: `freed` of what was removed, `replaced` with the ref of what took its place. */
  readonly apply: {
    readonly input: { readonly index: string; readonly removed: readonly string[]; readonly changes: readonly Change[] };
    readonly output: { readonly freed: readonly string[]; readonly replaced: readonly { readonly ref: string; readonly by: string }[]; readonly bytes: number; readonly documents: number };
  };
  readonly search: { readonly input: { readonly index: string; readonly query: string; readonly limit: number }; readonly output: readonly KnowledgeResult[] };
  readonly graph: { readonly input: { readonly index: string; readonly node: string; readonly depth: number; readonly edges: boolean }; readonly output: GraphAnswer | undefined };
  readonly find: { readonly input: { readonly index: string; readonly id: string }; readonly output: KnowledgeIndexed | undefined };
  readonly save: { readonly input: { readonly index: string; readonly place: Place }; readonly output: Uint8Array };
  readonly drop: { readonly input: { readonly index: string }; readonly output: null };
  /** Titles of documents that are being posted. */
  readonly titles: { readonly input: { readonly documents: readonly { readonly path: string; readonly content: string }[] }; readonly output: readonly string[] };
  /** What is read out of one. */
  readonly read: { readonly input: { readonly path: string; readonly content: string }; readonly output: DocumentFacts };
}
export type ThreadOp = keyof ThreadAsks;

export type ThreadAsk = { [Op in ThreadOp]: { readonly id: number; readonly op: Op; readonly input: ThreadAsks[Op]['input'] } }[ThreadOp];
export type ThreadAnswer = { readonly id: number; readonly output: unknown } | { readonly id: number; readonly failure: string };
