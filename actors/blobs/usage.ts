/**
 * What the blobs of a deployment hold: the sum of its indexes, counted on from where the last look ended.
 *
 * Guarantee: it counts every blob that was published before it was asked, by whichever daemon, since indexes are only ever added. Asked for
 * the first time it reads all of the deployment's indexes (about 400 bytes a blob, and 60 for each half MiB of content).
 */
import { LRUCache } from 'lru-cache';
import { limits } from '../../contracts/limits.ts';
import { decodeIndex } from './blob-index.ts';
import type { BlobScope, Shelf } from './shelf.ts';

interface Counted {
  readonly after: number;
  readonly bytes: number;
}

const none: Counted = { after: 0, bytes: 0 };

/** Bytes a blob counts for. */
const weight = (data: Uint8Array): number => {
  try {
    return Math.max(decodeIndex(data).stored, limits.blobQuotaMinBytes);
  } catch {
    // A damaged index is met by who reads its blob; here it counts for its own bytes.
    return Math.max(data.length, limits.blobQuotaMinBytes);
  }
};

/** Counts for all deployments of one process. */
export const createUsage = (open: (scope: BlobScope) => Shelf): ((scope: BlobScope) => Promise<number>) => {
  // Counts follow each other: two at once would both begin at the same place.
  const counts = new LRUCache<string, Promise<Counted>>({ max: limits.blobUsagesMax });

  const countOn = async (shelf: Shelf, { after, bytes }: Counted): Promise<Counted> => {
    for await (const batch of shelf.indexes(after)) {
      for (const { seq, data } of batch) {
        after = seq;
        bytes += weight(data);
      }
    }
    return { after, bytes };
  };

  return async (scope) => {
    const key = `${scope.organizationId}/${scope.deploymentId}`;
    const before = counts.get(key) ?? Promise.resolve(none);
    const counting = before.then((counted) => countOn(open(scope), counted));
    // A count that failed is the next one's beginning as it was before.
    counts.set(key, counting.catch(() => before));
    return (await counting).bytes;
  };
};
