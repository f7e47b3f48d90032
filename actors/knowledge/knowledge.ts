/**
 * The knowledge actor: which documents a deployment has, under which ids. Contract: contracts/knowledge.ts.
 *
 * Guarantees: a change is journaled before anybody hears of it; its journal, in order, is the index (service.ts reads it, the actor is not asked when
 * somebody searches). Ids are decided here, in the turn, so two paths never get one. The same content again changes nothing, so every command
 * may be repeated. It holds no text and no title (ledger.ts): 10,000 notes are 390 KiB of state.
 */
import { coded } from '../../contracts/errors.ts';
import { knowledgeCommands, knowledgeEvents } from '../../contracts/knowledge.ts';
import { limits } from '../../contracts/limits.ts';
import { defineActor } from '../runtime/define.ts';
import { emptyLedger, holds, idFor, indexed, isKnown, removed, sizeIn } from './ledger.ts';

/** A snapshot is as large as the ledger: it is written seldom. */
const snapshotEvery = 2_000;

/** The knowledge actor's definition. */
export const knowledge = () => defineActor({
  type: 'knowledge',
  events: knowledgeEvents,
  initial: emptyLedger,
  snapshotEvery,
  apply: {
    KnowledgeIndexed: indexed,
    KnowledgeRemoved: (ledger, { id }) => removed(ledger, id),
  },
  commands: (command) => ({
    look: command({
      ...knowledgeCommands.look, access: 'system',
      handle: ({ state }, { documents }) => ({
        documents: documents.map(({ path, hash }) => {
          const id = idFor(state, path);
          return { id, known: isKnown(state, id, path, hash) };
        }),
      }),
    }),
    index: command({
      ...knowledgeCommands.index, access: 'system',
      handle: (turn, { documents }) => ({
        documents: documents.map((document) => {
          const id = idFor(turn.state, document.path);
          if (isKnown(turn.state, id, document.path, document.hash)) return { id, indexed: false };
          if (!holds(turn.state, id) && turn.state.documents >= limits.knowledgeDocumentsMax) {
            throw coded('payload_too_large', `A deployment holds at most ${limits.knowledgeDocumentsMax} documents.`);
          }
          if (turn.state.bytes - sizeIn(turn.state, id) + document.size > limits.knowledgeMaxBytes) {
            throw coded('payload_too_large', `The documents of a deployment hold at most ${limits.knowledgeMaxBytes} bytes together.`);
          }
          turn.emit('KnowledgeIndexed', { id, ...document });
          return { id, indexed: true };
        }),
      }),
    }),
    remove: command({
      ...knowledgeCommands.remove, access: 'system',
      handle: (turn, { id }) => {
        if (!holds(turn.state, id)) return { removed: false };
        turn.emit('KnowledgeRemoved', { id });
        return { removed: true };
      },
    }),
    measure: command({ ...knowledgeCommands.measure, access: 'system', handle: ({ state: { documents, bytes } }) => ({ documents, bytes }) }),
  }),
});
