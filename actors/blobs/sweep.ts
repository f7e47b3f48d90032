/**
 * Erases uploads that nobody ended: their daemon was killed, or could not reach NATS any more.
 *
 * Guarantees: an upload younger than `limits.blobSweepAgeMs` is left alone (no upload lasts that long: `limits.blobUploadMs`); the frames of a
 * blob that was published are never erased, whatever its mark says; one look erases `limits.blobSweepMax` uploads at most. Safe to run on
 * every daemon at once, and to be cut anywhere.
 */
import { limits } from '../../contracts/limits.ts';
import { blobStream, blobUploads, decodeToken } from '../../contracts/subjects.ts';
import type { Log } from '../runtime/log.ts';
import type { Lean } from '../runtime/nats/lean.ts';
import { forward } from '../runtime/nats/read.ts';
import { isAmbiguous, openShelf } from './shelf.ts';

export interface SweepOptions {
  readonly lean: Lean;
  /** Unix milliseconds. */
  readonly now: () => number;
  readonly log: Log;
  readonly signal: AbortSignal;
}

/** One look. Gives how many uploads it ended. Throws `journal_unavailable`. */
export const sweepUploads = async (options: SweepOptions): Promise<number> => {
  const { lean, now, log, signal } = options;
  const before = now() - limits.blobSweepAgeMs;
  let swept = 0;
  for await (const batch of forward(lean, blobStream, blobUploads, 1, Number.MAX_SAFE_INTEGER)) {
    for (const { subject, time } of batch) {
      // In the order they were stored: all that follow are younger.
      if (time > before || swept >= limits.blobSweepMax || signal.aborted) return swept;
      try {
        if (await sweepOne(lean, subject, before)) swept += 1;
      } catch (error) {
        if (isAmbiguous(error)) throw error;
        log.error({ err: error, subject }, 'an upload that nobody ended cannot be swept');
      }
    }
  }
  return swept;
};

/** Looks now and every `limits.blobSweepMs`, in the background; what fails is logged and tried again the next time. */
export const startSweeps = (options: Omit<SweepOptions, 'signal'>): { close(): void } => {
  const ending = new AbortController();
  const look = (): void => {
    sweepUploads({ ...options, signal: ending.signal }).then((swept) => {
      if (swept > 0) options.log.info({ swept }, 'uploads that nobody ended were erased');
    }, (error: unknown) => {
      if (!ending.signal.aborted) options.log.warn({ err: error }, 'uploads that nobody ended could not be looked for');
    });
  };
  const timer = setInterval(look, limits.blobSweepMs);
  timer.unref();
  look();
  return {
    close: () => {
      ending.abort();
      clearInterval(timer);
    },
  };
};

/** False: another look was faster, or it goes on. */
const sweepOne = async (lean: Lean, subject: string, before: number): Promise<boolean> => {
  const [org, deployment, , upload] = subject.split('.').slice(3).map(decodeToken);
  if (org === undefined || deployment === undefined || upload === undefined) throw new TypeError('An upload\'s mark has no subject of one.');
  const shelf = openShelf(lean, { organizationId: org, deploymentId: deployment });
  const mark = await shelf.markOf(upload);
  if (mark === undefined || mark.time > before) return false;
  const published = mark.hash !== undefined && (await shelf.index(mark.hash))?.upload === upload;
  if (!published) await shelf.dropFrames(upload);
  await shelf.unmark(upload);
  return true;
};
