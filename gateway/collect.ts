/** A request's body, read whole: for routes whose bodies are small (contracts, `bodyMaxBytes`). What it holds is counted (bodies.ts). */
import { coded } from '../contracts/errors.ts';
import type { HeldBody } from './bodies.ts';
import type { BodyConnection } from './body-source.ts';

/** Reads a body of at most `maxBytes`. Rejects with `payload_too_large`, `overloaded` (too much is held), or `aborted` when the client has gone. */
export const collect = (res: Pick<BodyConnection, 'onData'>, maxBytes: number, held: HeldBody, gone: AbortSignal): Promise<Uint8Array> =>
  new Promise((resolve, reject) => {
    let chunks: Buffer[] = [];
    let bytes = 0;
    gone.addEventListener('abort', () => {
      chunks = [];
      reject(coded('aborted'));
    }, { once: true });
    res.onData((chunk, isLast) => {
      bytes += chunk.byteLength;
      if (bytes > maxBytes) {
        chunks = [];
        reject(coded('payload_too_large'));
        return;
      }
      if (!held.take(chunk.byteLength)) {
        chunks = [];
        reject(coded('overloaded'));
        return;
      }
      // Copied: uWebSockets.js takes the chunk back when this call returns.
      if (chunk.byteLength > 0) chunks.push(Buffer.from(new Uint8Array(chunk)));
      if (isLast) resolve(chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks));
    });
  });

