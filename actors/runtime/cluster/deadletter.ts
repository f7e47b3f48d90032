/**
 * Durable messages that could not be handled: list them, send one again, or drop it.
 *
 * Guarantees: a dead letter keeps its message's bytes, id and reason until it is replayed or dropped. A replay keeps the
 * message id, so an actor that handled it after all changes nothing; the inbox' own dedup window sees a fresh id, so the
 * replay is not swallowed. The dead letter is removed only after the inbox has stored it again.
 */
import { ulid } from 'ulid';
import { coded } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { parseInboxSubject, streams, type ActorAddress } from '../../../contracts/subjects.ts';
import type { Lean } from '../nats/lean.ts';
import type { Inbox } from '../store.ts';

export const deadLetterHeaders = {
  /** Code of the last error. */
  code: 'Troupe-Error',
  /** Its safe message. */
  message: 'Troupe-Error-Message',
  /** The inbox subject it came by. */
  subject: 'Troupe-Subject',
  /** Deliveries as the server counted them. */
  deliveries: 'Troupe-Deliveries',
  /** The message id, if the message could be read. */
  id: 'Troupe-Id',
} as const;

export interface DeadLetter {
  /** Stream sequence: names the dead letter. */
  readonly seq: number;
  /** Undefined if the subject was no actor's. */
  readonly address: ActorAddress | undefined;
  readonly command: string;
  readonly id: string;
  readonly code: string;
  readonly message: string;
  readonly deliveries: number;
  /** RFC 3339 time at which it was given up. */
  readonly at: string;
  /** The message as it lay in the inbox. */
  readonly body: string;
}

export interface DeadLetters {
  /** Dead letters with a sequence above `after`, oldest first; at most `limit`. */
  list(options?: { readonly after?: number; readonly limit?: number }): Promise<readonly DeadLetter[]>;
  /** Sends one again and removes it. Throws `not_found`. */
  replay(seq: number): Promise<void>;
  /** Removes one. Throws `not_found`. */
  drop(seq: number): Promise<void>;
}

interface ApiReply { readonly success?: boolean; readonly error?: { readonly err_code?: number } }

export const createDeadLetters = (lean: Lean, inbox: Inbox): DeadLetters => {
  const timeoutMs = limits.appendAckMs;
  const read = async (after: number, limit: number): Promise<{ letter: DeadLetter; subject: string }[]> => {
    const letters: { letter: DeadLetter; subject: string }[] = [];
    await lean.requestMany(`$JS.API.DIRECT.GET.${streams.deadLetter}`, JSON.stringify({ seq: after + 1, next_by_subj: 'deadletter.>', batch: limit }), {
      timeoutMs,
      onMessage: (msg) => {
        const head = msg.headers;
        const status = head?.code ?? 0;
        if (status === 204 || status === 404) return true;
        if (status >= 400 || head === undefined) throw coded('journal_unavailable', 'The dead letters cannot be read.');
        const subject = head.get(deadLetterHeaders.subject);
        let target: (ActorAddress & { command: string }) | undefined;
        try {
          target = parseInboxSubject(subject);
        } catch {
          // Buried because of that very subject; it is shown without an address.
          target = undefined;
        }
        letters.push({
          subject,
          letter: {
            seq: Number(head.get('Nats-Sequence')),
            address: target === undefined ? undefined : { org: target.org, type: target.type, key: target.key },
            command: target?.command ?? '',
            id: head.get(deadLetterHeaders.id),
            code: head.get(deadLetterHeaders.code),
            message: head.get(deadLetterHeaders.message),
            deliveries: Number(head.get(deadLetterHeaders.deliveries)),
            at: head.get('Nats-Time-Stamp'),
            body: msg.string(),
          },
        });
        return false;
      },
    });
    return letters;
  };
  const remove = async (seq: number): Promise<void> => {
    const reply = await lean.request(`$JS.API.STREAM.MSG.DELETE.${streams.deadLetter}`, JSON.stringify({ seq, no_erase: true }), { timeoutMs });
    const { error } = reply.json<ApiReply>();
    if (error === undefined) return;
    // 10057: sequence not found; 10043: message delete failed because it is gone.
    if (error.err_code === 10043 || error.err_code === 10057) throw coded('not_found');
    throw coded('journal_unavailable', 'The dead letter cannot be removed.', { cause: error });
  };

  return {
    async list({ after = 0, limit = limits.deadLettersListMax } = {}) {
      return (await read(after, Math.min(limit, limits.deadLettersListMax))).map(({ letter }) => letter);
    },
    async replay(seq) {
      const [found] = await read(seq - 1, 1);
      if (found === undefined || found.letter.seq !== seq) throw coded('not_found');
      await inbox.send(found.subject, `${found.letter.id}-replay-${ulid()}`, new TextEncoder().encode(found.letter.body));
      await remove(seq);
    },
    drop: remove,
  };
};
