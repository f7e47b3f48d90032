/**
 * Streamed text on its way into the journal: at most one `delta` call is in flight, and what arrives meanwhile forms the next.
 * So a fast model costs few commits and a slow one waits for nothing: a first write for what has arrived with its text, at most one turn of the event loop.
 *
 * Guarantee: text is written in order, once; each write names the place where it belongs, so a second writer of the same step
 * is refused. Above `limits.deltaBufferBytes` `push` waits, and the provider is not read.
 */
import { limits } from '../../contracts/limits.ts';

export interface Deltas {
  /** Takes text; resolves at once unless the buffer is full. Throws what an earlier write threw. */
  push(text: string): Promise<void>;
  /** Resolves when everything is committed. */
  flush(): Promise<void>;
}

/** Resolves when what has arrived was read. */
const readThrough = (): Promise<void> => new Promise((resolve) => { setImmediate(resolve); });

/** `write(at, text)` commits text at a position (UTF-16 units from the start of the step's text). */
export const deltas = (start: number, write: (at: number, text: string) => Promise<unknown>, maxChars: number = limits.deltaBufferBytes): Deltas => {
  let at = start;
  let waiting = '';
  let failure: { readonly error: unknown } | undefined;
  let flight: Promise<void> | undefined;
  /** Wakes the one `push` that waits for room. */
  let room = (): void => undefined;

  const run = async (): Promise<void> => {
    // What the provider's connection has brought at once becomes one commit, not two.
    await readThrough();
    try {
      while (waiting !== '') {
        const text = waiting.slice(0, maxChars);
        waiting = waiting.slice(text.length);
        if (waiting.length < maxChars) room();
        await write(at, text);
        at += text.length;
      }
    } catch (error) {
      failure = { error };
    } finally {
      flight = undefined;
      room();
    }
  };
  const check = (): void => {
    if (failure !== undefined) throw failure.error;
  };
  return {
    push: async (text) => {
      check();
      if (text === '') return;
      waiting += text;
      flight ??= run();
      if (waiting.length < maxChars) return;
      await new Promise<void>((resolve) => { room = resolve; });
      check();
    },
    flush: async () => {
      while (flight !== undefined) await flight;
      check();
    },
  };
};
