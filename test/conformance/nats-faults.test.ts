/**
 * The journal over NATS on bad days: lost and late acknowledgements, a stalled network, a killed and a stopped server.
 *
 * What must hold each time: an append that resolved is stored exactly once and stays; one that was refused is not stored;
 * nothing is stored twice. Randomness comes from one printed seed (`TROUPE_SEED` sets it).
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { NatsConnection } from 'nats';
import { headers } from 'nats';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { createNatsJournal } from '../../actors/runtime/nats/journal.ts';
import { createLean, type Lean } from '../../actors/runtime/nats/lean.ts';
import { createNatsStores } from '../../actors/runtime/nats/stores.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import type { Journal, StoredMessage } from '../../actors/runtime/store.ts';
import { eventsSubject, journalSubject } from '../../contracts/subjects.ts';
import { startNats, type NatsServer } from '../harness/nats.ts';
import { startProxy, type Proxy } from '../harness/proxy.ts';
import { seeded } from '../harness/seed.ts';
import { bytes, code, text } from './store.ts';

const plan = { partitions: 16, journalStreams: 2, replicas: 1 };

const stored = async (journal: Journal, subject: string): Promise<StoredMessage[]> => {
  const last = await journal.last(subject);
  const messages: StoredMessage[] = [];
  if (last !== undefined) for await (const batch of journal.read(subject, 0, last.seq)) messages.push(...batch);
  return messages;
};
const storedTexts = async (journal: Journal, subject: string): Promise<string[]> => (await stored(journal, subject)).map((m) => text(m.data));

describe('journal over NATS - a network that fails', { timeout: 120_000 }, () => {
  let server: NatsServer;
  let proxy: Proxy;
  let directConnection: NatsConnection;
  let connection: NatsConnection;
  let direct: Journal;
  let directLean: Lean;
  let lean: Lean;
  let journal: Journal;
  let lastKey = 0;
  const freshSubject = (): string => journalSubject(3, { org: 'acme', type: 'counter', key: `f${++lastKey}` });

  before(async () => {
    server = await startNats();
    proxy = await startProxy(server.port);
    directConnection = await connectNats({ url: server.url, name: 'direct' });
    await ensureStreams(directConnection, plan);
    directLean = createLean(directConnection);
    direct = createNatsJournal(directLean, { journalStreams: plan.journalStreams });
    connection = await connectNats({ url: proxy.url, name: 'proxied' });
    lean = createLean(connection);
    journal = createNatsJournal(lean, { journalStreams: plan.journalStreams });
  });
  after(async () => {
    lean.close();
    directLean.close();
    await connection.close();
    await directConnection.close();
    await proxy.stop();
    await server.stop();
  });

  test('an append whose acknowledgement is lost succeeds once and is stored once', async () => {
    const subject = freshSubject();
    const first = await journal.append(subject, bytes('e0'), 0);
    proxy.dropReplies();
    const dropped = proxy.dropped();
    const appending = journal.append(subject, bytes('e1'), first);
    await dropped;
    assert.deepEqual(await storedTexts(direct, subject), ['e0', 'e1'], 'stored, but its acknowledgement did not arrive');
    proxy.resume();
    proxy.cut();
    const second = await appending;
    assert.deepEqual((await stored(direct, subject)).map((m) => [m.seq, text(m.data)]), [[first, 'e0'], [second, 'e1']]);
    await journal.append(subject, bytes('e2'), second);
  });

  test('an append whose acknowledgement is lost is known as ours even when another writer went on after it', async () => {
    const subject = freshSubject();
    proxy.dropReplies();
    const dropped = proxy.dropped();
    const appending = journal.append(subject, bytes('ours'), 0);
    await dropped;
    const ours = (await direct.last(subject))?.seq ?? assert.fail();
    const theirs = await direct.append(subject, bytes('theirs'), ours);
    proxy.resume();
    proxy.cut();
    assert.equal(await appending, ours);
    await assert.rejects(journal.append(subject, bytes('next'), ours), code('fenced'));
    assert.deepEqual((await stored(direct, subject)).map((m) => [m.seq, text(m.data)]), [[ours, 'ours'], [theirs, 'theirs']]);
  });

  test('an append that never arrived is fenced, not ours, when another writer was first meanwhile', async () => {
    const subject = freshSubject();
    proxy.stall();
    const appending = journal.append(subject, bytes('ours'), 0);
    const theirs = await direct.append(subject, bytes('theirs'), 0);
    proxy.cut();
    proxy.resume();
    await assert.rejects(appending, code('fenced'));
    assert.deepEqual((await stored(direct, subject)).map((m) => [m.seq, text(m.data)]), [[theirs, 'theirs']]);
  });

  test('[G1] a zombie whose append is delivered late, after a take-over, is refused', async () => {
    const subject = freshSubject();
    const first = await journal.append(subject, bytes('e0'), 0);
    proxy.stall();
    const late = journal.append(subject, bytes('late'), first);
    await direct.append(subject, bytes('take-over'), first);
    proxy.resume();
    await assert.rejects(late, code('fenced'));
    assert.deepEqual(await storedTexts(direct, subject), ['e0', 'take-over']);
  });

  test('an append that times out and is delivered twice is stored once', async () => {
    const subject = freshSubject();
    const requests: string[] = [];
    // Counts the tries from outside: the stall ends when the third has been made.
    let third: () => void;
    const tried = new Promise<void>((resolve) => { third = resolve; });
    const counting = createNatsJournal({
      ...lean,
      get connected() { return lean.connected; },
      get inFlight() { return lean.inFlight; },
      request: (to, data, options) => {
        requests.push(to);
        if (requests.length === 3) third();
        return lean.request(to, data, options);
      },
    }, { journalStreams: plan.journalStreams, ackMs: 30, deadlineMs: 30_000 });
    proxy.stall();
    const appending = counting.append(subject, bytes('once'), 0);
    await tried;
    proxy.resume();
    const seq = await appending;
    assert.ok(requests.filter((to) => to === subject).length >= 2);
    assert.deepEqual((await stored(direct, subject)).map((m) => [m.seq, text(m.data)]), [[seq, 'once']]);
    await lean.settled(10_000);
    await journal.append(subject, bytes('next'), seq);
  });

  test('an append that cannot be settled within its deadline is journal_unavailable, and the path works again afterwards', async () => {
    const subject = freshSubject();
    const hasty = createNatsJournal(lean, { journalStreams: plan.journalStreams, ackMs: 20, deadlineMs: 60 });
    proxy.stall();
    await assert.rejects(hasty.append(subject, bytes('perhaps'), 0), code('journal_unavailable'));
    await assert.rejects(hasty.last(subject), code('journal_unavailable'));
    proxy.resume();
    await lean.settled(10_000);
    // It may have arrived late: whoever goes on looks first, as an activation does.
    const last = await journal.last(subject);
    const seq = await journal.append(subject, bytes('after'), last?.seq ?? 0);
    assert.deepEqual(await storedTexts(direct, subject), last === undefined ? ['after'] : ['perhaps', 'after']);
    assert.equal((await journal.last(subject))?.seq, seq);
    assert.equal(lean.inFlight, 0);
  });

  test('[G3] a watcher is told of the gap when the connection comes back, and the journal holds what it missed', async () => {
    const stores = createNatsStores(connection, plan);
    const actor = { org: 'acme', type: 'counter', key: 'gap' };
    const subject = journalSubject(3, actor);
    const seen: string[] = [];
    let gap: () => void;
    const gapped = new Promise<void>((resolve) => { gap = resolve; });
    let arrived: (() => void) | undefined;
    const watch = await stores.feed.watch(eventsSubject(actor), (data) => { seen.push(text(data)); arrived?.(); }, () => gap());
    const one = new Promise<void>((resolve) => { arrived = resolve; });
    const first = await direct.append(subject, bytes('e0'), 0);
    await one;
    proxy.refuse();
    proxy.cut();
    const second = await direct.append(subject, bytes('missed'), first);
    proxy.resume();
    await gapped;
    assert.deepEqual(seen, ['e0']);
    const two = new Promise<void>((resolve) => { arrived = resolve; });
    await direct.append(subject, bytes('e2'), second);
    await two;
    assert.deepEqual(seen, ['e0', 'e2']);
    assert.deepEqual(await storedTexts(stores.journal, subject), ['e0', 'missed', 'e2']);
    watch.stop();
    stores.lean.close();
  });

  test('many appends over a connection that is cut again and again are all stored once, in order', async (t) => {
    const seed = Number(process.env['TROUPE_SEED'] ?? Date.now() % 1_000_000);
    t.diagnostic(`seed ${seed}`);
    const random = seeded(seed);
    const actors = 32;
    const each = 40;
    let done = 0;
    const cuts: Promise<void>[] = [];
    const cutAt = new Set(Array.from({ length: 12 }, () => Math.floor(random() * actors * each)));
    const runs = Array.from({ length: actors }, async () => {
      const subject = freshSubject();
      const acknowledged: [number, string][] = [];
      for (let i = 0; i < each; i++) {
        const seq = await journal.append(subject, bytes(`e${i}`), acknowledged.at(-1)?.[0] ?? 0);
        acknowledged.push([seq, `e${i}`]);
        if (!cutAt.has(done++)) continue;
        if (random() < 0.5) { proxy.cut(); continue; }
        proxy.dropReplies();
        cuts.push(proxy.dropped().then(() => { proxy.resume(); proxy.cut(); }));
      }
      return { subject, acknowledged };
    });
    const outcomes = await Promise.all(runs);
    // The last cut may wait for an answer to throw away: one more request makes one.
    const settled = lean.settled(10_000);
    await Promise.all(cuts);
    await settled;
    for (const { subject, acknowledged } of outcomes) {
      assert.deepEqual((await stored(direct, subject)).map((m) => [m.seq, text(m.data)]), acknowledged);
    }
  });
});

describe('journal over NATS - a server that fails', { timeout: 120_000 }, () => {
  let server: NatsServer;
  let nc: NatsConnection;
  before(async () => {
    server = await startNats();
    nc = await connectNats({ url: server.url, name: 'server-faults' });
    await ensureStreams(nc, plan);
  });
  after(async () => {
    await nc.close();
    await server.stop();
  });

  test('a server killed again and again under appends loses nothing that was acknowledged and stores nothing twice', async (t) => {
    const seed = Number(process.env['TROUPE_SEED'] ?? Date.now() % 1_000_000);
    t.diagnostic(`seed ${seed}`);
    const random = seeded(seed);
    const lean = createLean(nc);
    const journal = createNatsJournal(lean, { journalStreams: plan.journalStreams });
    const kills = 4;
    const actors = 48;
    let stop = false;
    let total = 0;
    let wake: (() => void) | undefined;
    let wakeAt = 0;
    const runs = Array.from({ length: actors }, async (_, k) => {
      const subject = journalSubject(k % 16, { org: 'acme', type: 'counter', key: `kill${k}` });
      const acknowledged: [number, string][] = [];
      for (let i = 0; !stop; i++) {
        const seq = await journal.append(subject, bytes(`e${i}`), acknowledged.at(-1)?.[0] ?? 0);
        acknowledged.push([seq, `e${i}`]);
        if (++total >= wakeAt) wake?.();
      }
      return { subject, acknowledged };
    });
    for (let kill = 0; kill < kills; kill++) {
      const more = new Promise<void>((resolve) => { wakeAt = total + 200 + Math.floor(random() * 400); wake = resolve; });
      await more;
      await server.kill('SIGKILL');
      await server.restart();
    }
    stop = true;
    const outcomes = await Promise.all(runs);
    for (const { subject, acknowledged } of outcomes) {
      assert.deepEqual((await stored(journal, subject)).map((m) => [m.seq, text(m.data)]), acknowledged);
    }
    t.diagnostic(`${total} appends acknowledged over ${kills} kills, lost 0, repeated 0`);
    assert.equal(lean.inFlight, 0);
    lean.close();
  });

  test('appends and reads begun while the server is down or stopped succeed when it is back', async () => {
    const lean = createLean(nc);
    const stores = createNatsStores(nc, plan);
    const journal = createNatsJournal(lean, { journalStreams: plan.journalStreams });
    const subject = journalSubject(3, { org: 'acme', type: 'counter', key: 'down' });
    const first = await journal.append(subject, bytes('e0'), 0);
    await server.kill();
    const pending = [journal.append(subject, bytes('e1'), first), journal.last(subject).then((m) => m?.seq ?? 0), stores.snapshots.put('snapshot.3.a.b.c', bytes('s')).then(() => 0)];
    await server.restart();
    const [second] = await Promise.all(pending);
    assert.deepEqual(await storedTexts(journal, subject), ['e0', 'e1']);
    server.pause();
    const third = journal.append(subject, bytes('e2'), second ?? assert.fail());
    server.resume();
    await third;
    assert.deepEqual(await storedTexts(journal, subject), ['e0', 'e1', 'e2']);
    assert.equal(text((await stores.snapshots.get('snapshot.3.a.b.c'))?.data ?? bytes('')), 's');
    stores.lean.close();
    lean.close();
  });
});

describe('journal over NATS - answers that are not whole', { timeout: 60_000 }, () => {
  let server: NatsServer;
  let nc: NatsConnection;
  before(async () => {
    // Without JetStream: the test answers in its place.
    server = await startNats({ jetstream: false });
    nc = await connectNats({ url: server.url, name: 'fake-stream' });
  });
  after(async () => {
    await nc.close();
    await server.stop();
  });
  const log = [3, 5, 8, 13].map((seq) => ({ seq, data: `e${seq}` }));
  const subject = 'journal.4.acme.counter.fake';
  interface Query { readonly seq: number; readonly batch?: number; readonly last_by_subj?: string }
  /** Answers direct gets from `log` after `shape` had its way with the batch; gives the queries it saw. */
  const answerAs = (shape: (batch: typeof log, query: Query, call: number) => { readonly messages: typeof log; readonly batched: boolean }): { queries: Query[]; stop(): void } => {
    const queries: Query[] = [];
    const subscription = nc.subscribe('$JS.API.DIRECT.GET.JOURNAL_0', {
      callback: (_error, message) => {
        const query = message.json<Query>();
        queries.push(query);
        const batch = log.filter((m) => m.seq >= query.seq);
        const { messages, batched } = shape(batch, query, queries.length);
        if (messages.length === 0) { message.respond('', { headers: headers(404, 'Message Not Found') }); return; }
        for (const m of messages) {
          const head = headers();
          head.set('Nats-Subject', subject);
          head.set('Nats-Sequence', String(m.seq));
          head.set('Nats-Time-Stamp', '2026-11-21T00:00:00.123456789Z');
          if (batched) {
            head.set('Nats-Num-Pending', '1');
            head.set('Nats-Last-Sequence', String(batch[batch.indexOf(m) - 1]?.seq ?? 0));
          }
          message.respond(m.data, { headers: head });
        }
        if (batched) message.respond('', { headers: headers(204, 'EOB') });
      },
    });
    return { queries, stop: () => subscription.unsubscribe() };
  };
  const leader = (): { stop(): void; asked(): number } => {
    let asked = 0;
    const subscription = nc.subscribe('$JS.API.STREAM.MSG.GET.JOURNAL_0', {
      callback: (_error, message) => {
        asked++;
        const query = message.json<Query>();
        const found = query.last_by_subj === undefined ? log.find((m) => m.seq >= query.seq) : log.at(-1);
        message.respond(JSON.stringify(found === undefined
          ? { error: { code: 404, err_code: 10037, description: 'no message found' } }
          : { message: { subject, seq: found.seq, time: '2026-11-21T00:00:00.123456789Z', data: Buffer.from(found.data).toString('base64') } }));
      },
    });
    return { stop: () => subscription.unsubscribe(), asked: () => asked };
  };
  const readAll = async (lean: Lean): Promise<string[]> => {
    const texts: string[] = [];
    for await (const batch of createNatsJournal(lean, { journalStreams: 1, ackMs: 1_000 }).read(subject, 0, 13)) texts.push(...batch.map((m) => text(m.data)));
    return texts;
  };
  const whole = ['e3', 'e5', 'e8', 'e13'];

  test('a batch that lost a message on the way is taken up to the hole and asked again from there', async (t) => {
    const lean = createLean(nc);
    t.after(() => lean.close());
    const fake = answerAs((batch, _query, call) => ({ messages: call === 1 ? batch.filter((m) => m.seq !== 8) : batch, batched: true }));
    t.after(() => fake.stop());
    assert.deepEqual(await readAll(lean), whole);
    assert.deepEqual(fake.queries.map((q) => q.seq), [1, 6]);
  });

  test('a batch that lost its first message is not taken at all; the leader gives it', async (t) => {
    const lean = createLean(nc);
    t.after(() => lean.close());
    const truth = leader();
    t.after(() => truth.stop());
    const fake = answerAs((batch, _query, call) => ({ messages: call === 1 ? batch.slice(1) : batch, batched: true }));
    t.after(() => fake.stop());
    assert.deepEqual(await readAll(lean), whole);
    assert.equal(truth.asked(), 1);
  });

  test('a replica that lags behind does not end the read: the leader is asked', async (t) => {
    const lean = createLean(nc);
    t.after(() => lean.close());
    const truth = leader();
    t.after(() => truth.stop());
    const fake = answerAs((batch) => ({ messages: batch.filter((m) => m.seq <= 5), batched: true }));
    t.after(() => fake.stop());
    assert.deepEqual(await readAll(lean), whole);
    assert.equal(truth.asked(), 2);
  });

  test('a server that knows no batches is read one message at a time', async (t) => {
    const lean = createLean(nc);
    t.after(() => lean.close());
    const fake = answerAs((batch) => ({ messages: batch.slice(0, 1), batched: false }));
    t.after(() => fake.stop());
    assert.deepEqual(await readAll(lean), whole);
    assert.deepEqual(fake.queries.map((q) => q.seq), [1, 4, 6, 9]);
  });

  test('an append that nobody takes is tried again until somebody does, as while a server starts', async (t) => {
    const lean = createLean(nc);
    t.after(() => lean.close());
    let tries = 0;
    const journal = createNatsJournal({
      ...lean,
      get connected() { return lean.connected; },
      get inFlight() { return lean.inFlight; },
      request: (to, data, options) => {
        if (++tries === 2) {
          const subscription = nc.subscribe(subject, { callback: (_error, message) => { message.respond('{"stream":"JOURNAL_0", "seq":42}'); } });
          t.after(() => subscription.unsubscribe());
        }
        return lean.request(to, data, options);
      },
    }, { journalStreams: 1 });
    assert.equal(await journal.append(subject, bytes('e'), 0), 42);
    assert.equal(tries, 2);
  });

  test('a refusal by the fence is believed only when the leader shows another end of the subject', async (t) => {
    const lean = createLean(nc);
    t.after(() => lean.close());
    const truth = leader();
    t.after(() => truth.stop());
    let tries = 0;
    const refusal = '{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"},"stream":"JOURNAL_0","seq":0}';
    const subscription = nc.subscribe(subject, { callback: (_error, message) => { message.respond(++tries < 3 ? refusal : '{"stream":"JOURNAL_0", "seq":14}'); } });
    t.after(() => subscription.unsubscribe());
    const journal = createNatsJournal(lean, { journalStreams: 1 });
    assert.equal(await journal.append(subject, bytes('e14'), 13), 14);
    assert.equal(tries, 3);
    tries = 0;
    await assert.rejects(journal.append(subject, bytes('e14'), 8), code('fenced'));
    await assert.rejects(journal.append(subject, bytes('e14'), 99), code('fenced'));
    assert.equal(tries, 2);
  });

  test('a refusal is an error, not the end of the journal', async (t) => {
    const lean = createLean(nc);
    t.after(() => lean.close());
    const truth = leader();
    t.after(() => truth.stop());
    const subscription = nc.subscribe('$JS.API.DIRECT.GET.JOURNAL_0', {
      callback: (_error, message) => { message.respond('', { headers: headers(408, 'Bad Request') }); },
    });
    t.after(() => subscription.unsubscribe());
    await assert.rejects(readAll(lean), code('journal_unavailable'));
  });
});
