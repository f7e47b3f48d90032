/**
 * A KV bucket (NATS ADR-8) by its stream protocol: leader reads, compare-and-set writes, batched listing, change hints.
 *
 * Guarantees: `put` and `remove` store only if `expected` is the key's last revision, else they give `conflict`; `get` is
 * a leader read. `list` may be answered by a follower and so may be stale: whatever is decided by it is confirmed by a
 * compare-and-set. Hints come from the write's own core message, also when the write was refused: a reason to look, never
 * a fact. A write whose answer is lost throws, its outcome unknown.
 */
import { headers, type NatsConnection } from 'nats';
import { coded } from '../../../contracts/errors.ts';
import type { Lean } from '../nats/lean.ts';

export interface Entry {
  readonly key: string;
  /** Stream sequence of the last write, also of a removal; 0 if the key was never written. */
  readonly revision: number;
  /** Undefined if removed or never written. */
  readonly value: string | undefined;
}
export type Written = { readonly ok: true; readonly revision: number } | { readonly ok: false; readonly reason: 'conflict' };

export interface Bucket {
  get(key: string, timeoutMs: number): Promise<Entry>;
  put(key: string, value: string, expected: number, timeoutMs: number): Promise<Written>;
  remove(key: string, expected: number, timeoutMs: number): Promise<Written>;
  /** Entries of the keys given (`*` = every key, at most 1,024), removed ones included. */
  list(keys: readonly string[], timeoutMs: number): Promise<readonly Entry[]>;
  /** Calls back on every attempt to write; `value` undefined = removal. */
  hints(onHint: (key: string, value: string | undefined) => void): { stop(): void };
}

interface ApiError { readonly code?: number; readonly err_code?: number; readonly description?: string }
interface PubAck { readonly seq?: number; readonly error?: ApiError }
interface StoredReply { readonly error?: ApiError; readonly message?: { readonly seq: number; readonly data?: string; readonly hdrs?: string } }

/** Both forms of "wrong last sequence" (notes/jetstream 6), and "no message found". */
const wrongLast: ReadonlySet<number | undefined> = new Set([10071, 10164]);
const noMessage = 10037;
/** Subjects of one batched read; the server refuses more than 1,024. */
const listBatch = 512;

const removedMark = (operation: string): boolean => operation === 'DEL' || operation === 'PURGE';

export const createBucket = (nc: NatsConnection, lean: Lean, name: string): Bucket => {
  const stream = `KV_${name}`;
  const prefix = `$KV.${name}.`;

  const write = async (key: string, value: string, expected: number, removal: boolean, timeoutMs: number): Promise<Written> => {
    const head = headers();
    head.set('Nats-Expected-Last-Subject-Sequence', String(expected));
    if (removal) head.set('KV-Operation', 'DEL');
    const reply = await lean.request(prefix + key, value, { headers: head, timeoutMs });
    const ack = reply.json<PubAck>();
    if (ack.error === undefined && ack.seq !== undefined) return { ok: true, revision: ack.seq };
    if (wrongLast.has(ack.error?.err_code)) return { ok: false, reason: 'conflict' };
    throw coded('journal_unavailable', 'The lease bucket refused a write.', { cause: ack.error });
  };

  return {
    async get(key, timeoutMs) {
      const reply = await lean.request(`$JS.API.STREAM.MSG.GET.${stream}`, JSON.stringify({ last_by_subj: prefix + key }), { timeoutMs });
      const found = reply.json<StoredReply>();
      if (found.error?.err_code === noMessage) return { key, revision: 0, value: undefined };
      if (found.message === undefined) throw coded('journal_unavailable', 'The lease bucket refused a read.', { cause: found.error });
      const head = found.message.hdrs === undefined ? '' : Buffer.from(found.message.hdrs, 'base64').toString('latin1');
      const removed = /^KV-Operation: *(DEL|PURGE)\r?$/m.test(head);
      return { key, revision: found.message.seq, value: removed ? undefined : Buffer.from(found.message.data ?? '', 'base64').toString('utf8') };
    },
    put: (key, value, expected, timeoutMs) => write(key, value, expected, false, timeoutMs),
    remove: (key, expected, timeoutMs) => write(key, '', expected, true, timeoutMs),
    async list(keys, timeoutMs) {
      const entries: Entry[] = [];
      for (let at = 0; at < keys.length; at += listBatch) {
        const subjects = keys.slice(at, at + listBatch).map((key) => prefix + key);
        // One batch in flight bounds what the server holds for us.
        await lean.requestMany(`$JS.API.DIRECT.GET.${stream}`, JSON.stringify({ multi_last: subjects }), {
          timeoutMs,
          onMessage: (msg) => {
            const status = msg.headers?.code ?? 0;
            if (status === 204 || status === 404) return true;
            if (status >= 400) throw coded('journal_unavailable', 'The lease bucket refused a listing.');
            const subject = msg.headers?.get('Nats-Subject') ?? '';
            const removed = removedMark(msg.headers?.get('KV-Operation') ?? '');
            entries.push({
              key: subject.slice(prefix.length),
              revision: Number(msg.headers?.get('Nats-Sequence')),
              value: removed ? undefined : msg.string(),
            });
            return false;
          },
        });
      }
      return entries;
    },
    hints(onHint) {
      const subscription = nc.subscribe(`${prefix}>`, {
        callback: (error, msg) => {
          if (error !== null) return;
          const removed = removedMark(msg.headers?.get('KV-Operation') ?? '');
          onHint(msg.subject.slice(prefix.length), removed ? undefined : msg.string());
        },
      });
      return { stop: () => subscription.unsubscribe() };
    },
  };
};
