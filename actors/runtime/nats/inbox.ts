/**
 * Durable tells into the work-queue stream INBOX. At least once: the id makes a repeat within `limits.inboxDedupMs` one
 * message, later repeats are recognised by the actor's own dedup set. Consuming them is the cluster part's.
 */
import type { Inbox } from '../store.ts';
import { HeaderLine } from './header.ts';
import type { Lean } from './lean.ts';
import { publishStored } from './publish.ts';

/** Ids that may stand in a header line; anything else is encoded. */
const plainId = /^[\x21-\x7e]{1,256}$/;

/** Makes the sender. `send` throws `overloaded` (inbox full), `payload_too_large`, `journal_unavailable`. */
export const createNatsInbox = (lean: Lean): Inbox => ({
  send: async (subject, id, data) => {
    const header = plainId.test(id) && !id.startsWith('=') ? id : `=${Buffer.from(id, 'utf8').toString('base64url')}`;
    await publishStored(lean, subject, data, new HeaderLine('Nats-Msg-Id', header));
  },
});
