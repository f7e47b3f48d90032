/**
 * Handlers of the blob routes: uploads in, blobs out, both in pieces (BLB).
 *
 * Guarantees: an upload becomes a blob whole or not at all; what one daemon carries at once is bounded, for each deployment and in all; what was
 * uploaded is never run by a browser as this site's; a blob that is found damaged is never answered as complete, and is logged.
 */
import { documentPathHeader } from '../../../contracts/blob-routes.ts';
import type { DeploymentCaller } from '../../../contracts/deployment.ts';
import { coded, CodedError } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import type { AnswerHeaders } from '../../../contracts/platform.ts';
import type { BlobStore, BlobWriter, StoredBlob } from '../../blobs/store.ts';
import type { Log } from '../log.ts';
import type { StreamAnswer } from '../platform/stream-answer.ts';
import { isShown, keptType, wantedOf, type Wanted } from './blob-wants.ts';
import type { DeploymentHandlers, DeploymentRequest } from './deps.ts';
import { isMultipart, readFile } from './multipart.ts';

/** A markdown blob that was just posted, new or known. */
export interface MarkdownBlob {
  readonly hash: string;
  /** What the header X-Document-Path says, as it came. */
  readonly named: string | undefined;
  /** Its text; undefined for one that is no UTF-8. */
  readText(): Promise<string | undefined>;
}

export interface BlobHandlersDeps {
  readonly deploymentBlobs: BlobStore;
  readonly log: Log;
  /** Called before a post of `text/markdown` of at most `limits.blobMarkdownMaxBytes` is answered; what it throws is the answer, and the blob stays. */
  readonly onMarkdown?: (caller: DeploymentCaller, blob: MarkdownBlob) => Promise<unknown>;
}

/** What one daemon carries at once. */
class Transfers {
  readonly #uploads = new Map<string, number>();
  #running = 0;

  /** Throws `overloaded`, `rate_limited`. Gives the way to end it. */
  begin(uploadOf: string | undefined): () => void {
    if (this.#running >= limits.blobTransfersMax) throw coded('overloaded', 'Too many blobs are on their way.');
    const uploads = uploadOf === undefined ? 0 : this.#uploads.get(uploadOf) ?? 0;
    if (uploads >= limits.blobUploadsMax) throw coded('rate_limited', 'Too many uploads of this deployment are under way.', { details: { retry_after: 1 } });
    this.#running += 1;
    if (uploadOf !== undefined) this.#uploads.set(uploadOf, uploads + 1);
    return () => {
      this.#running -= 1;
      if (uploadOf === undefined) return;
      const left = (this.#uploads.get(uploadOf) ?? 1) - 1;
      if (left === 0) this.#uploads.delete(uploadOf);
      else this.#uploads.set(uploadOf, left);
    };
  }
}

/** The request's body; one that brings nothing for too long, or takes too long in all, fails with `deadline_exceeded`. */
async function* timely({ body }: StreamAnswer): AsyncGenerator<Buffer, void, undefined> {
  const late = (): void => body.fail(coded('deadline_exceeded', 'The upload took too long.'));
  const whole = setTimeout(late, limits.blobUploadMs);
  const silence = setTimeout(late, limits.blobSilenceMs);
  try {
    for await (const piece of body) {
      silence.refresh();
      yield piece;
      // Storing it is not the client's time.
      silence.refresh();
    }
  } finally {
    clearTimeout(whole);
    clearTimeout(silence);
  }
}

const gather = async (blob: StoredBlob): Promise<Buffer> => {
  const pieces: Uint8Array[] = [];
  for await (const piece of blob.content()) pieces.push(piece);
  return Buffer.concat(pieces);
};

const textOf = (bytes: Buffer): string | undefined => {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
};

const headersOf = ({ type, size }: StoredBlob, wanted: Exclude<Wanted, { kind: 'same' }>, length: number): AnswerHeaders => ({
  'content-type': type, 'content-length': String(length), ...cachingOf(wanted), 'accept-ranges': 'bytes',
  // No script, no form, no frame of this site, whatever it is shown as.
  'content-security-policy': 'default-src \'none\'; sandbox',
  ...(isShown(type) ? {} : { 'content-disposition': 'attachment' }),
  ...(wanted.kind === 'packed' ? { 'content-encoding': 'zstd' } : {}),
  ...(wanted.kind === 'content' && wanted.range !== undefined ? { 'content-range': `bytes ${wanted.range.from}-${wanted.range.to - 1}/${size}` } : {}),
});

/** Content under its hash never changes; it is its deployment's alone. */
const cachingOf = ({ etag }: Wanted): AnswerHeaders => ({ etag, 'cache-control': 'private, max-age=31536000, immutable', vary: 'Accept-Encoding' });

export const blobHandlers = ({ deploymentBlobs: store, log, onMarkdown }: BlobHandlersDeps): DeploymentHandlers => {
  const transfers = new Transfers();

  const markdown = async (caller: DeploymentCaller, hash: string, named: string | undefined): Promise<void> => {
    await onMarkdown?.(caller, { hash, named, readText: async () => textOf(await gather(await store.open(caller, hash))) });
  };

  const put = async ({ caller, context }: DeploymentRequest, answer: StreamAnswer): Promise<void> => {
    const sent = context.headers?.['content-type'];
    let writer: BlobWriter | undefined;
    let type = keptType(sent, limits.blobTypeMaxChars);
    try {
      if (sent !== undefined && isMultipart(sent)) {
        await readFile(sent, timely(answer), async (named) => {
          type = keptType(named, limits.blobTypeMaxChars);
          return (writer = await store.begin(caller, type));
        });
      } else {
        writer = await store.begin(caller, type);
        for await (const piece of timely(answer)) await writer.write(piece);
      }
      if (writer === undefined) throw new TypeError('An upload ended without a file and without an error.');
      const { hash, size, compressedSize, known } = await writer.finish();
      if (/^text\/markdown\s*(;|$)/i.test(type) && size <= limits.blobMarkdownMaxBytes) await markdown(caller, hash, context.headers?.[documentPathHeader]);
      await answer.whole(known ? 200 : 201, {}, JSON.stringify({ hash, size, compressed_size: compressedSize }));
    } catch (error) {
      await writer?.discard();
      throw error;
    }
  };

  const get = async ({ caller, context }: DeploymentRequest, answer: StreamAnswer): Promise<void> => {
    const blob = await store.open(caller, context.params?.[0] ?? '');
    const wanted = wantedOf(context.headers ?? {}, blob);
    if (wanted.kind === 'same') return answer.whole(304, cachingOf(wanted), '');
    const { from, to } = wanted.kind === 'content' && wanted.range !== undefined ? wanted.range : { from: 0, to: blob.size };
    const length = wanted.kind === 'packed' ? blob.compressedSize : to - from;
    const headers = headersOf(blob, wanted, length);
    const status = wanted.kind === 'content' && wanted.range !== undefined ? 206 : 200;
    const pieces = wanted.kind === 'packed' ? blob.packed() : blob.content(from, to);
    try {
      // What can be known to be damaged before the head is an error answer.
      const first = await pieces.next();
      if (first.done === true) return await answer.whole(status, headers, '');
      await answer.begin(status, headers);
      await answer.write(first.value);
      for await (const piece of pieces) await answer.write(piece);
      answer.end();
    } catch (error) {
      if (error instanceof CodedError && error.code === 'blob_damaged') log.error({ err: error, hash: blob.hash, deployment: caller.deploymentId }, 'a stored blob is damaged');
      throw error;
    } finally {
      await pieces.return();
    }
  };

  const carried = (upload: boolean, run: (request: DeploymentRequest, answer: StreamAnswer) => Promise<void>) => async (request: DeploymentRequest, answer: StreamAnswer): Promise<void> => {
    const end = transfers.begin(upload ? request.caller.deploymentId : undefined);
    try {
      await run(request, answer);
    } finally {
      end();
    }
  };

  return { streams: { blob_put: carried(true, put), blob_get: carried(false, get) } };
};
