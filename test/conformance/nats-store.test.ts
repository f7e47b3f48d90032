/** The store's suite over a real nats-server, with one and with several journal streams, and what only NATS can show. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { NatsConnection } from 'nats';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { createNatsJournal } from '../../actors/runtime/nats/journal.ts';
import { createLean } from '../../actors/runtime/nats/lean.ts';
import { createNatsStores, type NatsStores } from '../../actors/runtime/nats/stores.ts';
import { checkServer, versionProblem } from '../../actors/runtime/nats/server.ts';
import { ensureStreams, streamConfigs } from '../../actors/runtime/nats/streams.ts';
import { eventsSubject, inboxSubject, journalSubject } from '../../contracts/subjects.ts';
import { startNats, type NatsServer } from '../harness/nats.ts';
import { bytes, code, storeConformance, text } from './store.ts';

for (const journalStreams of [1, 3]) {
  storeConformance(`NATS with ${journalStreams} journal stream${journalStreams === 1 ? '' : 's'}`, async () => {
    const server = await startNats();
    const nc = await connectNats({ url: server.url, name: 'conformance' });
    const plan = { partitions: 64, journalStreams, replicas: 1 };
    await ensureStreams(nc, plan);
    const stores = createNatsStores(nc, plan);
    return { stores, stop: async () => { stores.lean.close(); await nc.close(); await server.stop(); } };
  });
}

interface Info { readonly config: Readonly<Record<string, unknown>>; readonly state: { readonly messages: number } }

describe('store over NATS - streams', { timeout: 60_000 }, () => {
  let server: NatsServer;
  let nc: NatsConnection;
  const plan = { partitions: 16, journalStreams: 2, replicas: 1 };
  const info = async (name: string): Promise<Info> => (await nc.request(`$JS.API.STREAM.INFO.${name}`)).json<Info>();

  before(async () => {
    server = await startNats();
    nc = await connectNats({ url: server.url, name: 'streams' });
  });
  after(async () => {
    await nc.close();
    await server.stop();
  });

  test('streams - four hosts that start at once make every stream once, as it is asked', async () => {
    await Promise.all([1, 2, 3, 4].map(() => ensureStreams(nc, plan)));
    await ensureStreams(nc, plan);
    for (const wanted of streamConfigs(plan)) {
      const { config } = await info(wanted.name);
      for (const [key, value] of Object.entries(wanted)) assert.deepEqual(config[key] ?? false, value, `${wanted.name}.${key}`);
    }
    const names = (await nc.request('$JS.API.STREAM.NAMES')).json<{ streams: string[] }>().streams;
    assert.deepEqual(names.toSorted(), ['DEADLETTER', 'INBOX', 'JOURNAL_0', 'JOURNAL_1', 'KV_hosts', 'KV_partitions', 'OBJ_blobs', 'REMINDER', 'SNAPSHOT']);
  });

  test('streams - another number of partitions or of journal streams is refused with a sentence, and nothing is changed', async () => {
    await ensureStreams(nc, plan);
    const before_ = await info('JOURNAL_0');
    for (const changed of [{ partitions: 8 }, { partitions: 32 }, { journalStreams: 1 }, { journalStreams: 3 }]) {
      await assert.rejects(ensureStreams(nc, { ...plan, ...changed }), (error) => {
        code('conflict')(error);
        assert.match(String(error), /cannot change once a journal exists/);
        return true;
      });
    }
    assert.deepEqual((await info('JOURNAL_0')).config, before_.config);
    assert.equal((await nc.request('$JS.API.STREAM.INFO.JOURNAL_2')).json<{ error?: { err_code: number } }>().error?.err_code, 10059);
  });

  test('streams - more journal streams than partitions are refused', async () => {
    await assert.rejects(ensureStreams(nc, { partitions: 2, journalStreams: 3, replicas: 1 }), /cannot be more streams than partitions/);
  });

  test('streams - a setting that was changed by hand is named', async () => {
    await ensureStreams(nc, plan);
    const { config } = await info('DEADLETTER');
    await nc.request('$JS.API.STREAM.UPDATE.DEADLETTER', JSON.stringify({ ...config, max_msgs: 5 }));
    await assert.rejects(ensureStreams(nc, plan), /Stream DEADLETTER exists with max_msgs = 5, but 100000 is configured/);
    await nc.request('$JS.API.STREAM.UPDATE.DEADLETTER', JSON.stringify(config));
  });

  test('inbox - a repeated id is one message, an id that no header may hold too, and a full inbox refuses', async () => {
    await ensureStreams(nc, plan);
    const stores = createNatsStores(nc, plan);
    const subject = inboxSubject(3, { org: 'acme', type: 'counter', key: 'k' }, 'add');
    for (const id of ['one', 'one', 'two', 'a\r\nb', 'a\r\nb', 'a\r\nc']) await stores.inbox.send(subject, id, bytes('{}'));
    assert.equal((await info('INBOX')).state.messages, 4);
    const { config } = await info('INBOX');
    await nc.request('$JS.API.STREAM.UPDATE.INBOX', JSON.stringify({ ...config, max_msgs: 4 }));
    await assert.rejects(stores.inbox.send(subject, 'three', bytes('{}')), code('overloaded'));
    await nc.request('$JS.API.STREAM.UPDATE.INBOX', JSON.stringify(config));
    stores.lean.close();
  });

  test('journal - a message over the server\'s payload is commit_too_large', async () => {
    await ensureStreams(nc, plan);
    const stores = createNatsStores(nc, plan);
    const subject = journalSubject(3, { org: 'acme', type: 'counter', key: 'big' });
    await assert.rejects(stores.journal.append(subject, new Uint8Array(2 * 1024 * 1024), 0), code('commit_too_large'));
    assert.equal(await stores.journal.last(subject), undefined);
    stores.lean.close();
  });

  test('journal - more appends than may be in flight wait for their turn', async () => {
    await ensureStreams(nc, plan);
    const lean = createLean(nc);
    let most = 0;
    const journal = createNatsJournal({
      ...lean,
      get connected() { return lean.connected; },
      get inFlight() { return lean.inFlight; },
      request: (to, data, options) => {
        const asked = lean.request(to, data, options);
        most = Math.max(most, lean.inFlight);
        return asked;
      },
    }, { journalStreams: 2, appendsMax: 3 });
    const subjects = Array.from({ length: 50 }, (_, i) => journalSubject(i % 16, { org: 'acme', type: 'counter', key: `wait${i}` }));
    const seqs = await Promise.all(subjects.map((subject) => journal.append(subject, bytes(subject), 0)));
    assert.equal(most, 3);
    for (const [i, subject] of subjects.entries()) {
      const last = await journal.last(subject);
      assert.equal(last?.seq, seqs[i]);
      assert.equal(text(last?.data ?? bytes('')), subject);
    }
    lean.close();
  });

  test('feed - what others publish on the subject without the journal\'s headers is not a commit', async () => {
    await ensureStreams(nc, plan);
    const stores: NatsStores = createNatsStores(nc, plan);
    const actor = { org: 'acme', type: 'counter', key: 'forged' };
    const seen: string[] = [];
    let arrived: () => void;
    const one = new Promise<void>((resolve) => { arrived = resolve; });
    const watch = await stores.feed.watch(eventsSubject(actor), (data) => { seen.push(text(data)); arrived(); });
    nc.publish(eventsSubject(actor), 'forged');
    await stores.journal.append(journalSubject(3, actor), bytes('true'), 0);
    await one;
    assert.deepEqual(seen, ['true']);
    watch.stop();
    stores.lean.close();
  });
});

describe('store over NATS - server', () => {
  test('server - versions that lose streams or lack batched reads are refused with a sentence, others pass', () => {
    for (const version of ['2.10.20', '2.10.21', '2.10.22']) assert.match(versionProblem(version) ?? '', /delete a whole stream/);
    for (const version of ['2.9.10', '2.10.23', '2.10.19', '1.4.1']) assert.match(versionProblem(version) ?? '', /too old/);
    for (const version of ['2.11.0', '2.14.0', 'v2.14.0', '2.15.0-RC.1', '3.0.0']) assert.equal(versionProblem(version), undefined);
    assert.match(versionProblem('latest') ?? '', /cannot be read/);
  });

  test('server - one without JetStream is refused, a real one passes', async () => {
    const server = await startNats();
    const nc = await connectNats({ url: server.url, name: 'server' });
    checkServer(nc);
    await nc.close();
    await server.stop();
    const bare = await startNats({ jetstream: false });
    const plain = await connectNats({ url: bare.url, name: 'server' });
    assert.throws(() => checkServer(plain), /without JetStream/);
    await plain.close();
    await bare.stop();
  });

  test('connect - a server that is not there, or refuses the credentials, is a coded fault that names no secret', async () => {
    const server = await startNats({ config: 'authorization { user: daemon, password: right }' });
    await assert.rejects(connectNats({ url: server.url, user: 'daemon', password: 'wrong-secret', name: 'x' }), (error) => {
      code('upstream_unavailable')(error);
      assert.doesNotMatch(String(error), /wrong-secret/);
      return true;
    });
    const nc = await connectNats({ url: server.url, user: 'daemon', password: 'right', name: 'x' });
    await nc.close();
    await server.stop();
    await assert.rejects(connectNats({ url: server.url.replace('//', '//daemon:hidden@'), name: 'x' }), (error) => {
      code('upstream_unavailable')(error);
      assert.doesNotMatch(String(error), /hidden/);
      return true;
    });
  });
});
