/**
 * Blobs of managed deployments: content-addressed, packed with zstd, streamed both ways (decisions, Deployment services).
 *
 * Each belongs to one deployment of one organization; whoever knows a hash of another's has no blob. What is stored is in the object store's
 * stream, see contracts/subjects.ts; how, in writer.ts and reader.ts. Attachments of chats are kept elsewhere (blobs.ts).
 * Does not know who asks, nor how many may at once: that is actors/daemon/deployment/blobs.ts.
 */
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { blobsOf, blobStream } from '../../contracts/subjects.ts';
import type { Log } from '../runtime/log.ts';
import type { Lean } from '../runtime/nats/lean.ts';
import { purge } from '../runtime/nats/purge.ts';
import { isBlobHash } from './blobs.ts';
import { openStored, type StoredBlob } from './reader.ts';
import { openShelf, type BlobScope, type Shelf } from './shelf.ts';
import { createUsage } from './usage.ts';
import { BlobWriter } from './writer.ts';
import type { Zstd } from './zstd.ts';

export type { StoredBlob } from './reader.ts';
export type { BlobScope } from './shelf.ts';
export type { BlobWriter, StoredEntry } from './writer.ts';

export interface BlobStore {
  /** Begins an upload; end it with `finish` or `discard`. Throws `payload_too_large` when the deployment's quota is used up, `journal_unavailable`. */
  begin(scope: BlobScope, type: string): Promise<BlobWriter>;
  /** Throws `blob_not_found` (unknown to this deployment, or not a hash), `blob_damaged`, `journal_unavailable`. */
  open(scope: BlobScope, hash: string): Promise<StoredBlob>;
  /** Bytes that count towards the deployment's quota. */
  used(scope: BlobScope): Promise<number>;
  /** Erases all blobs of a deployment. Safe to repeat; uploads that run meanwhile come to nothing. Throws `journal_unavailable`. */
  erase(scope: BlobScope): Promise<void>;
}

export interface BlobStoreOptions {
  readonly lean: Lean;
  readonly zstd: Zstd;
  readonly newUlid: () => string;
  readonly log: Log;
  /** Defaults `limits.blobQuotaBytes`, `limits.blobMaxBytes`, `limits.blobFrameBytes`, `limits.blobPartBytes`. */
  readonly quotaBytes?: number;
  readonly maxBytes?: number;
  readonly frameBytes?: number;
  readonly partBytes?: number;
}

/** Its stream must exist (`ensureStreams`). */
export const createBlobStore = (options: BlobStoreOptions): BlobStore => {
  const { lean, zstd, log, newUlid } = options;
  const quotaBytes = options.quotaBytes ?? limits.blobQuotaBytes;
  const shelfOf = (scope: BlobScope): Shelf => openShelf(lean, scope);
  const used = createUsage(shelfOf);

  const admit = async (scope: BlobScope, bytes: number): Promise<void> => {
    const before = await used(scope);
    if (before + Math.max(bytes, limits.blobQuotaMinBytes) <= quotaBytes) return;
    throw coded('payload_too_large', 'The blobs of this deployment hold as much as they may.', { details: { quota_bytes: quotaBytes, used_bytes: before } });
  };

  return {
    begin: async (scope, type) => {
      await admit(scope, 0);
      return new BlobWriter({
        shelf: shelfOf(scope), zstd, log, type, upload: newUlid().toLowerCase(), maxBytes: options.maxBytes, frameBytes: options.frameBytes, partBytes: options.partBytes,
        admit: (bytes) => admit(scope, bytes),
      });
    },
    open: async (scope, hash) => {
      if (!isBlobHash(hash)) throw coded('blob_not_found');
      const shelf = shelfOf(scope);
      const index = await shelf.index(hash);
      if (index === undefined) throw coded('blob_not_found');
      return openStored(index, shelf, zstd);
    },
    used,
    erase: (scope) => shelfOf(scope).erase(),
  };
};

/** Erases the blobs of all deployments of an organization. Safe to repeat. Throws `journal_unavailable`. */
export const eraseBlobsOf = async (lean: Lean, org: string): Promise<void> => {
  await purge(lean, blobStream, blobsOf(org));
};
