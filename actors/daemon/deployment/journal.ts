/**
 * Handlers of client streams: append through the stream's actor, reads straight from its journal.
 *
 * Guarantees: checksums are computed over the canonical payload before the append and checked against the payload at every read; one that does not
 * match is never shown: the answer fails or is cut, and the log says where. Answers of any size hold a few commits in memory.
 */
import { createHash } from 'node:crypto';
import { decodeTime } from 'ulid';
import type { z } from 'zod';
import { clientStreamCommands, clientStreamEvents } from '../../../contracts/client-stream.ts';
import { streamSeed } from '../../../contracts/deployment.ts';
import { coded } from '../../../contracts/errors.ts';
import type { EventEnvelope } from '../../../contracts/event.ts';
import type { appendAnswer, appendBody, exportQuery, journalQuery } from '../../../contracts/journal-routes.ts';
import { limits } from '../../../contracts/limits.ts';
import type { ActorAddress } from '../../../contracts/subjects.ts';
import { askBy } from '../platform/ask.ts';
import type { StreamAnswer } from '../platform/stream-answer.ts';
import { commitsAfter } from './after.ts';
import { checksumOf } from './checksum.ts';
import type { DeploymentDeps, DeploymentHandlers, DeploymentRequest } from './deps.ts';

type Deps = Pick<DeploymentDeps, 'actors' | 'tails' | 'log'>;

const hashOf = (text: string): string => createHash('sha256').update(text).digest('hex');
/** Of an idempotency key: 96 bits, so that no two keys of a stream meet. */
const keyHash = (key: string): string => createHash('sha256').update(key).digest('base64url').slice(0, 16);

const addressOf = ({ caller }: Pick<DeploymentRequest, 'caller'>, streamId: string): ActorAddress =>
  ({ org: caller.organizationId, type: 'stream', key: hashOf(streamSeed(caller.deploymentId, streamId)) });

/** Events of a stream after a cursor, in order. Throws `journal_unreadable` for one whose checksum does not match. */
async function* eventsAfter(deps: Deps, address: ActorAddress, after: string): AsyncGenerator<EventEnvelope, void, undefined> {
  for await (const { ev } of commitsAfter(deps.tails, address, after)) {
    for (const { k, d } of ev) {
      if (k !== 'Appended') continue;
      const { stream_id, events } = clientStreamEvents.Appended.parse(d);
      for (const { id, kind, payload, checksum, metadata } of events) {
        if (id <= after) continue;
        if (checksumOf(payload) !== checksum) {
          deps.log.error({ org: address.org, stream: address.key, event: id }, 'an event does not match its checksum');
          throw coded('journal_unreadable', `Event ${id} does not match its checksum.`);
        }
        yield { id, stream_id, kind, timestamp: decodeTime(id), payload, checksum, metadata: metadata ?? {} };
      }
    }
  }
}

/** The stored events of these ids. */
const storedOf = async (deps: Deps, address: ActorAddress, ids: readonly string[]): Promise<ReadonlyMap<string, EventEnvelope>> => {
  const found = new Map<string, EventEnvelope>();
  for (const wanted of ids.toSorted()) {
    if (found.has(wanted)) continue;
    // Those of one append lie together: what was asked for and comes along is kept.
    for await (const event of eventsAfter(deps, address, before(wanted))) {
      if (ids.includes(event.id)) found.set(event.id, event);
      if (event.id >= wanted && !ids.includes(event.id)) break;
      if (found.size === ids.length) break;
    }
    if (!found.has(wanted)) throw coded('journal_unreadable', `Event ${wanted} is not in the journal.`);
  }
  return found;
};

/** A text just below an id: its last character one lower, so that the id itself is after it. */
const before = (id: string): string => `${id.slice(0, -1)}${String.fromCharCode(id.charCodeAt(id.length - 1) - 1)}`;

const append = async (deps: Deps, request: DeploymentRequest): Promise<z.output<typeof appendAnswer>> => {
  // Parsed by the route's schema; a megabyte is not parsed twice.
  const { stream_id, events, expected_last_id } = request.body as z.output<typeof appendBody>;
  const address = addressOf(request, stream_id);
  const given = events.map(({ kind, payload, metadata, idempotency_key }) => ({
    kind, payload, checksum: checksumOf(payload), ...(metadata === undefined ? {} : { metadata }),
    ...(idempotency_key === undefined ? {} : { key: keyHash(idempotency_key) }),
  }));
  const { stored, last_id } = await askBy(deps.actors, clientStreamCommands)(address, 'append', {
    stream_id, events: given, ...(expected_last_id === undefined ? {} : { expected_last_id }),
  });
  // An event that was there before is named as it is stored, whatever the retry said.
  const known = await storedOf(deps, address, [...new Set(stored.filter((event) => event.known).map(({ id }) => id))]);
  return {
    events: stored.map(({ id, timestamp }, i) => {
      const there = known.get(id) ?? given[i];
      if (there === undefined) throw new TypeError('an append names more events than it was given');
      return { id, stream_id, kind: there.kind, timestamp, checksum: there.checksum };
    }),
    last_id,
  };
};

/** Bytes that are gathered before they are written. */
const pieceBytes = 64 * 1024;

/** How events become a body. */
interface Shape {
  readonly type: string;
  readonly open: string;
  readonly item: (json: string, first: boolean) => string;
  readonly close: string;
}
const page: Shape = { type: 'application/json', open: '{"events":[', item: (json, first) => (first ? json : `,${json}`), close: ']}' };
const lines: Shape = { type: 'application/x-ndjson', open: '', item: (json) => `${json}\n`, close: '' };

/** Writes events as they are read, at most `max`. The answer begins with the first piece, so that what fails before has a status. */
const writeEvents = async (events: AsyncGenerator<EventEnvelope, void, undefined>, answer: StreamAnswer, shape: Shape, max: number): Promise<void> => {
  let piece = shape.open;
  const flush = async (): Promise<void> => {
    if (!answer.begun) await answer.begin(200, { 'content-type': shape.type, 'cache-control': 'no-store' });
    if (piece !== '') await answer.write(piece);
    piece = '';
  };
  let count = 0;
  for await (const event of events) {
    piece += shape.item(JSON.stringify(event), count === 0);
    count += 1;
    if (piece.length >= pieceBytes) await flush();
    if (count >= max) break;
  }
  piece += shape.close;
  await flush();
  answer.end();
};

export const journalHandlers = (deps: Deps): DeploymentHandlers => ({
  plain: {
    journal_append: async (request) => ({ status: 201, body: await append(deps, request) }),
  },
  streams: {
    journal_events: async (request, answer) => {
      const { stream_id, after = '', limit = limits.journalPageEvents } = request.query as z.output<typeof journalQuery>;
      await writeEvents(eventsAfter(deps, addressOf(request, stream_id), after), answer, page, limit);
    },
    journal_export: async (request, answer) => {
      const { stream_id, after = '' } = request.query as z.output<typeof exportQuery>;
      await writeEvents(eventsAfter(deps, addressOf(request, stream_id), after), answer, lines, Infinity);
    },
  },
});
