/** Routes of a deployment's services: blobs (interface 2.16, 4.7; decisions, Deployment services). */
import { z } from 'zod';
import { deploymentRoute } from './deployment.ts';
import { limits } from './limits.ts';

/** What an upload is answered with. `size`: bytes of content; `compressed_size`: bytes as stored. */
export const blobAnswer = z.strictObject({ hash: z.string(), size: z.int(), compressed_size: z.int() });

/** Of markdown that is uploaded as a blob: the path it has in the knowledge index, percent-encoded where it has to be. */
export const documentPathHeader = 'x-document-path';

const base = { surface: 'deployment', auth: { kind: 'deployment' }, serve: { by: 'stream' } } as const;

export const blobRoutes = {
  blob_put: deploymentRoute({
    ...base, id: 'blob_put', wire: 320, console: 420, writes: true, method: 'POST', path: '/v1/blobs',
    summary: 'Stores a blob: the body as it is, of any type, or multipart with one file. Known content is answered with 200 and not stored again.',
    // The content's own bound is the daemon's: what stands around a file in a multipart body does not count.
    upload: true, bodyMaxBytes: limits.blobMaxBytes + limits.blobPartsMax * limits.blobFieldMaxBytes, headers: ['content-type', documentPathHeader],
    answers: { 200: blobAnswer, 201: blobAnswer }, errors: ['unauthorized', 'invalid_argument', 'payload_too_large', 'rate_limited', 'overloaded'],
  }),
  blob_get: deploymentRoute({
    ...base, id: 'blob_get', wire: 321, console: 421, method: 'GET', path: '/v1/blobs/:hash',
    summary: 'A blob\'s content, or one range of it. With Accept-Encoding: zstd as it is stored.',
    bodyMaxBytes: 0, headers: ['range', 'if-range', 'if-none-match', 'accept-encoding'],
    answers: { 200: 'text', 206: 'text', 304: 'empty' }, errors: ['unauthorized', 'blob_not_found', 'range_not_satisfiable', 'blob_damaged', 'overloaded'],
  }),
} as const;
