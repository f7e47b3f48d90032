/**
 * Bytes that wait, first in, first out, in blocks that are used again: what passes through leaves no garbage. (Copies made and dropped for each
 * piece let a gateway grow by 200 MB during an upload of 512 MiB, as memory outside the heap is collected late: measured.)
 *
 * It does not bound itself: whoever fills it does. Blocks that were needed at once are kept until the queue is dropped.
 */
const blockBytes = 256 * 1024;

interface Block {
  readonly bytes: Buffer;
  /** What waits of it. */
  from: number;
  to: number;
}

export class ByteQueue {
  #blocks: Block[] = [];
  #free: Block[] = [];
  #length = 0;

  /** Bytes that wait. */
  get length(): number {
    return this.#length;
  }

  /** Copied. */
  push(bytes: Uint8Array): void {
    this.#length += bytes.length;
    for (let at = 0; at < bytes.length;) {
      let last = this.#blocks.at(-1);
      if (last === undefined || last.to === blockBytes) {
        last = this.#free.pop() ?? { bytes: Buffer.allocUnsafeSlow(blockBytes), from: 0, to: 0 };
        this.#blocks.push(last);
      }
      const part = bytes.subarray(at, at + blockBytes - last.to);
      last.bytes.set(part, last.to);
      last.to += part.length;
      at += part.length;
    }
  }

  /** The next bytes, at most so many; empty if none wait. A view that is good until the next `push`. */
  take(maxBytes: number): Buffer {
    const [first] = this.#blocks;
    if (first === undefined) return Buffer.alloc(0);
    const piece = first.bytes.subarray(first.from, Math.min(first.to, first.from + maxBytes));
    first.from += piece.length;
    this.#length -= piece.length;
    if (first.from === first.to) {
      this.#blocks.shift();
      first.from = 0;
      first.to = 0;
      this.#free.push(first);
    }
    return piece;
  }

  /** Forgets what waits, and the blocks. */
  drop(): void {
    this.#blocks = [];
    this.#free = [];
    this.#length = 0;
  }
}
