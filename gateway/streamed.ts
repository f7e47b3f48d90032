/**
 * An answer that the daemon gives over a link stream (contracts/platform.ts, `streamHead`): read whole, or passed on in pieces as they come.
 *
 * Guarantees: bytes are copied, never parsed; credit goes back only for what the client has taken, so that a slow client stops the daemon and
 * holds here no more than the stream's window; a client that leaves ends the stream. What the daemon could not end is never shown as complete.
 */
import { closeCodes } from '../contracts/close.ts';
import { coded } from '../contracts/errors.ts';
import { limits } from '../contracts/limits.ts';
import { streamHead, type StreamHead } from '../contracts/platform.ts';
import type { EnvelopeRoute } from '../contracts/platform-routes.ts';
import type { PieceOutlet, Pieces } from './answer.ts';
import type { BodySource } from './body-source.ts';
import type { Credits } from './credit.ts';
import type { Link, LinkStream } from './link.ts';

export interface StreamedOptions {
  readonly link: Link;
  readonly credits: Credits;
  readonly route: EnvelopeRoute;
  readonly token: string;
  readonly body: string;
  readonly partitionKey?: string | undefined;
  /** The request's body, where it is streamed too. */
  readonly upload?: BodySource | undefined;
  /** The client has gone. */
  readonly signal: AbortSignal;
  /** Throws what makes a body in pieces under this head unusable: then the stream is ended, and the answer refused with that. */
  readonly accept: (head: StreamHead) => void;
  /** What a body in pieces ends with when its rest is lost; undefined = it is cut. */
  readonly lost: (head: StreamHead) => string | undefined;
}

export type Streamed =
  | { readonly kind: 'whole'; readonly head: StreamHead; readonly body: Buffer }
  | { readonly kind: 'pieces'; readonly head: StreamHead; readonly pieces: Pieces };

type Phase =
  | { readonly name: 'head' }
  | { readonly name: 'whole'; readonly head: StreamHead; readonly texts: Buffer[] }
  /** `texts` came before anybody could write them; `end`: and so did its end. */
  | { readonly name: 'held'; readonly head: StreamHead; readonly texts: Buffer[]; end: 'none' | 'complete' | 'lost' }
  | { readonly name: 'flowing'; readonly head: StreamHead; readonly outlet: PieceOutlet }
  | { readonly name: 'over' };

interface Settle {
  readonly resolve: (streamed: Streamed) => void;
  readonly reject: (error: Error) => void;
}

class StreamedAnswer implements Pieces {
  readonly #options: StreamedOptions;
  readonly #settle: Settle;
  readonly #stream: LinkStream;
  readonly #onAbort = (): void => this.#abandon();
  #phase: Phase = { name: 'head' };
  #bytes = 0;
  #owed = 0;
  #blocked = false;

  constructor(options: StreamedOptions, settle: Settle) {
    this.#options = options;
    this.#settle = settle;
    const { link, route, token, body, partitionKey, signal, upload } = options;
    this.#stream = link.open(route, {
      token, body, ...(partitionKey === undefined ? {} : { partitionKey }),
      onTexts: (texts, bytes) => this.#onTexts(texts, bytes),
      onClose: (code) => this.#onClose(code === closeCodes.normal.code),
      ...(upload === undefined ? {} : { onGrant: (bytes) => upload.allow(bytes) }),
    });
    upload?.start({
      piece: (bytes) => this.#stream.body(bytes),
      end: () => this.#stream.body(new Uint8Array()),
      fail: (error) => this.#fail(error),
    });
    signal.addEventListener('abort', this.#onAbort, { once: true });
    if (signal.aborted) this.#abandon();
  }

  start(outlet: PieceOutlet): { onWritable(): void } {
    const held = this.#phase;
    if (held.name === 'held') {
      this.#phase = { name: 'flowing', head: held.head, outlet };
      for (const text of held.texts) this.#pass(outlet, text);
      if (held.end !== 'none') this.#end(held.head, outlet, held.end === 'complete');
      else this.#giveBack();
    }
    return {
      onWritable: () => {
        this.#blocked = false;
        this.grant();
      },
    };
  }

  drop(): void {
    this.#abandon();
  }

  /** Gives back the credit of what the client has taken. */
  grant(): void {
    if (this.#blocked || this.#owed === 0 || this.#phase.name === 'over') return;
    const bytes = this.#owed;
    this.#owed = 0;
    this.#stream.credit(bytes);
  }

  #onTexts(texts: readonly Buffer[], bytes: number): void {
    this.#owed += bytes;
    for (const text of texts) this.#onText(text);
    this.#giveBack();
  }

  #onText(text: Buffer): void {
    const phase = this.#phase;
    switch (phase.name) {
      case 'head':
        return this.#onHead(text);
      case 'whole':
        this.#bytes += text.length;
        // More than the daemon may say in one answer elsewhere.
        if (this.#bytes > limits.linkFrameMaxBytes) return this.#fail(coded('upstream_error'));
        phase.texts.push(Buffer.from(text));
        return;
      case 'held':
        // Bounded by the stream's credit: none is given back before somebody takes these.
        phase.texts.push(Buffer.from(text));
        return;
      case 'flowing':
        return this.#pass(phase.outlet, text);
      case 'over':
        return;
    }
  }

  #onHead(text: Buffer): void {
    const head = headIn(text);
    if (head === undefined) return this.#fail(new TypeError(`${this.#options.route.id}: the daemon's stream does not begin as the contract says`));
    if (head.whole) {
      this.#phase = { name: 'whole', head, texts: [] };
      return;
    }
    try {
      this.#options.accept(head);
    } catch (error) {
      return this.#fail(error instanceof Error ? error : new TypeError('A head was refused with what is no error.'));
    }
    this.#phase = { name: 'held', head, texts: [], end: 'none' };
    this.#settle.resolve({ kind: 'pieces', head, pieces: this });
  }

  #pass(outlet: PieceOutlet, text: Buffer): void {
    if (!outlet.write(text)) this.#blocked = true;
  }

  #giveBack(): void {
    if (this.#phase.name === 'held' || this.#phase.name === 'over') return;
    if (this.#owed >= limits.linkInitialCreditBytes / 4) this.grant();
    else this.#options.credits.soon(this);
  }

  #onClose(complete: boolean): void {
    const phase = this.#phase;
    switch (phase.name) {
      case 'head':
        this.#over();
        this.#settle.reject(coded('upstream_unavailable'));
        return;
      case 'whole':
        this.#over();
        if (complete) this.#settle.resolve({ kind: 'whole', head: phase.head, body: Buffer.concat(phase.texts) });
        else this.#settle.reject(coded('upstream_unavailable'));
        return;
      case 'held':
        phase.end = complete ? 'complete' : 'lost';
        return;
      case 'flowing':
        return this.#end(phase.head, phase.outlet, complete);
      case 'over':
        return;
    }
  }

  #end(head: StreamHead, outlet: PieceOutlet, complete: boolean): void {
    this.#over();
    const last = complete ? '' : this.#options.lost(head);
    if (last === undefined) return outlet.cut();
    if (last !== '') outlet.write(Buffer.from(last));
    outlet.end();
  }

  #fail(error: Error): void {
    if (this.#phase.name === 'over') return;
    this.#over();
    this.#stream.close(closeCodes.internal_error.code, closeCodes.internal_error.reason);
    this.#settle.reject(error);
  }

  /** Nobody takes the answer any more. */
  #abandon(): void {
    if (this.#phase.name === 'over') return;
    this.#over();
    this.#stream.close(closeCodes.normal.code, closeCodes.normal.reason);
    this.#settle.reject(coded('aborted'));
  }

  #over(): void {
    this.#phase = { name: 'over' };
    this.#options.signal.removeEventListener('abort', this.#onAbort);
  }
}

/** Asks for a streamed answer. Rejects with `upstream_unavailable` (no daemon, or lost before the answer's end was known), `upstream_error`, `aborted`. */
export const openStreamed = (options: StreamedOptions): Promise<Streamed> =>
  new Promise((resolve, reject) => {
    void new StreamedAnswer(options, { resolve, reject });
  });

const headIn = (text: Buffer): StreamHead | undefined => {
  try {
    return streamHead.safeParse(JSON.parse(text.toString('utf8'))).data;
  } catch {
    // Not JSON: no head.
    return undefined;
  }
};
