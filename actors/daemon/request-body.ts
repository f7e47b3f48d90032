/**
 * A request's body as it comes over the link: read like any async iterable, once, from one place.
 *
 * Guarantees: nothing comes before the first read, and never more than `limits.linkBodyWindowBytes` ahead of what was read; it ends only when
 * the gateway has said that it is complete, and with an error when the stream has ended before.
 */
import type { CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';

type Phase =
  /** `empty`: complete before anybody read it, as the end of a body needs no grant. */
  | { readonly name: 'unread' | 'empty' | 'open' | 'complete' | 'left' }
  | { readonly name: 'failed'; readonly error: CodedError };

export class RequestBody implements AsyncIterable<Buffer> {
  readonly #grant: (bytes: number) => void;
  #phase: Phase = { name: 'unread' };
  #pieces: Buffer[] = [];
  /** Bytes that were read and not yet granted again. */
  #owed = 0;
  #wake: (() => void) | undefined;

  /** `grant`: lets so many further bytes come. */
  constructor(grant: (bytes: number) => void) {
    this.#grant = grant;
  }

  /** The next bytes, copied here; none at all = it is complete. */
  push(bytes: Buffer): void {
    if (this.#phase.name === 'unread' && bytes.length === 0) this.#phase = { name: 'empty' };
    if (this.#phase.name !== 'open') return;
    if (bytes.length === 0) this.#phase = { name: 'complete' };
    else this.#pieces.push(Buffer.from(bytes));
    this.#wake?.();
  }

  /** No more comes; of a body that was complete nobody hears it. */
  fail(error: CodedError): void {
    if (this.#phase.name === 'empty' || this.#phase.name === 'complete' || this.#phase.name === 'left') return;
    this.#phase = { name: 'failed', error };
    this.#wake?.();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer, void, undefined> {
    if (this.#phase.name === 'failed') throw this.#phase.error;
    if (this.#phase.name === 'empty') {
      this.#phase = { name: 'left' };
      return;
    }
    if (this.#phase.name !== 'unread') throw new TypeError('A body was read twice.');
    this.#phase = { name: 'open' };
    this.#grant(limits.linkBodyWindowBytes);
    try {
      for (;;) {
        const piece = await this.#next();
        if (piece === undefined) return;
        yield piece;
        this.#owed += piece.length;
        if (this.#owed < limits.linkBodyWindowBytes / 4) continue;
        this.#grant(this.#owed);
        this.#owed = 0;
      }
    } finally {
      this.#pieces = [];
      this.#phase = { name: 'left' };
    }
  }

  async #next(): Promise<Buffer | undefined> {
    for (;;) {
      const piece = this.#pieces.shift();
      if (piece !== undefined) return piece;
      if (this.#phase.name === 'failed') throw this.#phase.error;
      if (this.#phase.name !== 'open') return undefined;
      await new Promise<void>((resolve) => { this.#wake = resolve; });
      this.#wake = undefined;
    }
  }
}
