/**
 * One answer of the platform over a link stream (contracts/platform.ts, `streamHead`): head, body in pieces against credit, end.
 *
 * Guarantees: nothing is sent without credit, and while the gateway does not take bytes; who writes waits for both, not longer than
 * `limits.chatStallMs` without a byte taken. A refusal before the
 * head is an error answer with its status; after it the body can only end or be cut. The signal fires when the client has gone.
 * The request's own body, where its route streams it, is `body`.
 */
import { closeCodes } from '../../../contracts/close.ts';
import { coded } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import type { AnswerHeaders, StreamHead } from '../../../contracts/platform.ts';
import type { Stream } from '../link-stream.ts';
import { RequestBody } from '../request-body.ts';

export class StreamAnswer {
  readonly #stream: Stream;
  readonly #gone = new AbortController();
  readonly #onOver: () => void;
  /** The request's body; nothing of it comes before it is read. */
  readonly body: RequestBody;
  #begun = false;
  #over = false;
  /** Wakes who waits for room. */
  #room: (() => void) | undefined;
  #silence: NodeJS.Timeout | undefined;
  #pace: (slow: boolean) => void = () => undefined;

  /** `onOver`: it has ended, by either side. */
  constructor(stream: Stream, onOver: () => void) {
    this.#stream = stream;
    this.#onOver = onOver;
    this.body = new RequestBody((bytes) => stream.grant(bytes));
    stream.listen({
      onBody: (bytes) => this.body.push(bytes),
      // The client of an answer says nothing.
      onText: () => undefined,
      onRoom: () => this.onRoom(),
      onEnd: () => {
        this.#finish();
        this.body.fail(coded('aborted'));
        this.#gone.abort(coded('aborted'));
        this.#room?.();
      },
    });
  }

  /** Fires when nobody takes the answer any more. */
  get signal(): AbortSignal {
    return this.#gone.signal;
  }

  /** Something of it was sent: its status cannot change any more. */
  get begun(): boolean {
    return this.#begun;
  }

  /** There may be room again. */
  onRoom(): void {
    this.#room?.();
  }

  /** `listener` is told when a writer has waited for room for `limits.chatSlowMs`, and when it has it. */
  onPace(listener: (slow: boolean) => void): void {
    this.#pace = listener;
  }

  /** Begins a body that comes in pieces. */
  begin(status: number, headers: AnswerHeaders): Promise<void> {
    return this.#head({ status, headers, whole: false });
  }

  /** Sends the text whenever the body, which must have begun, has been silent for so long. Not while somebody waits for room. */
  fillSilence(text: string, ms: number): void {
    const bytes = Buffer.from(text);
    this.#silence = setTimeout(() => {
      if (this.#over) return;
      if (this.#room === undefined && this.#hasRoom(bytes.length)) this.#stream.peer.send([this.#stream], [bytes], bytes.length);
      this.#silence?.refresh();
    }, ms);
  }

  /** A piece of the body; pieces are written one after the other. Rejects with `aborted` when the client has gone. */
  async write(piece: string | Uint8Array): Promise<void> {
    // A piece that exceeds what may be sent alone goes in several.
    const bytes = typeof piece === 'string' ? Buffer.from(piece) : Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength);
    for (let from = 0; from < bytes.length; from += limits.linkInitialCreditBytes) await this.#send(bytes.subarray(from, from + limits.linkInitialCreditBytes));
  }

  /** The whole answer: `text` is its body, for an error `{code, message, details?}`. */
  async whole(status: number, headers: AnswerHeaders, text: string): Promise<void> {
    await this.#head({ status, headers, whole: true });
    await this.write(text);
    this.end();
  }

  /** The body is complete. */
  end(): void {
    this.#close('normal');
  }

  /** The rest of the body will not come. */
  cut(): void {
    this.#close('internal_error');
  }

  async #head(head: StreamHead): Promise<void> {
    if (this.#begun) throw new TypeError('An answer was begun twice.');
    await this.#send(Buffer.from(JSON.stringify(head)));
    this.#begun = true;
  }

  async #send(bytes: Buffer): Promise<void> {
    if (!this.#over && !this.#hasRoom(bytes.length)) await this.#roomFor(bytes.length);
    if (this.#over) throw coded('aborted');
    this.#stream.peer.send([this.#stream], [bytes], bytes.length);
    this.#silence?.refresh();
  }

  /** Resolves when there is room, or nobody to have it. Rejects with `aborted` when nothing is taken any more. */
  async #roomFor(bytes: number): Promise<void> {
    const slow = setTimeout(() => this.#pace(true), limits.chatSlowMs);
    try {
      while (!this.#over && !this.#hasRoom(bytes)) {
        const stalled = Promise.withResolvers<void>();
        this.#room = stalled.resolve;
        const late = setTimeout(() => stalled.reject(coded('aborted', 'The client takes nothing any more.')), limits.chatStallMs);
        await stalled.promise.finally(() => {
          clearTimeout(late);
          this.#room = undefined;
        });
      }
    } finally {
      clearTimeout(slow);
      this.#pace(false);
    }
  }

  #hasRoom(bytes: number): boolean {
    return !this.#stream.peer.full && this.#stream.room(bytes, 1);
  }

  #close(name: 'normal' | 'internal_error'): void {
    if (this.#over) return;
    const { code, reason } = closeCodes[name];
    this.#stream.close(code, reason);
    this.#finish();
  }

  #finish(): void {
    if (this.#over) return;
    this.#over = true;
    clearTimeout(this.#silence);
    this.#room?.();
    this.#onOver();
  }
}
