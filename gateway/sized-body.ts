/**
 * The body of an answer whose length was announced (Content-Length), written in pieces.
 *
 * Guarantees: what the client does not take at once waits here, no more than the stream's credit allows, and leaves before what comes later; an
 * answer with other bytes than were announced is cut, never complete.
 */

/** An answer, as the listener has it. */
export interface SizedResponse {
  /** Writes what is taken of the piece; whether all of it was, and whether with it the answer is complete. */
  tryEnd(piece: Uint8Array, total: number): [ok: boolean, done: boolean];
  getWriteOffset(): number;
  cork(write: () => void): unknown;
  close(): unknown;
}

export class SizedBody {
  readonly #response: SizedResponse;
  readonly #total: number;
  /** Copies: the pieces are not ours. */
  #waiting: Buffer[] = [];
  #given = 0;
  #state: 'open' | 'done' | 'cut' = 'open';
  #onOver: (() => void) | undefined;

  /** `total`: bytes, more than 0. */
  constructor(response: SizedResponse, total: number) {
    this.#response = response;
    this.#total = total;
  }

  /** False: the client takes nothing more for now; the bytes are taken in any case. */
  write(bytes: Uint8Array): boolean {
    if (this.#state !== 'open') return true;
    this.#given += bytes.length;
    if (this.#given > this.#total) {
      this.#cut();
      return true;
    }
    if (this.#waiting.length > 0) {
      this.#waiting.push(Buffer.from(bytes));
      return false;
    }
    return this.#put(bytes);
  }

  /** No more comes. `onOver`: all of it has left, or it was cut. */
  end(onOver: () => void): void {
    this.#onOver = onOver;
    if (this.#state === 'open' && this.#given < this.#total) this.#cut();
    else if (this.#state !== 'open') onOver();
  }

  /** The client takes bytes again; true when nothing waits any more. */
  flush(): boolean {
    for (let first = this.#waiting.shift(); first !== undefined; first = this.#waiting.shift()) if (!this.#put(first, true)) return false;
    return true;
  }

  #put(bytes: Uint8Array, again = false): boolean {
    const response = this.#response;
    const before = response.getWriteOffset();
    let ok = false;
    let done = false;
    response.cork(() => {
      [ok, done] = response.tryEnd(bytes, this.#total);
    });
    if (done) {
      this.#state = 'done';
      this.#onOver?.();
      return true;
    }
    if (ok) return true;
    const rest = Buffer.from(bytes.subarray(response.getWriteOffset() - before));
    if (again) this.#waiting.unshift(rest);
    else this.#waiting.push(rest);
    return false;
  }

  #cut(): void {
    this.#state = 'cut';
    this.#waiting = [];
    this.#response.close();
    this.#onOver?.();
  }
}
