/**
 * `troupe knowledge import` and `troupe knowledge search`: a folder of markdown into a deployment, and a look at what it knows.
 *
 * An import asks first what the deployment has, by hash, and sends only what is new or another: so one that was stopped goes on where it was, and one
 * that is repeated sends nothing. Bounded: a few requests at once, each of a few files; one that is refused for a while is repeated. A file that
 * cannot be sent is named at the end and holds up no other.
 */
import { createHash } from 'node:crypto';
import { basename, resolve } from 'node:path';
import type { Writable } from 'node:stream';
import { z } from 'zod';
import { CodedError, refuse } from '../../contracts/errors.ts';
import { documentOutcome, documentPath, searchAnswer } from '../../contracts/knowledge.ts';
import { knowledgeRoutes as routes } from '../../contracts/knowledge-routes.ts';
import { limits } from '../../contracts/limits.ts';
import { exitCodes, type ExitCode } from './exit.ts';
import { markdownFiles, readMarkdownFile } from './markdown-files.ts';
import type { PlatformClient } from './platform.ts';
import { plain, type Out } from './printer.ts';
import { createProgress } from './progress.ts';

export interface KnowledgeWorld {
  /** Of the deployment's services. */
  readonly services: PlatformClient;
  readonly key: string;
  readonly json: boolean;
  readonly out: Out;
  readonly err: Writable & { readonly isTTY?: boolean };
  readonly cwd: string;
  readonly onInterrupt: (listener: () => void) => () => void;
  /** Cuts what is under way. */
  readonly cut: () => Promise<void>;
  /** Resolves after the time, or when the signal aborts. */
  readonly wait: (ms: number, signal: AbortSignal) => Promise<void>;
}

interface Failed {
  readonly path: string;
  readonly reason: string;
}

const outcomes = z.object({ documents: z.array(documentOutcome) });
type Outcomes = z.output<typeof outcomes>['documents'];
type Sent = { readonly path: string; readonly hash: string } | { readonly path: string; readonly content: string };

/** Failed files that are named; the rest are counted. */
const namedMax = 20;
/** Of the body around the documents, and the comma behind each. */
const frameBytes = 64;

/** Another try may pass. */
const passing = (error: unknown): error is CodedError => error instanceof CodedError && (error.code === 'rate_limited' || error.entry.kind === 'fault');

/** A refusal of the key, in words that fit a deployment. */
const explained = (error: unknown): unknown =>
  (error instanceof CodedError && error.code === 'unauthorized' ? refuse('bad_deployment_key', 'The deployment does not know this key. `troupe deployments rotate-key` makes a new one.') : error);

const post = async (world: KnowledgeWorld, documents: readonly Sent[], signal: AbortSignal): Promise<Outcomes> => {
  for (let tries = 0; ; tries++) {
    try {
      return (await world.services.call({ route: routes.knowledgeIndex, answer: outcomes, token: world.key, body: { documents } })).documents;
    } catch (error) {
      if (signal.aborted || !passing(error) || tries >= limits.knowledgeImportRetriesMax) throw explained(error);
      const told = error.details?.['retry_after_sec'];
      await world.wait(Math.max(typeof told === 'number' ? told * 1_000 : 0, limits.knowledgeImportRetryMs * 2 ** tries), signal);
      if (signal.aborted) throw error;
    }
  }
};

/** In lists that fit into a request. One document that fits into none is a list of its own: the deployment says so. */
function* requests(documents: readonly { readonly path: string; readonly content: string }[]): Generator<readonly { readonly path: string; readonly content: string }[]> {
  let list: { path: string; content: string }[] = [];
  let bytes = 0;
  for (const document of documents) {
    const more = Buffer.byteLength(JSON.stringify(document)) + 1;
    if (list.length > 0 && (list.length >= limits.knowledgeBatchMax || bytes + more > limits.knowledgeBodyMaxBytes - frameBytes)) {
      yield list;
      list = [];
      bytes = 0;
    }
    list.push(document);
    bytes += more;
  }
  if (list.length > 0) yield list;
}

/** Exit code 1 when some files could not be imported, 130 when it was stopped. */
export const importFolder = async (world: KnowledgeWorld, folder: string): Promise<ExitCode> => {
  const root = resolve(world.cwd, folder);
  const files = await markdownFiles(root);
  const name = plain(basename(root));
  const failed: Failed[] = [];
  const count = { done: 0, indexed: 0, known: 0 };
  const progress = createProgress(world.err, `importing ${name}`, files.length);
  const stop = new AbortController();
  const unlisten = world.onInterrupt(() => {
    // What was sent is waited for; a second time nothing is.
    if (stop.signal.aborted) void world.cut();
    stop.abort();
  });

  const sendAll = async (documents: readonly { readonly path: string; readonly content: string }[]): Promise<void> => {
    for (const list of requests(documents)) {
      if (stop.signal.aborted) return;
      try {
        for (const { status } of await post(world, list, stop.signal)) count[status === 'indexed' ? 'indexed' : 'known'] += 1;
      } catch (error) {
        // A document that the deployment refuses is one file's trouble; found by sending each alone.
        if (!(error instanceof CodedError) || error.entry.kind !== 'refusal' || !['payload_too_large', 'invalid_argument'].includes(error.code)) throw error;
        const [only] = list;
        if (list.length > 1) for (const document of list) await sendAll([document]);
        else if (only !== undefined) failed.push({ path: only.path, reason: error.message });
      }
    }
  };

  const batch = async (paths: readonly string[]): Promise<void> => {
    const texts = new Map<string, string>();
    for (const path of paths) {
      const named = documentPath.safeParse(path);
      const read = named.success ? await readMarkdownFile(root, path) : { problem: 'has a name that no document may have' };
      if ('problem' in read) failed.push({ path, reason: read.problem });
      else texts.set(named.data ?? path, read.content);
    }
    if (texts.size > 0) {
      const hashes = [...texts].map(([path, content]) => ({ path, hash: `sha256:${createHash('sha256').update(content, 'utf8').digest('hex')}` }));
      const looked = await post(world, hashes, stop.signal);
      const missing = new Set(looked.filter(({ status }) => status === 'missing').map(({ path }) => path));
      count.known += looked.length - missing.size;
      await sendAll([...texts].filter(([path]) => missing.has(path)).map(([path, content]) => ({ path, content })));
    }
    if (stop.signal.aborted) return;
    count.done += paths.length;
    progress.at(count.done, `${count.indexed} sent, ${count.known} known${failed.length === 0 ? '' : `, ${failed.length} failed`}`);
  };

  let at = 0;
  const worker = async (): Promise<void> => {
    while (at < files.length && !stop.signal.aborted) {
      const paths = files.slice(at, at + limits.knowledgeBatchMax);
      at += paths.length;
      await batch(paths);
    }
  };
  try {
    progress.at(0, '');
    const ended = await Promise.allSettled(Array.from({ length: limits.knowledgeImportRequestsMax }, async () => {
      try {
        await worker();
      } catch (error) {
        // Nobody goes on; a stop has its own end.
        at = files.length;
        if (!stop.signal.aborted) throw error;
      }
    }));
    const failure = ended.find((end) => end.status === 'rejected');
    if (failure !== undefined) throw failure.reason;
  } finally {
    unlisten();
    progress.end();
  }

  const interrupted = stop.signal.aborted;
  if (world.json) {
    world.out.write(`${JSON.stringify({ kind: 'import', folder: root, files: files.length, indexed: count.indexed, known: count.known, failed, interrupted })}\n`);
  } else {
    const summary = `${count.indexed} new or changed, ${count.known} known${failed.length === 0 ? '' : `, ${failed.length} failed`}`;
    world.out.write(interrupted ? `Stopped: ${summary} of ${files.length} documents. The same command goes on from here.\n` : `Imported ${name}: ${files.length} documents, ${summary}.\n`);
    for (const { path, reason } of failed.slice(0, namedMax)) world.err.write(`  ${plain(path)} ${plain(reason)}\n`);
    if (failed.length > namedMax) world.err.write(`  … and ${failed.length - namedMax} more; --json names them all\n`);
  }
  if (interrupted) return exitCodes.interrupted;
  return failed.length === 0 ? exitCodes.ok : exitCodes.turnFailed;
};

export const searchKnowledge = async (world: KnowledgeWorld, query: string, limit: number): Promise<ExitCode> => {
  const found = await world.services.call({ route: routes.knowledgeSearch, answer: searchAnswer, token: world.key, query: { q: query, limit: String(limit) } })
    .catch((error: unknown) => { throw explained(error); });
  if (world.json) world.out.write(`${JSON.stringify(found)}\n`);
  else if (found.results.length === 0) world.err.write('Nothing was found.\n');
  else for (const { id, title, score, excerpt } of found.results) world.out.write(`${plain(title)}  (${id}, ${score.toFixed(2)})\n    ${plain(excerpt)}\n`);
  return exitCodes.ok;
};
