/**
 * The edge's HTTP routes as a client calls them: create, resume or list sessions, store an attachment, ask for health.
 *
 * Every call has a deadline. A refusal of the server arrives as `CodedError` with the server's code and message; a server
 * that cannot be reached as `upstream_unavailable`, one that does not answer in time as `deadline_exceeded`, an answer
 * that is none of ours as `upstream_error`. Nothing is retried here: create_session has no idempotency key.
 */
import { CodedError, coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { ChatSession, SessionList, SessionSummary } from '../../contracts/session.ts';

/** What is used of a fetch answer; satisfied by the DOM's and by undici's. */
export interface EdgeAnswer {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  text(): Promise<string>;
}
export type EdgeFetch = (
  url: string,
  init: { method: string; headers: Record<string, string>; body?: string | Uint8Array<ArrayBuffer>; signal: AbortSignal; redirect: 'error' },
) => Promise<EdgeAnswer>;

export interface EdgeOptions {
  /** Of the gateway, e.g. `https://127.0.0.1:8443`. */
  readonly url: string;
  /** Tier 1 bearer, asked for anew with every request. */
  readonly token: () => string | Promise<string>;
  readonly fetch: EdgeFetch;
}

export interface Edge {
  /** 201. Refusals: `unauthorized`, `user_id_mismatch`, `bad_user_id`, `model_not_supported`, `rate_limited`. */
  createSession(input: { userId: string; projectId: string; label?: string; model?: string }): Promise<ChatSession>;
  /** The caller's own session again; `session_not_found` for any other. */
  resumeSession(input: { userId: string; projectId: string; sid: string }): Promise<ChatSession>;
  /** A page of the caller's own sessions, newest first. `limit` 1 to `limits.sessionListMax`. `upstream_unavailable` where there is no list now. */
  listSessions(input?: { limit?: number; cursor?: string }): Promise<SessionList>;
  /** Stores at most `limits.attachmentMaxBytes`; `hash` is the `attachment_blob_ref` of a message. */
  putBlob(bytes: Uint8Array<ArrayBuffer>): Promise<{ hash: string; size: number }>;
  /** True while the gateway and its daemon answer. `upstream_unavailable` when the gateway does not. */
  healthy(): Promise<boolean>;
}

type Fields = Readonly<Record<string, unknown>>;
const fieldsOf = (value: unknown): Fields => (typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : {});

const parsed = (text: string): Fields => {
  try {
    return fieldsOf(JSON.parse(text));
  } catch {
    return {};
  }
};

const text = (body: Fields, field: string): string => {
  const value = body[field];
  if (typeof value !== 'string') throw coded('upstream_error', `The answer lacks ${field}.`);
  return value;
};
const whole = (body: Fields, field: string): number => {
  const value = body[field];
  if (!Number.isSafeInteger(value)) throw coded('upstream_error', `The answer lacks ${field}.`);
  return Number(value);
};

const readSession = (body: Fields): ChatSession => ({
  sid: text(body, 'sid'), agent_id: text(body, 'agent_id'), user_id: text(body, 'user_id'),
  project_id: text(body, 'project_id'), created_at_unix: whole(body, 'created_at_unix'),
});

const states = ['idle', 'running', 'waiting_approval'] as const;

const readSummary = (value: unknown): SessionSummary => {
  const body = fieldsOf(value);
  const usage = fieldsOf(body['usage']);
  const state = states.find((s) => s === body['state']);
  if (state === undefined) throw coded('upstream_error', 'The answer lacks state.');
  return {
    sid: text(body, 'sid'), agent_id: text(body, 'agent_id'), project_id: text(body, 'project_id'), model: text(body, 'model'), state,
    label: body['label'] === null ? null : text(body, 'label'),
    created_at: text(body, 'created_at'), last_event_at: text(body, 'last_event_at'), turns: whole(body, 'turns'),
    usage: { input_tokens: whole(usage, 'input_tokens'), output_tokens: whole(usage, 'output_tokens'), cost_cents: whole(usage, 'cost_cents') },
  };
};

const readList = (body: Fields): SessionList => {
  const { sessions, next_cursor: next, current } = body;
  if (!Array.isArray(sessions) || typeof current !== 'boolean') throw coded('upstream_error', 'The answer lacks sessions.');
  return { sessions: sessions.map(readSummary), next_cursor: next === null ? null : text(body, 'next_cursor'), current };
};

const refusalOf = (answer: EdgeAnswer, body: Fields): CodedError => {
  const { error, reason, message, ...details } = body;
  if (typeof error !== 'string') return coded('upstream_error', `The gateway answered ${answer.status} without an error code.`);
  const retryAfter = answer.headers.get('retry-after');
  // `reason` is the code itself where the edge shows one of its closed list.
  return new CodedError(typeof reason === 'string' ? reason : error, typeof message === 'string' ? message : undefined, {
    details: { ...details, status: answer.status, ...(retryAfter === null ? {} : { retry_after_sec: Number(retryAfter) }) },
  });
};

export const createEdge = (options: EdgeOptions): Edge => {
  const base = options.url.replace(/\/+$/, '');

  const call = async (method: string, path: string, auth: boolean, body?: { type: string; data: string | Uint8Array<ArrayBuffer> }): Promise<{ answer: EdgeAnswer; text: string }> => {
    const headers: Record<string, string> = { accept: 'application/json' };
    if (auth) headers['authorization'] = `Bearer ${await options.token()}`;
    if (body !== undefined) headers['content-type'] = body.type;
    const signal = AbortSignal.timeout(limits.clientRequestMs);
    try {
      const answer = await options.fetch(base + path, { method, headers, ...(body === undefined ? {} : { body: body.data }), signal, redirect: 'error' });
      return { answer, text: await answer.text() };
    } catch (cause) {
      if (signal.aborted) throw coded('deadline_exceeded', undefined, { cause });
      throw coded('upstream_unavailable', `The gateway at ${base} cannot be reached.`, { cause });
    }
  };

  const post = async (path: string, body: { type: string; data: string | Uint8Array<ArrayBuffer> }): Promise<Fields> => {
    const { answer, text: got } = await call('POST', path, true, body);
    const fields = parsed(got);
    if (answer.status !== 200 && answer.status !== 201) throw refusalOf(answer, fields);
    return fields;
  };
  const json = (value: Fields): { type: string; data: string } => ({ type: 'application/json', data: JSON.stringify(value) });

  return {
    createSession: async ({ userId, projectId, label, model }) => readSession(await post('/v1/agent/create_session', json({
      user_id: userId, project_id: projectId, ...(label === undefined ? {} : { label }), ...(model === undefined ? {} : { model }),
    }))),
    resumeSession: async ({ userId, projectId, sid }) =>
      readSession(await post('/v1/agent/create_session', json({ user_id: userId, project_id: projectId, resume_sid: sid }))),
    listSessions: async ({ limit, cursor } = {}) => {
      const query = new URLSearchParams({ ...(limit === undefined ? {} : { limit: String(limit) }), ...(cursor === undefined ? {} : { cursor }) }).toString();
      const { answer, text: got } = await call('GET', query === '' ? '/v1/agent/sessions' : `/v1/agent/sessions?${query}`, true);
      const fields = parsed(got);
      if (answer.status !== 200) throw refusalOf(answer, fields);
      return readList(fields);
    },
    putBlob: async (bytes) => {
      if (bytes.length > limits.attachmentMaxBytes) {
        throw coded('payload_too_large', `An attachment may have ${limits.attachmentMaxBytes} bytes; this one has ${bytes.length}.`);
      }
      const body = await post('/v1/agent/blobs', { type: 'application/octet-stream', data: bytes });
      return { hash: text(body, 'hash'), size: whole(body, 'size') };
    },
    healthy: async () => (await call('GET', '/healthz', false)).answer.status === 200,
  };
};
