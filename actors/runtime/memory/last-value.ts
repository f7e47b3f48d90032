/** Last values in process (store.ts `LastValue`): snapshots and the reminder index. `down` makes every operation fail. */
import { coded } from '../../../contracts/errors.ts';
import type { LastValue, StoredMessage } from '../store.ts';

export interface MemoryLastValue extends LastValue {
  /** Every operation throws `journal_unavailable` until called with false. */
  down(down: boolean): void;
  /** What was written and deleted, in order: for tests about order. */
  readonly writes: readonly { readonly kind: 'put' | 'delete'; readonly subject: string; readonly data: Uint8Array | undefined }[];
}

/** NATS wildcards: `*` is one token, a final `>` is one or more. */
const matches = (filter: string, subject: string): boolean => {
  const wanted = filter.split('.');
  const tokens = subject.split('.');
  for (const [i, token] of wanted.entries()) {
    if (token === '>') return tokens.length > i;
    if (tokens[i] === undefined || (token !== '*' && token !== tokens[i])) return false;
  }
  return tokens.length === wanted.length;
};

export const createMemoryLastValue = (now: () => number): MemoryLastValue => {
  const values = new Map<string, StoredMessage>();
  const writes: { kind: 'put' | 'delete'; subject: string; data: Uint8Array | undefined }[] = [];
  let seq = 0;
  let isDown = false;
  const reachable = (): void => {
    if (isDown) throw coded('journal_unavailable');
  };
  return {
    writes,
    down(down) { isDown = down; },
    async get(subject) {
      reachable();
      return values.get(subject);
    },
    async put(subject, data) {
      reachable();
      seq += 1;
      values.set(subject, { subject, seq, time: now(), data });
      writes.push({ kind: 'put', subject, data });
    },
    async delete(subject) {
      reachable();
      values.delete(subject);
      writes.push({ kind: 'delete', subject, data: undefined });
    },
    async list(filter) {
      reachable();
      return [...values.values()].filter((message) => matches(filter, message.subject));
    },
  };
};
