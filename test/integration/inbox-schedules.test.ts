/** Durable tells that a reviewer found ways to lose or to keep for ever [G4]: the real inbox reader, an engine that the test plays. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createInbox, type Msg, type NatsConnection } from 'nats';
import { createDeadLetters } from '../../actors/runtime/cluster/deadletter.ts';
import { createInboxReader, deliveryOf, type InboxReader } from '../../actors/runtime/cluster/inbox.ts';
import { encodeTell } from '../../actors/runtime/cluster/tell.ts';
import type { Engine, Message } from '../../actors/runtime/message.ts';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { createNatsStores, type NatsStores } from '../../actors/runtime/nats/stores.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import { coded, refuse } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { inboxSubject, streams } from '../../contracts/subjects.ts';
import { recorder } from '../harness/log.ts';
import { startNats, type NatsServer } from '../harness/nats.ts';

const plan = { partitions: 8, journalStreams: 1, replicas: 1 };
const address = { org: 'acme', type: 'tally', key: 'k' };
let server: NatsServer;
let nc: NatsConnection;
let stores: NatsStores;

before(async () => {
  server = await startNats();
  nc = await connectNats({ url: server.url, name: 'client' });
  await ensureStreams(nc, plan);
  stores = createNatsStores(nc, plan);
});
after(async () => {
  stores.lean.close();
  await nc.close();
  await server.stop();
});

/** A reader over an engine that answers as `deliver` does; `line` resolves with the first line of its log that contains the text. */
const read = (deliver: (message: Message) => Promise<unknown>): { reader: InboxReader; line: (text: string) => Promise<void> } => {
  const waits: { text: string; resolve: () => void }[] = [];
  const log = recorder(({ text }) => { for (const wait of waits) if (text.includes(wait.text)) wait.resolve(); });
  const engine: Engine = {
    hold: () => undefined, release: () => Promise.resolve(), held: new Map(), leaseUntil: () => undefined, forget: async () => 'busy', deliver,
    drain: () => Promise.resolve(), close: () => undefined, closed: Promise.resolve(),
    stats: () => ({ activations: 0, mailbox: 0, turns: 0, commits: 0, effectsRunning: 0 }),
  };
  return {
    reader: createInboxReader({ nc, lean: stores.lean, engine, log, replicas: 1 }),
    line: (text) => new Promise((resolve) => { waits.push({ text, resolve }); }),
  };
};

test('inbox - a tell with line ends in its id goes to the dead letters when it is refused, and can be replayed', async () => {
  const letters = createDeadLetters(stores.lean, stores.inbox);
  let accept = false;
  const seen: string[] = [];
  const done = Promise.withResolvers<void>();
  const { reader, line } = read(async (message) => {
    seen.push(message.id ?? '');
    if (!accept) throw refuse('no_thanks');
    done.resolve();
    return undefined;
  });
  const buried = line('went to the dead letters');
  const kept = line('could not be stored').then(() => { throw new Error('the dead letter was refused'); });
  await stores.inbox.send(inboxSubject(1, address, 'add'), 'line\r\nend', encodeTell({ id: 'line\r\nend', input: {} }));
  reader.start(1);
  await Promise.race([buried, kept]);
  const [letter] = await letters.list();
  assert.equal(letter?.code, 'no_thanks');
  accept = true;
  await letters.replay(letter?.seq ?? 0);
  await done.promise;
  assert.deepEqual(seen, ['line\r\nend', 'line\r\nend']);
  reader.close();
});

test('inbox - a message whose subject is no actor\'s goes to the dead letters', async () => {
  const { reader, line } = read(() => Promise.reject(coded('internal_error')));
  const buried = line('went to the dead letters');
  const kept = line('could not be stored').then(() => { throw new Error('the dead letter was refused'); });
  await stores.inbox.send('inbox.2.nobody', 'n', encodeTell({ id: 'n', input: {} }));
  reader.start(2);
  await Promise.race([buried, kept]);
  reader.close();
});

test('inbox - what was only given back, because the lease was over, does not count towards the dead letters', async () => {
  const name = 'partition-3';
  const subject = inboxSubject(3, address, 'add');
  await stores.inbox.send(subject, 'patient', encodeTell({ id: 'patient', input: {} }));
  const config = {
    durable_name: name, name, filter_subject: 'inbox.3.>', ack_policy: 'explicit', ack_wait: limits.tellAckMs * 1e6, max_deliver: -1,
    max_ack_pending: limits.inboxInFlightMax * 16, deliver_policy: 'all', replay_policy: 'instant', inactive_threshold: limits.inboxConsumerIdleMs * 1e6, num_replicas: 1,
  };
  await nc.request(`$JS.API.CONSUMER.CREATE.${streams.inbox}.${name}.inbox.3.>`, JSON.stringify({ stream_name: streams.inbox, config }));
  // As if other hosts had been lost with it almost too often already.
  for (let i = 1; i < limits.tellRedeliveriesMax; i++) {
    const inbox = createInbox();
    const [got] = await new Promise<Msg[]>((resolve, reject) => {
      nc.subscribe(inbox, { max: 1, callback: (error, msg) => { if (error === null) resolve([msg]); else reject(error); } });
      nc.publish(`$JS.API.CONSUMER.MSG.NEXT.${streams.inbox}.${name}`, JSON.stringify({ batch: 1, expires: 2e9 }), { reply: inbox });
    });
    assert.equal(deliveryOf(got?.reply ?? '').deliveries, i);
    got?.respond('-NAK');
    await nc.flush();
  }
  let times = 0;
  const done = Promise.withResolvers<void>();
  const { reader, line } = read(async () => {
    times += 1;
    if (times <= 3) throw coded('not_owner');
    done.resolve();
    return undefined;
  });
  const buried = line('went to the dead letters').then(() => { throw new Error('buried'); });
  reader.start(3);
  await Promise.race([done.promise, buried]);
  assert.equal(times, 4);
  reader.close();
});
