/**
 * Server-sent events of an answer, as values (WHATWG HTML, 9.2.6; only `data` fields, as our endpoints send them).
 *
 * Guarantee: an event that was cut off is none; one longer than `limits.chatEventMaxChars` or that is no JSON throws `upstream_error`. A
 * reader that stops early cancels the answer.
 */
import { coded } from '../../../../contracts/errors.ts';
import { limits } from '../../../../contracts/limits.ts';

const valueOf = (data: string): unknown => {
  try {
    return JSON.parse(data);
  } catch (cause) {
    throw coded('upstream_error', 'The answer cannot be read.', { cause });
  }
};

/** Complete events of a text, and what remains of it. */
const split = (text: string): { readonly events: readonly string[]; readonly rest: string } => {
  const blocks = text.replaceAll('\r\n', '\n').split('\n\n');
  const rest = blocks.pop() ?? '';
  const dataOf = (block: string): string => block.split('\n').filter((line) => line.startsWith('data:')).map((line) => line.slice('data:'.length).replace(/^ /, '')).join('\n');
  return { events: blocks.map(dataOf).filter((data) => data !== ''), rest };
};

export async function* eventsOf(body: ReadableStream<Uint8Array>): AsyncGenerator<unknown, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let waiting = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const { events, rest } = split(waiting + decoder.decode(value, { stream: true }));
      waiting = rest;
      if (waiting.length > limits.chatEventMaxChars) throw coded('upstream_error', 'The answer is longer than this page takes.');
      for (const data of events) yield valueOf(data);
    }
  } finally {
    // Of an answer that has ended, or was aborted, this asks nothing.
    await reader.cancel().catch(() => undefined);
  }
}
