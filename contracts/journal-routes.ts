/** Routes of a deployment's services: client streams in the journal (interface 4.7; decisions, Deployment services; JRN). */
import { z } from 'zod';
import { deploymentRoute } from './deployment.ts';
import { eventEnvelope } from './event.ts';
import { limits } from './limits.ts';

const streamId = z.string().min(1).max(limits.streamIdMaxChars).refine((id) => id.isWellFormed(), { error: 'must be well-formed Unicode' });
const cursor = z.string().regex(/^[0-7][0-9A-HJKMNP-TV-Z]{25}$/, { error: 'must be the id of an event (a ULID)' });
/** A JSON object, kept as it came: zod's record would leave a member `__proto__` out without a word, so it is refused. */
const payload = z.unknown()
  .refine((value) => typeof value !== 'object' || value === null || !Object.hasOwn(value, '__proto__'), { error: 'must have no member __proto__', abort: true })
  .pipe(z.record(z.string(), z.unknown())).meta({ type: 'object', additionalProperties: {} });

/** Adds events to a stream. `expected_last_id`: id of the event that must be the stream's last, empty = it must have none. */
export const appendBody = z.strictObject({
  stream_id: streamId,
  events: z.array(z.strictObject({
    kind: z.string().min(1).max(limits.eventKindMaxChars),
    payload,
    /** The client's own notes; not part of the checksum. */
    metadata: payload.optional(),
    /** Counts per stream, for 24 hours: a second event with it is not stored. */
    idempotency_key: z.string().min(1).max(limits.idempotencyKeyMaxChars).optional(),
    /** Taken and ignored: ids are the server's (JRN-022). */
    id: z.unknown().optional(),
  })).min(1).max(limits.appendEventsMax),
  expected_last_id: z.union([cursor, z.literal('')]).optional(),
});

export const appendAnswer = z.strictObject({
  events: z.array(eventEnvelope.omit({ payload: true, metadata: true })),
  last_id: z.string(),
});

/** Query of a page: `limit` above the largest page is the largest page. */
export const journalQuery = z.strictObject({
  stream_id: streamId, after: cursor.optional(),
  limit: z.string().regex(/^[1-9]\d{0,8}$/, { error: 'must be a whole number from 1' }).transform((text) => Math.min(Number(text), limits.journalPageEventsMax)).optional(),
});
export const exportQuery = journalQuery.omit({ limit: true });

const base = { surface: 'deployment', auth: { kind: 'deployment' } } as const;

export const journalRoutes = {
  journal_append: deploymentRoute({
    ...base, id: 'journal_append', wire: 310, method: 'POST', path: '/v1/journal/append', summary: 'Appends events to a stream, all or none. They never change.',
    body: appendBody, bodyMaxBytes: limits.appendMaxBytes, answers: { 201: appendAnswer },
    errors: ['unauthorized', 'invalid_argument', 'sequence_conflict', 'payload_too_large', 'rate_limited'], serve: { by: 'daemon' },
  }),
  journal_events: deploymentRoute({
    ...base, id: 'journal_events', wire: 311, console: 411, method: 'GET', path: '/v1/journal/events', summary: 'Events of a stream in append order, after a cursor. An unknown stream has none.',
    query: journalQuery, bodyMaxBytes: 0, answers: { 200: z.strictObject({ events: z.array(eventEnvelope) }) }, errors: ['unauthorized', 'invalid_argument'], serve: { by: 'stream' },
  }),
  journal_export: deploymentRoute({
    ...base, id: 'journal_export', wire: 312, console: 412, method: 'GET', path: '/v1/journal/export', summary: 'A whole stream as JSON lines (application/x-ndjson), one event each.',
    query: exportQuery, bodyMaxBytes: 0, answers: { 200: 'text' }, errors: ['unauthorized', 'invalid_argument'], serve: { by: 'stream' },
  }),
} as const;
