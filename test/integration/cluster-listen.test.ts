/** What a host serves on NATS while it stops to serve: nothing on its way is dropped. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { NatsConnection } from 'nats';
import { createListener, type Listener } from '../../actors/runtime/cluster/listen.ts';
import { createStatistics, startService } from '../../actors/runtime/cluster/service.ts';
import { errorHeaders } from '../../actors/runtime/cluster/wire.ts';
import type { Engine, Message, Sender } from '../../actors/runtime/message.ts';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { systemClock } from '../../actors/runtime/store.ts';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { silent } from '../harness/log.ts';
import { startNats, type NatsServer } from '../harness/nats.ts';

let server: NatsServer;
let host: NatsConnection;
let client: NatsConnection;
before(async () => {
  server = await startNats();
  host = await connectNats({ url: server.url, name: 'host' });
  client = await connectNats({ url: server.url, name: 'client' });
});
after(async () => {
  await Promise.all([host.close(), client.close()]);
  await server.stop();
});

const listener = (deliver: (message: Message) => Promise<unknown>): Listener => {
  const engine: Engine = {
    hold: () => undefined, release: () => Promise.resolve(), held: new Map(), leaseUntil: () => undefined, forget: async () => 'busy', deliver,
    drain: () => Promise.resolve(), close: () => undefined, closed: Promise.resolve(),
    stats: () => ({ activations: 0, mailbox: 0, turns: 0, commits: 0, effectsRunning: 0 }),
  };
  const sender: Sender = { ask: deliver, tell: () => Promise.resolve() };
  return createListener({ nc: host, engine, sender, clock: systemClock, log: silent, statistics: createStatistics([]) });
};
const body = JSON.stringify({ input: {}, principal: { kind: 'system' }, deadlineMs: 5_000 });
const ask = async (subject: string, text = body): Promise<string> => {
  const reply = await client.request(subject, text, { timeout: 10_000 });
  return reply.headers?.get(errorHeaders.code) ?? '';
};

test('listen - requests on the way when a partition is given up are answered, not dropped', async () => {
  const one = listener(() => Promise.reject(coded('not_owner')));
  const partition = one.partition(3);
  await host.flush();
  const asked = Array.from({ length: 2_000 }, (_, i) => ask(`part.3.dev.tally.k${i}.get`));
  // The server has them all; this host has read few of them.
  await client.flush();
  await partition.stop();
  for (const code of await Promise.all(asked)) assert.equal(code, 'not_owner');
});

test('listen - a request that a peer sends malformed is refused and does no harm', async () => {
  let delivered = 0;
  const one = listener(() => { delivered++; return Promise.resolve({}); });
  const partition = one.partition(4);
  await host.flush();
  const wrong: [string, string][] = [
    ['not json', 'bad_request'], ['null', 'validation_error'], ['[]', 'validation_error'], ['{}', 'validation_error'],
    ['{"input":{},"principal":{"kind":"root"},"deadlineMs":1}', 'validation_error'],
    ['{"input":{},"principal":{"kind":"user","sub":"s","org":"o","scopes":[1]},"deadlineMs":1}', 'validation_error'],
    ['{"input":{},"principal":{"kind":"system"},"deadlineMs":-1}', 'validation_error'],
    ['{"input":{},"principal":{"kind":"system"},"deadlineMs":1,"id":""}', 'validation_error'],
    [JSON.stringify('x'.repeat(limits.commandMaxBytes)), 'payload_too_large'],
  ];
  for (const [text, code] of wrong) assert.equal(await ask('part.4.dev.tally.k.get', text), code, text.slice(0, 80));
  assert.equal(delivered, 0);
  assert.equal(await ask('part.4.dev.tally.k.get'), '');
  assert.equal(delivered, 1);
  await partition.stop();
});

test('listen - more than limits.servedAsksMax requests at once are refused with overloaded [G5]', async () => {
  const gate = Promise.withResolvers<void>();
  const one = listener(async () => { await gate.promise; return {}; });
  const partition = one.partition(5);
  await host.flush();
  const asked = Array.from({ length: limits.servedAsksMax + 10 }, (_, i) => ask(`part.5.dev.tally.k${i}.get`));
  const refused = await Promise.race(asked);
  assert.equal(refused, 'overloaded');
  gate.resolve();
  const codes = await Promise.all(asked);
  assert.equal(codes.filter((code) => code === 'overloaded').length, 10);
  await one.idle();
  assert.equal(one.serving, 0);
  await partition.stop();
});

test('listen - an error that is not coded leaves the host as internal_error, without its message', async () => {
  const one = listener(() => Promise.reject(new Error('secret path /etc/key')));
  const partition = one.partition(6);
  await host.flush();
  const reply = await client.request('part.6.dev.tally.k.get', body, { timeout: 5_000 });
  assert.equal(reply.headers?.get(errorHeaders.code), 'internal_error');
  assert.equal(reply.headers.get(errorHeaders.status), '500');
  assert.ok(!reply.string().includes('secret'));
  await partition.stop();
});

test('listen - a reply subject that is no inbox is never written to, by a command or by the service listing', async () => {
  const delivered: string[] = [];
  const one = listener((message) => { delivered.push(message.address.key); return Promise.resolve({ said: message.address.key }); });
  const commands = one.commands();
  const statistics = createStatistics([]);
  const service = startService({ nc: host, id: 'one', host: 'one', version: '0.0.0', statistics, clock: systemClock });
  const written: string[] = [];
  const spy = client.subscribe('>', { callback: (_error, msg) => { if (!/^(actor|\$SRV|_INBOX)\./.test(msg.subject)) written.push(msg.subject); } });
  await Promise.all([host.flush(), client.flush()]);
  const targets = ['journal.5.acme.session.a', '$KV.partitions.5', '$JS.API.STREAM.PURGE.JOURNAL_0', 'events.acme.session.a', 'part.1.acme.session.a.send', 'inbox.1.acme.session.a.send', '_', 'INBOX.x'];
  for (const reply of targets) {
    client.publish('actor.dev.tally.k.get', '{}', { reply });
    client.publish('$SRV.PING', '', { reply });
  }
  // Behind them on the same connection: when these are answered, those have been looked at.
  assert.deepEqual((await client.request('actor.dev.tally.last.get', '{}', { timeout: 5_000 })).json(), { said: 'last' });
  await client.request('$SRV.PING', '', { timeout: 5_000 });
  await client.flush();
  assert.deepEqual(written, []);
  assert.deepEqual(delivered, ['last']);
  spy.unsubscribe();
  service.stop();
  await commands.stop();
});
