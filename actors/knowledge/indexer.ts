/**
 * The daemon's side of its index thread: begun when it is first needed, ended when it fails or hangs, then begun anew and empty.
 *
 * Guarantees: every ask is answered, refused or failed once, at the latest after `limits.knowledgeAskMs`; at most `limits.knowledgeAsksMax` wait. When the
 * thread ends, everything it held is gone: `generation` is another number then, and who uses an index loads it again.
 */
import { Worker } from 'node:worker_threads';
import { coded, type CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { Log } from '../runtime/log.ts';
import type { ThreadAnswer, ThreadAsks, ThreadOp } from './thread-wire.ts';

export interface Indexer {
  /** Throws `overloaded` (too many wait, or the thread ended), `internal_error` (a bug in it). */
  ask<Op extends ThreadOp>(op: Op, input: ThreadAsks[Op]['input'], transfer?: readonly ArrayBuffer[]): Promise<ThreadAsks[Op]['output']>;
  /** Changes whenever what the thread held is lost. */
  readonly generation: number;
  /** Ends the thread and what it holds; the next ask begins another. */
  end(why: unknown): Promise<void>;
  close(): Promise<void>;
}

interface Waiting {
  readonly resolve: (output: unknown) => void;
  readonly reject: (error: CodedError) => void;
  readonly timer: NodeJS.Timeout;
  /** The index that is searched; undefined = this is another kind of ask. */
  readonly lane: string | undefined;
}

export interface IndexerOptions {
  readonly log: Log;
  /** Milliseconds for one ask. Default `limits.knowledgeAskMs`. */
  readonly askMs?: number;
}

export const createIndexer = ({ log, askMs = limits.knowledgeAskMs }: IndexerOptions): Indexer => {
  const waiting = new Map<number, Waiting>();
  let thread: Worker | undefined;
  let generation = 0;
  let lastId = 0;
  let closed = false;

  const end = (ended: Worker, why: unknown): void => {
    if (thread !== ended) return;
    thread = undefined;
    generation += 1;
    const left = [...waiting.values()];
    waiting.clear();
    for (const { reject, timer } of left) {
      clearTimeout(timer);
      reject(coded('overloaded', 'The knowledge index is being read again.'));
    }
    if (!closed) log.error({ err: why, waited: left.length }, 'the index thread ended; its indexes are read again');
    void ended.terminate();
  };

  const begin = (): Worker => {
    const made = new Worker(new URL('./thread.ts', import.meta.url), { resourceLimits: { maxOldGenerationSizeMb: limits.knowledgeHeapMaxMiB }, stdin: false });
    made.unref();
    made.on('message', (answer: ThreadAnswer) => {
      const one = waiting.get(answer.id);
      if (one === undefined) return;
      waiting.delete(answer.id);
      clearTimeout(one.timer);
      if ('output' in answer) {
        one.resolve(answer.output);
        return;
      }
      log.error({ failure: answer.failure }, 'the index thread failed at an ask');
      one.reject(coded('internal_error'));
    });
    made.on('error', (error) => end(made, error));
    made.on('exit', (code) => end(made, `exit ${code}`));
    return made;
  };

  const ask = <Op extends ThreadOp>(op: Op, input: ThreadAsks[Op]['input'], transfer: readonly ArrayBuffer[] = []): Promise<ThreadAsks[Op]['output']> => new Promise((resolve, reject) => {
    if (closed) {
      reject(coded('draining'));
      return;
    }
    const lane = op === 'search' || op === 'graph' ? (input as ThreadAsks['search']['input']).index : undefined;
    if (waiting.size >= limits.knowledgeAsksMax || (lane !== undefined && [...waiting.values()].filter((one) => one.lane === lane).length >= limits.knowledgeAsksOfOneMax)) {
      reject(coded('overloaded'));
      return;
    }
    const at = thread ??= begin();
    const id = ++lastId;
    // The thread does one ask at a time, so one that is late holds up all others.
    const timer = setTimeout(() => end(at, `no answer to ${op} within ${askMs} ms`), askMs);
    waiting.set(id, { resolve: resolve as (output: unknown) => void, reject, timer, lane });
    at.postMessage({ id, op, input }, [...transfer]);
  });

  return {
    ask,
    get generation() { return generation; },
    end: async (why) => {
      const ended = thread;
      if (ended !== undefined) end(ended, why);
      await ended?.terminate();
    },
    close: async () => {
      closed = true;
      const ended = thread;
      if (ended !== undefined) end(ended, 'closed');
      await ended?.terminate();
    },
  };
};
