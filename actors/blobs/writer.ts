/**
 * One blob on its way into the store: content in, frames out, and at the end one message that makes all of it a blob.
 *
 * Guarantees
 * W1  Nothing can be read before everything is stored and the content's hash is known.
 * W2  Content that is there already is not stored a second time; of two uploads of the same content one remains.
 * W3  What does not become a blob is erased: at once by `discard`, by the sweep (sweep.ts) where nobody was left to do it.
 * W4  It holds three frames of content at most: one that fills, one being packed, one on its way.
 */
import { createHash } from 'node:crypto';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { Log } from '../runtime/log.ts';
import type { FrameRef } from './blob-index.ts';
import { erased, isAmbiguous, type Shelf } from './shelf.ts';
import type { Zstd } from './zstd.ts';

export interface StoredEntry {
  /** `sha256:` and 64 hex digits, of the content. */
  readonly hash: string;
  /** Bytes of content, and as stored. */
  readonly size: number;
  readonly compressedSize: number;
  /** The deployment had it already. */
  readonly known: boolean;
}

export interface WriterOptions {
  readonly shelf: Shelf;
  readonly zstd: Zstd;
  readonly log: Log;
  /** Unlike any other. */
  readonly upload: string;
  readonly type: string;
  /** Defaults `limits.blobMaxBytes`, `limits.blobFrameBytes`, `limits.blobPartBytes`. */
  readonly maxBytes?: number | undefined;
  readonly frameBytes?: number | undefined;
  readonly partBytes?: number | undefined;
  /** Throws when the deployment may not keep that many bytes more. */
  readonly admit: (bytes: number) => Promise<void>;
}

export class BlobWriter {
  readonly #options: WriterOptions;
  readonly #maxBytes: number;
  readonly #frameBytes: number;
  readonly #partBytes: number;
  readonly #hash = createHash('sha256');
  readonly #frames: FrameRef[] = [];
  #size = 0;
  #stored = 0;
  #filling: Buffer | undefined;
  #filled = 0;
  #mark: 'none' | 'begun' | 'named' = 'none';
  /** Sequence of its last mark. */
  #markedAt = 0;
  /** The index was sent, and nobody knows whether it is there. */
  #undecided = false;
  /** The last frame on its way; it settles after all before it. */
  #last: Promise<void> = Promise.resolve();
  #phase: 'open' | 'ended' = 'open';

  constructor(options: WriterOptions) {
    this.#options = options;
    this.#maxBytes = options.maxBytes ?? limits.blobMaxBytes;
    this.#frameBytes = options.frameBytes ?? limits.blobFrameBytes;
    this.#partBytes = options.partBytes ?? limits.blobPartBytes;
  }

  /** Takes a piece of the content, which may be used again once this has resolved. Throws `payload_too_large`, `journal_unavailable`; then only `discard` is left. */
  async write(content: Uint8Array): Promise<void> {
    this.#requireOpen();
    this.#size += content.length;
    if (this.#size > this.#maxBytes) throw coded('payload_too_large', `A blob holds at most ${this.#maxBytes} bytes.`);
    this.#hash.update(content);
    for (let at = 0; at < content.length;) {
      const part = content.subarray(at, at + this.#frameBytes - this.#filled);
      this.#fill(part);
      at += part.length;
      if (this.#filled === this.#frameBytes) await this.#send();
    }
  }

  /** The content is complete: makes it a blob, or finds that it is one. Throws `payload_too_large` (the deployment's quota), `journal_unavailable`; then only `discard` is left. */
  async finish(): Promise<StoredEntry> {
    this.#requireOpen();
    const { shelf, upload, admit } = this.#options;
    const hash = `sha256:${this.#hash.digest('hex')}`;
    const before = await shelf.index(hash);
    if (before !== undefined) return this.#known(before);
    // What was sent so far may be more than what is allowed; of the rest nothing is known yet.
    if (this.#filled > 0 || this.#size === 0) await this.#send(hash);
    await this.#last;
    await admit(this.#stored);
    await this.#setMark(hash);
    const index = { upload, hash, size: this.#size, stored: this.#stored, type: this.#options.type, frameBytes: this.#frameBytes, partBytes: this.#partBytes, frames: this.#frames };
    this.#undecided = true;
    const published = await shelf.publishIndex(index);
    this.#undecided = false;
    if (!published) {
      const there = await shelf.index(hash);
      if (there === undefined) throw erased();
      return this.#known(there);
    }
    // An erasure takes the mark along: what was published after it must not outlive it.
    if (await shelf.markOf(upload) === undefined) {
      await shelf.dropIndex(hash);
      throw erased();
    }
    this.#phase = 'ended';
    await this.#tidy(() => shelf.unmark(upload));
    return { hash, size: this.#size, compressedSize: this.#stored, known: false };
  }

  /** Erases what was stored of it. After `finish` has resolved: nothing. Never rejects: what cannot be erased now is swept later. */
  async discard(): Promise<void> {
    if (this.#phase === 'ended') return;
    this.#phase = 'ended';
    this.#filling = undefined;
    const { shelf, upload } = this.#options;
    const settled = await this.#last.then(() => true, (error: unknown) => !isAmbiguous(error));
    // Frames of an index that may be there are not to be taken from under it: the sweep will know.
    if (this.#mark === 'none' || this.#undecided) return;
    await this.#tidy(async () => {
      await shelf.dropFrames(upload);
      // A frame of which nobody knows whether it was stored may come yet: its mark stays for the sweep.
      if (settled) await shelf.unmark(upload);
    });
  }

  /** Another upload of the same content was first. */
  async #known(there: { readonly hash: string; readonly size: number; readonly stored: number }): Promise<StoredEntry> {
    await this.discard();
    return { hash: there.hash, size: there.size, compressedSize: there.stored, known: true };
  }

  /** Packs what has filled up and stores it behind what is on its way; resolves when the frame before it is stored. */
  async #send(hash?: string): Promise<void> {
    const content = this.#filling?.subarray(0, this.#filled) ?? Buffer.alloc(0);
    this.#filling = undefined;
    this.#filled = 0;
    const before = this.#last;
    // The mark is there before the first frame: a frame without one would never be found.
    if (this.#mark === 'none') await this.#setMark(hash);
    const packed = this.#options.zstd.compress(content);
    this.#last = this.#store(packed, before);
    // Met when it is awaited.
    this.#last.catch(() => undefined);
    await before;
  }

  async #store(packed: Promise<Uint8Array>, before: Promise<void>): Promise<void> {
    const [frame] = await Promise.all([packed, before]);
    const parts: number[] = [];
    for (let at = 0; at < frame.length; at += this.#partBytes) parts.push(await this.#options.shelf.append(this.#options.upload, frame.subarray(at, at + this.#partBytes)));
    this.#frames.push({ bytes: frame.length, digest: createHash('sha256').update(frame).digest(), parts });
    this.#stored += frame.length;
  }

  /** Room doubles: most blobs are small. */
  #fill(part: Uint8Array): void {
    const needs = this.#filled + part.length;
    const room = this.#filling?.length ?? 0;
    if (needs > room) {
      const grown = Buffer.allocUnsafe(Math.min(this.#frameBytes, Math.max(needs, 2 * room)));
      this.#filling?.copy(grown, 0, 0, this.#filled);
      this.#filling = grown;
    }
    this.#filling?.set(part, this.#filled);
    this.#filled = needs;
  }

  async #setMark(hash: string | undefined): Promise<void> {
    if (this.#mark === 'named') return;
    // Set before it is sent: after a failure it may be there.
    this.#mark = 'begun';
    this.#markedAt = await this.#options.shelf.mark(this.#options.upload, hash === undefined ? {} : { hash }, this.#markedAt);
    if (hash !== undefined) this.#mark = 'named';
  }

  async #tidy(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#options.log.warn({ err: error, upload: this.#options.upload }, 'an upload could not be tidied up, the sweep will');
    }
  }

  #requireOpen(): void {
    if (this.#phase === 'ended') throw new TypeError('An upload was used after its end.');
  }
}
