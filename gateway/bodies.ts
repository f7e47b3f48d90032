/**
 * Bounds what request bodies hold in this process: all of them together, and the uploads of one user.
 *
 * A body is held from its first byte until its request is answered. Without these bounds one user within the request rate could
 * hold gigabytes: uploads of 4 MiB each, sent slowly (measured: 100 unfinished ones, 400 MB).
 */
import { coded } from '../contracts/errors.ts';
import { limits } from '../contracts/limits.ts';

export interface HeldBody {
  /** Counts bytes that came; false = they are not to be kept (too much is held, or the request has been answered). */
  take(bytes: number): boolean;
  /** So many of them are not held any more. */
  give(bytes: number): void;
  /** The body is an upload of this user. Throws `rate_limited` when the user has `limits.uploadsPerUserMax` already. */
  upload(sub: string): void;
  /** The request has been answered; idempotent. */
  release(): void;
}

export class Bodies {
  readonly #maxBytes: number;
  readonly #maxUploads: number;
  readonly #uploads = new Map<string, number>();
  #bytes = 0;

  constructor(maxBytes: number = limits.bodiesMaxBytes, maxUploads: number = limits.uploadsPerUserMax) {
    this.#maxBytes = maxBytes;
    this.#maxUploads = maxUploads;
  }

  /** Bytes held now. */
  get bytes(): number {
    return this.#bytes;
  }

  open(): HeldBody {
    let held = 0;
    let owner: string | undefined;
    let released = false;
    return {
      take: (bytes) => {
        if (released || this.#bytes + bytes > this.#maxBytes) return false;
        this.#bytes += bytes;
        held += bytes;
        return true;
      },
      give: (bytes) => {
        if (released) return;
        this.#bytes -= bytes;
        held -= bytes;
      },
      upload: (sub) => {
        const running = this.#uploads.get(sub) ?? 0;
        if (running >= this.#maxUploads) throw coded('rate_limited', 'Too many uploads of this user are under way.', { details: { retry_after: 1 } });
        if (released) return;
        this.#uploads.set(sub, running + 1);
        owner = sub;
      },
      release: () => {
        if (released) return;
        released = true;
        this.#bytes -= held;
        if (owner === undefined) return;
        const left = (this.#uploads.get(owner) ?? 1) - 1;
        if (left === 0) this.#uploads.delete(owner);
        else this.#uploads.set(owner, left);
      },
    };
  }
}
