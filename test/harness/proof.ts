/**
 * What must hold after a fault run, checked against the journals themselves: what clients got, what the journal says, what a
 * fresh replay shows and what the script asked for are one and the same (G1, G2, G3, G4, G6).
 */
import assert from 'node:assert/strict';
import { definitions } from '../../actors/definitions.ts';
import { memoryBlobs } from '../../actors/blobs/memory.ts';
import { mock } from '../../actors/providers/mock.ts';
import { createRegistry } from '../../actors/providers/registry.ts';
import { builtinTools } from '../../actors/tools/index.ts';
import { framesOf } from '../../actors/daemon/frames.ts';
import { decodeCommit, hashOf } from '../../actors/runtime/commit.ts';
import { compile, type Compiled } from '../../actors/runtime/compile.ts';
import type { ActorDefinition } from '../../actors/runtime/define.ts';
import { emptyCore, foldCommit, type Core } from '../../actors/runtime/fold.ts';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { createNatsStores } from '../../actors/runtime/nats/stores.ts';
import { decodeSnapshot, encodeBody, encodeSnapshot } from '../../actors/runtime/snapshot.ts';
import type { StoredMessage } from '../../actors/runtime/store.ts';
import { modelEntry } from '../../contracts/config.ts';
import { runtimeKinds, type Commit, type StoredEvent } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import { eventsSubject, journalSubject, partitionOf, snapshotSubject, type ActorAddress } from '../../contracts/subjects.ts';
import type { StreamEvent } from '../../gateway/client/index.ts';
import { turnProblem, turnsOf } from './script.ts';
import type { Talker } from './talker.ts';

export interface Journals {
  messages(address: ActorAddress): Promise<StoredMessage[]>;
  commits(address: ActorAddress): Promise<Commit[]>;
  events(address: ActorAddress): Promise<StoredEvent[]>;
  snapshot(address: ActorAddress): Promise<StoredMessage | undefined>;
  /** The actor's events once the test holds for them; looked at after each of its commits. */
  until(address: ActorAddress, test: (events: readonly StoredEvent[]) => boolean): Promise<StoredEvent[]>;
  close(): Promise<void>;
}

/** Reads actors' journals straight from NATS. */
export const openJournals = async (url: string, partitions: number = limits.partitions, login: { readonly user?: string; readonly password?: string } = {}): Promise<Journals> => {
  const nc = await connectNats({ url, name: 'proof', ...login });
  const { journal, snapshots, feed, lean } = createNatsStores(nc, { partitions, journalStreams: 1, replicas: 1 });
  const messages = async (address: ActorAddress): Promise<StoredMessage[]> => {
    const subject = journalSubject(partitionOf(address, partitions), address);
    const last = await journal.last(subject);
    const all: StoredMessage[] = [];
    if (last === undefined) return all;
    for await (const batch of journal.read(subject, 0, last.seq)) all.push(...batch);
    return all;
  };
  const commits = async (address: ActorAddress): Promise<Commit[]> => (await messages(address)).map((m) => decodeCommit(m.data));
  const events = async (address: ActorAddress): Promise<StoredEvent[]> => (await commits(address)).flatMap((c) => [...c.ev]);
  return {
    messages, commits, events,
    until: async (address, test) => {
      const found = Promise.withResolvers<StoredEvent[]>();
      const look = (): void => { events(address).then((all) => { if (test(all)) found.resolve(all); }, found.reject); };
      const watch = await feed.watch(eventsSubject(address), look, look);
      look();
      return found.promise.finally(() => { watch.stop(); });
    },
    snapshot: (address) => snapshots.get(snapshotSubject(partitionOf(address, partitions), address)),
    close: async () => {
      lean.close();
      await nc.close();
    },
  };
};

/** Today's definitions, as a daemon has them, for folding only. */
const today = new Map<string, Compiled>();
export const definitionOf = (type: string): ActorDefinition => {
  const registry = createRegistry({ default: 'mock', registry: [modelEntry.parse({ id: 'mock', provider: 'mock' })] }, { mock: mock() });
  const found = definitions({ registry, tools: builtinTools({ fetchAllow: [] }), blobs: memoryBlobs() }).find((d) => d.type === type);
  if (found === undefined) throw new TypeError(`there is no actor type ${type}`);
  return found;
};
const compiledOf = (type: string): Compiled => {
  const known = today.get(type) ?? compile(definitionOf(type));
  today.set(type, known);
  return known;
};

const fold = (self: ActorAddress, compiled: Compiled, core: Core, messages: readonly StoredMessage[]): Core => {
  for (const m of messages) foldCommit(compiled, core, decodeCommit(m.data), m.seq, hashOf(m.data), self);
  return core;
};
/** A core whole, as bytes: the actor's state and the runtime's beside it, with its place in the journal. */
const bytes = (compiled: Compiled, core: Core): string => Buffer.from(encodeSnapshot(encodeBody(compiled, core), core)).toString('utf8');

/** The fold of all messages, as bytes. */
export const foldedBytes = (address: ActorAddress, messages: readonly StoredMessage[]): string => {
  const compiled = compiledOf(address.type);
  return bytes(compiled, fold(address, compiled, emptyCore(compiled, address), messages));
};

/**
 * G6: the fold from zero, from the snapshot a host wrote and the tail, and from a snapshot taken after any commit and its tail are
 * the same bytes. Gives whether there was a stored snapshot.
 */
export const assertFoldsAlike = async (journals: Journals, address: ActorAddress, cuts: number): Promise<boolean> => {
  const compiled = compiledOf(address.type);
  const messages = await journals.messages(address);
  const whole = foldedBytes(address, messages);
  const from = (data: Uint8Array, what: string): void => {
    const core = decodeSnapshot(compiled, data);
    assert.ok(core !== undefined, `${address.key}: ${what} cannot be read`);
    const tail = messages.filter((m) => m.seq > core.seq);
    assert.equal(bytes(compiled, fold(address, compiled, core, tail)), whole, `${address.key}: ${what} and the tail give another state`);
  };
  for (let cut = 1; cut <= cuts; cut++) {
    const upTo = Math.floor((messages.length * cut) / (cuts + 1));
    const core = fold(address, compiled, emptyCore(compiled, address), messages.slice(0, upTo));
    if (upTo > 0) from(encodeSnapshot(encodeBody(compiled, core), core), `a snapshot after commit ${upTo}`);
  }
  const stored = await journals.snapshot(address);
  if (stored !== undefined) from(stored.data, 'the stored snapshot');
  return stored !== undefined;
};

const count = (events: readonly StoredEvent[], kind: string): number => events.filter((e) => e.k === kind).length;
const frame = ({ seq_no, record, agent_kind }: StreamEvent): string => JSON.stringify({ kind: 'agent_event', seq_no, record, agent_kind });

/** L2 and the journaled side of "at most once": what a tool that must not run twice may look like in a journal. */
const assertTools = (sid: string, events: readonly StoredEvent[]): void => {
  const idempotent = new Map([...builtinTools({ fetchAllow: [] }).values()].map((t) => [t.name, t.idempotent]));
  const calls = new Map<string, { name: string; started: number; results: number; interrupted: boolean }>();
  const open = new Set<string>();
  for (const event of events) {
    const id = String(event.d['call_id']);
    const call = calls.get(id);
    switch (event.k) {
      case 'ToolCall':
        assert.equal(call, undefined, `${sid}: call ${id} twice`);
        calls.set(id, { name: String(event.d['tool_name']), started: 0, results: 0, interrupted: false });
        break;
      case 'ToolStarted':
        assert.ok(call, `${sid}: ${id} started without a call`);
        call.started += 1;
        open.add(id);
        break;
      case 'ToolResult': {
        assert.ok(call, `${sid}: a result without a call`);
        call.results += 1;
        open.delete(id);
        // A tool that may run once only, whose host was lost before its end was journaled, may never report success.
        if (call.interrupted && idempotent.get(call.name) === false) assert.equal(event.d['is_error'], true, `${sid}: ${call.name} ${id} was run again`);
        break;
      }
      case runtimeKinds.epoch:
        for (const running of open) {
          const lost = calls.get(running);
          if (lost !== undefined) lost.interrupted = true;
        }
        break;
    }
  }
  for (const [id, call] of calls) {
    assert.equal(call.results, 1, `${sid}: ${call.name} ${id} has ${call.results} results`);
    assert.ok(call.started <= 1, `${sid}: ${call.name} ${id} started ${call.started} times`);
  }
};

/** Everything a run of talkers must have left behind. Call it when all have come to rest. Gives the events delivered and the snapshots found. */
export const assertNothingLost = async (journals: Journals, talkers: readonly Talker[]): Promise<{ readonly delivered: number; readonly turns: number; readonly snapshots: number }> => {
  let delivered = 0;
  let turns = 0;
  let snapshots = 0;
  for (const talker of talkers) {
    const { sid, org, said } = talker;
    assert.equal(talker.failure, undefined);
    const address: ActorAddress = { org, type: 'session', key: sid };
    const messages = await journals.messages(address);
    const commits = messages.map((m) => decodeCommit(m.data));
    const events = commits.flatMap((c) => [...c.ev]);
    const epochs = commits.map((c) => c.e);
    assert.deepEqual(epochs, epochs.toSorted((a, b) => a - b), `${sid}: an older epoch wrote after a newer one`);

    // What the client got is what the journal says, and what a client that comes now is shown.
    const got = talker.events.map(frame);
    const journaled = messages.flatMap((m) => framesOf(sid, m.seq, m.data, (event) => event.d).texts.map((text) => text.toString('utf8')));
    assert.deepEqual(talker.events.map((e) => e.seq_no), journaled.map((_, i) => i + 1), `${sid}: the client has not exactly 1 to ${journaled.length}`);
    assert.deepEqual(got, journaled, `${sid}: the client got something else than the journal holds`);
    assert.deepEqual((await talker.replay(journaled.length)).map(frame), journaled, `${sid}: a fresh replay differs`);

    // Every message led to exactly one turn, in order, and every turn is the script's.
    const ids = events.filter((e) => e.k === 'UserMessage').map((e) => e.d['message_id']);
    assert.deepEqual(ids, said.map((s) => s.messageId), `${sid}: messages in the journal`);
    assert.equal(count(events, 'RunStarted'), said.length, `${sid}: runs started`);
    assert.equal(count(events, 'RunFinished') + count(events, 'RunErrored'), said.length, `${sid}: runs ended`);
    const shown = turnsOf(talker.events);
    assert.deepEqual(shown.rest, [], `${sid}: events after the last turn`);
    assert.equal(shown.turns.length, said.length);
    for (const [i, turn] of shown.turns.entries()) {
      const problem = turnProblem(said[i]?.script ?? '', turn);
      assert.equal(problem, undefined, `${sid}: turn ${i + 1} of\n${said[i]?.script}\n${problem}`);
    }
    assertTools(sid, events);

    // The outside of the tool that must not run twice: the agent's own journal.
    const agent: ActorAddress = { org, type: 'agent', key: `agent-${sid}` };
    const filed = (await journals.events(agent)).filter((e) => e.k === 'ReportFiled').map((e) => String(e.d['body']));
    assert.equal(new Set(filed).size, filed.length, `${sid}: a report was filed twice: ${filed.join(', ')}`);
    const reported = talker.events.filter((e) => e.agent_kind === 'TOOL_RESULT' && e.payload.tool_name === 'send_report' && !e.payload.is_error).length;
    assert.ok(reported <= filed.length, `${sid}: ${reported} reports were said to be filed, ${filed.length} are`);

    for (const actor of [address, agent]) if (await assertFoldsAlike(journals, actor, 4)) snapshots += 1;
    delivered += got.length;
    turns += said.length;
  }
  return { delivered, turns, snapshots };
};
