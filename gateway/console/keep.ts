/**
 * What the page keeps for the length of a browser tab (sessionStorage): the token of the sign-in link, and for each
 * session the messages written here. Nothing outlives the tab, nothing is shared with other tabs.
 */
import { limits } from '../../contracts/limits.ts';
import type { PendingMessage } from '../client/outbox.ts';
import type { Mine } from './conversation.ts';

export interface KeptSession {
  readonly model: string;
  readonly mine: readonly Mine[];
  readonly pending: readonly PendingMessage[];
}

const tokenKey = 'troupe.token';
const sessionKey = (sid: string): string => `troupe.session.${sid}`;
const nothing: KeptSession = { model: '', mine: [], pending: [] };

type Fields = Readonly<Record<string, unknown>>;
const fieldsOf = (value: unknown): Fields => (typeof value === 'object' && value !== null ? { ...value } : {});
const listOf = (value: unknown): Fields[] => (Array.isArray(value) ? value.map(fieldsOf) : []);
const isMine = (value: Fields): boolean => typeof value['messageId'] === 'string' && typeof value['content'] === 'string' && typeof value['after'] === 'number';
const readMine = (value: Fields): Mine => ({
  messageId: String(value['messageId']), content: String(value['content']), after: Number(value['after']),
  ...(typeof value['attachment'] === 'string' ? { attachment: value['attachment'] } : {}),
});

export const keepToken = (storage: Storage, token: string): void => { storage.setItem(tokenKey, token); };
export const keptToken = (storage: Storage): string | undefined => storage.getItem(tokenKey) ?? undefined;
export const forgetToken = (storage: Storage): void => { storage.removeItem(tokenKey); };

/** What was kept of a session; whatever cannot be read counts as nothing. */
export const keptSession = (storage: Storage, sid: string): KeptSession => {
  const text = storage.getItem(sessionKey(sid));
  if (text === null) return nothing;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return nothing;
  }
  const fields = fieldsOf(value);
  return {
    model: typeof fields['model'] === 'string' ? fields['model'] : '',
    mine: listOf(fields['mine']).filter(isMine).map(readMine),
    pending: listOf(fields['pending']).filter(isMine).map((p) => ({ ...readMine(p), behindOther: p['behindOther'] === true })),
  };
};

/** False if the browser has no room: the page goes on, but a reload will not show these messages. */
export const keepSession = (storage: Storage, sid: string, kept: KeptSession): boolean => {
  try {
    storage.setItem(sessionKey(sid), JSON.stringify({ ...kept, mine: kept.mine.slice(-limits.clientEntriesMax) }));
    return true;
  } catch {
    return false;
  }
};
