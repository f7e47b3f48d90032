/** Splits a byte stream into lines, in constant memory: a line over the limit is refused instead of being collected. */
import { coded } from '../../contracts/errors.ts';

/** The lines of `input` without their ends; a last line without an end counts. Throws `payload_too_large` over `maxBytes`. */
export async function* readLines(input: AsyncIterable<Buffer | string>, maxBytes: number): AsyncGenerator<string> {
  let parts: Buffer[] = [];
  let held = 0;
  const line = (): string => {
    const text = Buffer.concat(parts).toString('utf8');
    parts = [];
    held = 0;
    return text.endsWith('\r') ? text.slice(0, -1) : text;
  };
  for await (const chunk of input) {
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk) : chunk;
    let from = 0;
    for (let end = bytes.indexOf(10, from); end !== -1; end = bytes.indexOf(10, from)) {
      parts.push(bytes.subarray(from, end));
      from = end + 1;
      yield line();
    }
    if (from < bytes.length) parts.push(bytes.subarray(from));
    held += bytes.length - from;
    if (held > maxBytes) throw coded('payload_too_large', `A line may have ${maxBytes} bytes.`);
  }
  if (held > 0) yield line();
}
