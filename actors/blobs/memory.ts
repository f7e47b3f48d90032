/** Blobs in process memory, for tests and for a daemon without an object store. Same contract as `nats.ts`; gone with the process. */
import { coded } from '../../contracts/errors.ts';
import { gather, hashOf, type Blobs } from './blobs.ts';

export const memoryBlobs = (): Blobs => {
  const stored = new Map<string, Uint8Array>();
  const key = (org: string, hash: string): string => JSON.stringify([org, hash]);
  return {
    put: async (org, body) => {
      const bytes = await gather(body);
      const hash = hashOf(bytes);
      const known = stored.has(key(org, hash));
      if (!known) stored.set(key(org, hash), bytes);
      return { hash, size: bytes.byteLength, known };
    },
    get: async (org, hash) => {
      const bytes = stored.get(key(org, hash));
      if (bytes === undefined) throw coded('blob_not_found');
      return bytes;
    },
  };
};
