/**
 * The past, as it was written (G6): journals of older versions of the code, committed beside this test, are activated, folded,
 * forked and shown today. The fixtures are never changed: a later version of the code must read them as they are.
 */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import type { NatsConnection } from 'nats';
import { z } from 'zod';
import { createHub } from '../../actors/daemon/hub.ts';
import { upcastBy } from '../../actors/daemon/upcast.ts';
import { initialSession } from '../../actors/session/state.ts';
import { decodeCommit } from '../../actors/runtime/commit.ts';
import { defineActor } from '../../actors/runtime/define.ts';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import { createNatsStores, type NatsStores } from '../../actors/runtime/nats/stores.ts';
import { replay } from '../../actors/runtime/replay.ts';
import { journalSubject, partitionOf, type ActorAddress } from '../../contracts/subjects.ts';
import { hostHere } from '../harness/cluster.ts';
import { silent } from '../harness/log.ts';
import { startNats, type NatsServer } from '../harness/nats.ts';
import { definitionOf } from '../harness/proof.ts';
import { TestOutlet, Viewer } from '../harness/viewer.ts';

const plan = { partitions: 1, journalStreams: 1, replicas: 1 };
let server: NatsServer;
let nc: NatsConnection;
let stores: NatsStores;
before(async () => {
  server = await startNats();
  nc = await connectNats({ url: server.url, name: 'versions' });
});
after(async () => {
  stores.lean.close();
  await nc.close();
  await server.stop();
});

const fixture = async (name: string): Promise<Buffer[]> =>
  (await readFile(new URL(`./fixtures/${name}`, import.meta.url), 'utf8')).trimEnd().split('\n').map((line) => Buffer.from(line));

/** An empty cluster, its journal holding exactly a fixture: its sequences are those that its chain names, its epoch the first. */
const journalOf = async (address: ActorAddress, lines: readonly Uint8Array[]): Promise<void> => {
  for (const name of ['JOURNAL_0', 'SNAPSHOT', 'REMINDER', 'INBOX', 'DEADLETTER', 'KV_hosts', 'KV_partitions']) await nc.request(`$JS.API.STREAM.DELETE.${name}`);
  await ensureStreams(nc, plan);
  stores = createNatsStores(nc, plan);
  let seq = 0;
  for (const line of lines) seq = await stores.journal.append(journalSubject(partitionOf(address, 1), address), line, seq);
  assert.equal(seq, lines.length);
};

/** A ledger in its third version: amounts became cents, then got a currency; a feed event was renamed inside. */
const ledger = defineActor({
  type: 'ledger',
  events: {
    booked: {
      version: 3, schema: z.object({ cents: z.int(), currency: z.string() }),
      upcast: {
        1: ({ euros, ...rest }) => ({ ...rest, cents: Math.round(Number(euros) * 100) }),
        2: (old) => ({ ...old, currency: 'EUR' }),
      },
    },
    TextDelta: { version: 2, schema: z.object({ text: z.string(), run_id: z.string(), step: z.int() }), upcast: { 1: ({ t, ...rest }) => ({ ...rest, text: t, step: 0 }) } },
    SessionCreated: z.object({ user_id: z.string() }),
  },
  initial: () => ({ cents: 0, currencies: [] as readonly string[], text: '' }),
  apply: {
    booked: (state, e) => ({ ...state, cents: state.cents + e.cents, currencies: [...new Set([...state.currencies, e.currency])] }),
    TextDelta: (state, e) => ({ ...state, text: state.text + e.text }),
    SessionCreated: (state) => state,
  },
  feed: { kinds: ['TextDelta'] },
  commands: (command) => ({
    book: command({ input: z.strictObject({ cents: z.int(), currency: z.string() }), output: z.object({ cents: z.int() }), handle: (turn, input) => { turn.emit('booked', input); return { cents: turn.state.cents }; } }),
    look: command({ input: z.strictObject({}), output: z.object({ cents: z.int(), currencies: z.array(z.string()), text: z.string() }), handle: (turn) => ({ ...turn.state, currencies: [...turn.state.currencies] }) }),
  }),
});
const address: ActorAddress = { org: 'acme', type: 'ledger', key: 'old' };
const messagesOf = (lines: readonly Uint8Array[]): { seq: number; data: Uint8Array }[] => lines.map((data, i) => ({ seq: i + 1, data }));

test('versions - a journal written by two older versions is activated by today\'s: upcast, continued in today\'s version, the same on the next host [G6]', async (t) => {
  const lines = await fixture('ledger-v1-v2.jsonl');
  await journalOf(address, lines);
  const expected = { cents: 1_050 + 250 - 300 + 99, currencies: ['EUR'], text: 'old words and newer' };
  assert.deepEqual(replay(ledger, address, messagesOf(lines)).state, expected);
  const start = async (host: string): ReturnType<typeof hostHere> => {
    const here = await hostHere({ url: server.url, config: { host, partitions: 1 }, definitions: [ledger] });
    await here.host.ready;
    return here;
  };
  const one = await start('one');
  const ref = one.host.actors.ref(ledger, 'acme', 'old');
  assert.deepEqual(await ref.ask.look({}), expected);
  assert.deepEqual(await ref.ask.book({ cents: 1, currency: 'USD' }), { cents: expected.cents + 1 });
  await one.stop();
  const two = await start('two');
  t.after(() => two.stop());
  assert.deepEqual(await two.host.actors.ref(ledger, 'acme', 'old').ask.look({}), { cents: expected.cents + 1, currencies: ['EUR', 'USD'], text: expected.text });
  // What was written before is untouched, what was written now says its version.
  const subject = journalSubject(0, address);
  const last = await stores.journal.last(subject);
  const all: Uint8Array[] = [];
  for await (const batch of stores.journal.read(subject, 0, last?.seq ?? 0)) for (const m of batch) all.push(m.data);
  assert.deepEqual(all.slice(0, lines.length).map(String), lines.map(String));
  const booked = all.flatMap((data) => [...decodeCommit(data).ev]).filter((e) => e.k === 'booked');
  assert.deepEqual(booked.map((e) => e.v ?? 1), [1, 1, 2, 2, 3]);
});

test('versions - every event of an old journal can be forked from, each with the state it had; beyond the last is refused [G6]', async () => {
  const lines = await fixture('ledger-v1-v2.jsonl');
  const messages = messagesOf(lines);
  const whole = replay(ledger, address, messages);
  const states = Array.from({ length: whole.number }, (_, i) => replay(ledger, address, messages, i + 1));
  assert.deepEqual(states.map((core) => core.number), states.map((_, i) => i + 1));
  assert.deepEqual(states.map(({ state }) => z.object({ cents: z.int() }).parse(state).cents), [0, 0, 0, 1_050, 1_300, 1_300, 1_300, 1_300, 1_300, 1_300, 1_000, 1_000, 1_099]);
  assert.deepEqual(states.at(-1)?.state, whole.state);
  assert.throws(() => replay(ledger, address, messages, whole.number + 1), { code: 'sequence_retired' });
});

test('versions - the stream of an old journal is shown in today\'s shape, from the first event on [G6] [G3]', async (t) => {
  // The hub serves sessions: the same journal under a session's address.
  const session: ActorAddress = { org: 'u-ann', type: 'session', key: 'abcdefghijklmnopqrstuvwxyz' };
  await journalOf(session, await fixture('ledger-v1-v2.jsonl'));
  const hub = createHub({ journal: stores.journal, feed: stores.feed, partitions: 1, log: silent, upcast: upcastBy(ledger.spec) });
  t.after(() => { hub.close(); });
  const viewer = new Viewer(new TestOutlet()).attach(hub, { org: session.org, sid: session.key, sub: 'ann', lastSeqNo: 0 });
  await viewer.reached(3);
  assert.deepEqual(viewer.texts, ['old words', ' and', ' newer']);
});

test('versions - an event from the future, of an unknown kind, or a changed past make the actor unavailable, never wrong [G6]', async (t) => {
  const lines = await fixture('ledger-v1-v2.jsonl');
  const changed = (at: number, from: string, to: string): Buffer[] => lines.map((line, i) => (i === at ? Buffer.from(line.toString('utf8').replace(from, to)) : line));
  const lastLine = lines.length - 1;
  for (const [what, broken] of [
    ['a version that is not known', changed(lastLine, '"k":"booked","v":2', '"k":"booked","v":4')],
    ['a kind that is not known', changed(lastLine, '"k":"booked"', '"k":"burned"')],
    ['a payload that is not its version\'s', changed(lastLine, '"cents":99', '"cents":"99"')],
    ['a byte changed in the past', changed(2, '10.5', '99.5')],
  ] as const) {
    assert.notDeepEqual(broken.map(String), lines.map(String), `${what}: the fixture does not hold what is to be changed`);
    assert.throws(() => replay(ledger, address, messagesOf(broken)), { code: 'journal_unreadable' }, what);
    await journalOf(address, broken);
    const here = await hostHere({ url: server.url, config: { host: 'one', partitions: 1 }, definitions: [ledger] });
    t.after(() => here.stop());
    await here.host.ready;
    const ref = here.host.actors.ref(ledger, 'acme', 'old');
    await assert.rejects(ref.ask.look({}), { code: 'journal_unreadable' }, what);
    await assert.rejects(ref.ask.book({ cents: 1, currency: 'EUR' }), { code: 'journal_unreadable' }, what);
    await here.stop();
  }
});

test('versions - a conversation as the first release journaled it folds to the state that release had [G6]', async () => {
  const lines = await fixture('session-1.jsonl');
  const state = JSON.parse(await readFile(new URL('./fixtures/session-1.state.json', import.meta.url), 'utf8')) as Record<string, unknown>;
  const first = lines.map((line) => decodeCommit(line)).flatMap((c) => [...c.ev]).find((e) => e.k === 'SessionCreated');
  const agent = String(first?.d['agent_id']);
  const self: ActorAddress = { org: 'u-ann', type: 'session', key: agent.slice('agent-'.length) };
  // Commits of one actor among others: the sequences are those that the chain names.
  const commits = lines.map((data) => ({ data, commit: decodeCommit(data) }));
  const messages = commits.map(({ data }, i) => ({ data, seq: commits[i + 1]?.commit.p ?? Number.MAX_SAFE_INTEGER }));
  // Of what that release did not know it has what a session begins with.
  const fresh = JSON.parse(JSON.stringify(initialSession(self.key))) as Record<string, unknown>;
  assert.deepEqual(JSON.parse(JSON.stringify(replay(definitionOf('session'), self, messages).state)), { ...fresh, ...state });
});
