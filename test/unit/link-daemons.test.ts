/** The gateway's link when daemons come and go: lost, restarted, drained, several of them (link.ts; a scripted peer on a real Unix socket). */
import assert from 'node:assert/strict';
import { mkdtemp, rm, unlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { CodedError } from '../../contracts/errors.ts';
import { frameType } from '../../contracts/link.ts';
import { routes } from '../../contracts/routes.ts';
import { addressTokens, partitionOfTokens } from '../../contracts/subjects.ts';
import { ask, connected, hasCode, linked, opened, pair, started } from '../harness/link-pair.ts';
import { startPeer, type PeerOptions } from '../harness/peer.ts';

test('link - [UDS-008] without a daemon the answer is 503 upstream_unavailable at once, and a stream ends with 4004', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-none-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const link = linked(t, join(folder, 'd0.sock'));
  await assert.rejects(link.request(routes.createSession, ask), (error) => hasCode('upstream_unavailable')(error) && error instanceof CodedError && error.entry.http === 503);
  const { ended } = opened(link);
  assert.deepEqual(await ended, { code: 4004, reason: 'upstream_unavailable' });
});

test('link - the loss of the connection rejects its requests and ends its streams with 4004', async (t) => {
  const { peer, link } = await pair(t);
  const atPeer = peer.opened();
  const answer = link.request(routes.createSession, ask);
  const refused = assert.rejects(answer, hasCode('upstream_unavailable'));
  const { ended } = opened(link);
  (await atPeer).peer.destroy();
  await refused;
  assert.deepEqual(await ended, { code: 4004, reason: 'upstream_unavailable' });
});

test('link - [UDS-011] a restarted daemon is found again without a restart of the gateway', async (t) => {
  const peer = await startPeer();
  const folder = await mkdtemp(join(tmpdir(), 'troupe-again-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const socketPath = join(folder, 'd0.sock');
  await peer.stop();
  const first = await startPeer({ socketPath });
  const link = linked(t, socketPath);
  await connected(link, 1);
  const lost = connected(link, 0);
  await first.stop();
  await lost;
  await assert.rejects(link.request(routes.createSession, ask), hasCode('upstream_unavailable'));
  const back = connected(link, 1);
  const second = await startPeer({ socketPath, on: { request: (r) => r.answer(200, 'second') } });
  t.after(() => second.stop());
  await back;
  assert.equal((await link.request(routes.createSession, ask)).body.toString(), '"second"');
});

test('link - every numbered socket of a folder is connected, one that appears later too; other files are left alone', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-folder-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const peers = await Promise.all(['d0.sock', 'd1.sock', 'x.sock'].map((name) => started(t, { socketPath: join(folder, name) })));
  const link = linked(t, folder);
  await connected(link, 2);
  assert.deepEqual(link.state(), { connected: 2, sockets: 2 });
  const third = connected(link, 3);
  await started(t, { socketPath: join(folder, 'd2.sock') });
  await third;
  assert.equal(peers[2]?.connections.length, 0);
});

test('link - a call goes to the daemon that owns its partition, and elsewhere when that one is gone', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-owner-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const even = Array.from({ length: 32 }, (_, i) => 2 * i);
  const odd = even.map((n) => n + 1);
  const answering = (name: string, owned: number[]): PeerOptions => ({ socketPath: join(folder, name), owned, partitions: 64, on: { request: (r) => r.answer(200, name) } });
  await started(t, answering('d0.sock', even));
  const second = await startPeer(answering('d1.sock', odd));
  const link = linked(t, folder);
  await connected(link, 2);
  // `owns` follows hello; an answered call of each daemon proves it has arrived.
  const keys = Array.from({ length: 40 }, (_, i) => addressTokens({ org: 'o', type: 'session', key: `k${i}` }));
  for (let i = 0; i < 4; i++) await link.request(routes.createSession, ask);
  for (const partitionKey of keys) {
    const name = (await link.request(routes.createSession, { ...ask, partitionKey })).body.toString();
    assert.equal(name, partitionOfTokens(partitionKey, 64) % 2 === 0 ? '"d0.sock"' : '"d1.sock"');
  }
  const left = connected(link, 1);
  await second.stop();
  await unlink(second.socketPath).catch(() => undefined);
  await left;
  for (const partitionKey of keys) assert.equal((await link.request(routes.createSession, { ...ask, partitionKey })).body.toString(), '"d0.sock"');
});

test('link - after goaway running requests and streams go on, new calls go to another daemon', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-away-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const first = await started(t, { socketPath: join(folder, 'd0.sock') });
  const link = linked(t, folder);
  await connected(link, 1);
  let finish: () => void = () => undefined;
  const asked = first.arrival(frameType.request);
  first.on.request = (r) => {
    finish = () => r.answer(200, 'first');
  };
  const running = link.request(routes.createSession, ask);
  const atPeer = first.opened();
  const { received, texts, stream } = opened(link);
  const daemon = await atPeer;
  await asked;
  const left = connected(link, 0);
  daemon.peer.goaway();
  await left;
  await assert.rejects(link.request(routes.createSession, ask), hasCode('upstream_unavailable'));
  const back = connected(link, 1);
  await started(t, { socketPath: join(folder, 'd1.sock'), on: { request: (r) => r.answer(200, 'second') } });
  await back;
  assert.equal((await link.request(routes.createSession, ask)).body.toString(), '"second"');
  finish();
  assert.equal((await running).body.toString(), '"first"');
  daemon.send('still here');
  await received(1);
  assert.deepEqual(texts, ['still here']);
  stream.send('and up');
  assert.equal(await daemon.next(), 'and up');
});

for (const how of ['goaway', 'loss'] as const) {
  test(`link - the ${how} of the last daemon makes the link look for others at once, not only at its next look`, async (t) => {
    const folder = await mkdtemp(join(tmpdir(), 'troupe-seek-'));
    t.after(() => rm(folder, { recursive: true, force: true }));
    const first = await started(t, { socketPath: join(folder, 'd0.sock') });
    const greeted = first.connection();
    const link = linked(t, folder, { rescanMs: 2 ** 30 });
    const daemon = await greeted;
    await connected(link, 1);
    await started(t, { socketPath: join(folder, 'd1.sock'), on: { request: (r) => r.answer(200, 'second') } });
    const left = connected(link, 0);
    const back = left.then(() => connected(link, 1));
    if (how === 'goaway') daemon.goaway();
    else await first.stop();
    await back;
    assert.equal((await link.request(routes.createSession, ask)).body.toString(), '"second"');
  });
}
