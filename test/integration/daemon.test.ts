/** The daemon as a process: what it serves, what it survives, how it stops (daemon.ts, main.ts, hub over NATS). */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readdir, readFile, readlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { chatSession } from '../../contracts/session.ts';
import { routes } from '../../contracts/routes.ts';
import { CodedError } from '../../contracts/errors.ts';
import { rawGateway } from '../harness/raw-gateway.ts';
import { decodeResponse, frameType } from '../../contracts/link.ts';
import { startDaemons, type TestDaemons } from '../harness/daemon.ts';
import { runSeed, seeded } from '../harness/seed.ts';
import type { Link } from '../../gateway/link.ts';

const user = 'ada';
const org = 'u-ada';

const newSession = async (d: TestDaemons, link: Link): Promise<{ sid: string; token: string }> => {
  const token = await d.token(user);
  const { status, json } = await d.ask(link, 'createSession', token, { user_id: user, project_id: 'p' });
  assert.equal(status, 201, JSON.stringify(json));
  return { sid: chatSession.parse(json).sid, token };
};

/** Sockets of a process, by inode, that are listening TCP or any UDP. */
const networkListeners = async (pid: number): Promise<string[]> => {
  const inodes = new Set<string>();
  for (const fd of await readdir(`/proc/${pid}/fd`)) {
    const link = await readlink(`/proc/${pid}/fd/${fd}`).catch(() => '');
    const inode = /^socket:\[(\d+)\]$/.exec(link)?.[1];
    if (inode !== undefined) inodes.add(inode);
  }
  const found: string[] = [];
  for (const table of ['tcp', 'tcp6', 'udp', 'udp6']) {
    const rows = (await readFile(`/proc/${pid}/net/${table}`, 'utf8').catch(() => '')).trim().split('\n').slice(1);
    for (const row of rows) {
      const columns = row.trim().split(/\s+/);
      const [, local = '', , state = ''] = columns;
      const inode = columns[9] ?? '';
      if (inodes.has(inode) && (table.startsWith('udp') || state === '0A')) found.push(`${table} ${local}`);
    }
  }
  return found;
};

const runToEnd = async (args: readonly string[]): Promise<{ code: number | null; stderr: string }> => {
  const child = spawn(process.execPath, ['--no-warnings', join(import.meta.dirname, '..', '..', 'actors', 'daemon', 'main.ts'), ...args], { stdio: ['ignore', 'ignore', 'pipe'] });
  let stderr = '';
  child.stderr.on('data', (chunk: Buffer) => { stderr += chunk.toString(); });
  const [code] = await once(child, 'exit');
  return { code: typeof code === 'number' ? code : null, stderr };
};

test('daemon - a conversation: health, a session, its stream, an attachment, a second look from the start', { timeout: 60_000 }, async (t) => {
  const d = await startDaemons(t);
  const link = await d.link();
  assert.deepEqual(await d.ask(link, 'health', '', ''), { status: 200, json: 'OK' });
  const { sid, token } = await newSession(d, link);
  const client = d.client(link, { token, sid, org });
  client.say('/long 200');
  await client.turns(1);
  assert.equal(client.text, Array.from({ length: 200 }, (_, i) => `w${i + 1}`).join(' '));
  const again = d.client(link, { token, sid, org });
  await again.turns(1);
  assert.deepEqual(again.events, client.events);
  const blob = await d.ask(link, 'putBlob', token, Buffer.from('an attachment'));
  assert.equal(blob.status, 201);
  assert.deepEqual(blob.json, { hash: `sha256:${createHash('sha256').update('an attachment').digest('hex')}`, size: 13 });
});

test('daemon - [UDS-003] it listens on its Unix socket and on no TCP or UDP port', { timeout: 60_000 }, async (t) => {
  const d = await startDaemons(t);
  const [daemon] = d.daemons;
  assert.ok(daemon);
  const link = await d.link();
  await newSession(d, link);
  assert.deepEqual(await networkListeners(daemon.pid), []);
  // The look itself works: nats-server's port is found by it.
  assert.equal((await networkListeners(d.nats.pid)).length, 1);
  const ready: unknown = JSON.parse(await daemon.line(/"msg":"ready"/));
  assert.ok(typeof ready === 'object' && ready !== null && 'durability' in ready);
  assert.equal(ready.durability, 'acknowledged = written');
});

test('daemon - [UDS-012] a call or stream on the socket without a valid capability is refused', { timeout: 60_000 }, async (t) => {
  const d = await startDaemons(t);
  const [daemon] = d.daemons;
  assert.ok(daemon);
  const link = await d.link();
  const { sid } = await newSession(d, link);
  const raw = await rawGateway(daemon.socketPath);
  t.after(() => raw.socket.destroy());
  raw.hello();
  await raw.until(frameType.owns);
  const body = JSON.stringify({ user_id: user, project_id: 'p' });
  let id = 0;
  for (const token of ['', 'junk', `${await d.token(user)}x`]) {
    id += 1;
    raw.request(id, routes.createSession.wire, body, { token });
    const answer = decodeResponse((await raw.until(frameType.response, id)).payload);
    assert.deepEqual([answer.status, JSON.parse(answer.body.toString()).code], [401, 'unauthorized']);
    id += 1;
    raw.request(id, routes.stream.wire, JSON.stringify({ sid, last_seq_no: 0 }), { token, open: true });
    const close = await raw.until(frameType.close, id);
    assert.equal(close.payload.readUInt16BE(0), 1008);
  }
  // Another user's good token opens nothing of this session either, and may not speak for its owner.
  const eve = await d.token('eve', org);
  id += 1;
  raw.request(id, routes.stream.wire, JSON.stringify({ sid, last_seq_no: 0 }), { token: eve, open: true });
  assert.equal((await raw.until(frameType.close, id)).payload.readUInt16BE(0), 4010);
  id += 1;
  raw.request(id, routes.createSession.wire, body, { token: eve });
  assert.equal(decodeResponse((await raw.until(frameType.response, id)).payload).status, 403);
  assert.equal(raw.frames.filter((frame) => frame.type === frameType.data).length, 0);
});

test('daemon - [UDS-010] a stream and its turn outlive the deadline of calls', { timeout: 60_000 }, async (t) => {
  const d = await startDaemons(t);
  const deadlineMs = 200;
  const link = await d.link({ deadlineMs });
  const long = await d.link();
  const { sid, token } = await newSession(d, long);
  const client = d.client(link, { token, sid, org });
  const began = performance.now();
  client.say('/slow 40 20');
  await client.turns(1);
  assert.ok(performance.now() - began > 2 * deadlineMs, 'the turn was long enough to tell');
  assert.equal(client.text, Array.from({ length: 20 }, (_, i) => `w${i + 1}`).join(' '));
  assert.deepEqual(client.closes, []);
});

test('daemon - [UDS-011] killed at random moments and started again: the same link serves on, nothing lost or repeated', { timeout: 120_000 }, async (t) => {
  const seed = runSeed();
  t.diagnostic(`seed ${seed}`);
  const random = seeded(seed);
  const d = await startDaemons(t);
  const [daemon] = d.daemons;
  assert.ok(daemon);
  const link = await d.link();
  const { sid, token } = await newSession(d, link);
  const client = d.client(link, { token, sid, org });
  const watcher = d.client(link, { token, sid, org });
  const kills = 5;
  for (let kill = 0; kill < kills; kill++) {
    client.say('/slow 5 60');
    const at = client.events.length + 1 + Math.floor(random() * 40);
    await client.until(() => client.events.length >= at || client.ended > kill);
    await daemon.restart();
    await client.turns(kill + 1);
  }
  await watcher.until(() => watcher.last >= client.last);
  assert.deepEqual(watcher.events, client.events);
  const whole = Array.from({ length: 60 }, (_, i) => `w${i + 1}`).join(' ');
  assert.equal(client.text, whole.repeat(kills));
  assert.ok(client.closes.length >= kills && client.closes.every((code) => code === 4004), client.closes.join());
});

test('daemon - nats-server killed and started again in the middle of turns: streams stay open, nothing lost or repeated', { timeout: 120_000 }, async (t) => {
  const d = await startDaemons(t);
  const link = await d.link();
  const sessions = await Promise.all(Array.from({ length: 5 }, () => newSession(d, link)));
  const clients = sessions.map(({ sid, token }) => [d.client(link, { token, sid, org }), d.client(link, { token, sid, org })] as const);
  for (let round = 0; round < 3; round++) {
    for (const [speaker] of clients) speaker.say('/slow 5 100');
    await Promise.all(clients.map(([speaker]) => speaker.until(() => speaker.events.length > 3 || speaker.ended > round)));
    await d.nats.kill();
    await d.nats.restart();
    await Promise.all(clients.flatMap((both) => both.map((client) => client.turns(round + 1))));
  }
  const whole = Array.from({ length: 100 }, (_, i) => `w${i + 1}`).join(' ');
  for (const [speaker, watcher] of clients) {
    assert.equal(speaker.text, whole.repeat(3));
    assert.deepEqual(watcher.events, speaker.events);
    assert.deepEqual([speaker.closes, watcher.closes], [[], []], 'an outage of NATS is latency for those who watch');
  }
});

test('daemon - two of them: a session is watched through either, whichever owns it', { timeout: 60_000 }, async (t) => {
  const d = await startDaemons(t, { count: 2 });
  const [first, second] = d.daemons;
  assert.ok(first && second);
  const one = await d.link({ socketPath: first.socketPath, count: 1 });
  const two = await d.link({ socketPath: second.socketPath, count: 1 });
  for (const [from, other] of [[one, two], [two, one]] as const) {
    const { sid, token } = await newSession(d, from);
    const here = d.client(from, { token, sid, org });
    const there = d.client(other, { token, sid, org });
    there.say('/long 100');
    await Promise.all([here.turns(1), there.turns(1)]);
    here.say('/long 50');
    await Promise.all([here.turns(2), there.turns(2)]);
    assert.deepEqual(here.events, there.events);
  }
});

test('daemon - a drain ends with 1001 on its streams and exit code 0; a second signal stops at once; nothing is lost by either', { timeout: 60_000 }, async (t) => {
  const d = await startDaemons(t);
  const [daemon] = d.daemons;
  assert.ok(daemon);
  const link = await d.link();
  const { sid, token } = await newSession(d, link);
  const client = d.client(link, { token, sid, org });
  client.say('/slow 5 80');
  await client.until(() => client.events.length >= 3);
  assert.equal(await daemon.kill('SIGTERM'), 0);
  await client.until(() => client.closes.length > 0);
  assert.equal(client.closes[0], 1001);
  await daemon.start();
  await client.turns(1);
  client.say('/slow 5 80');
  await client.until(() => client.events.length >= 6 && client.ended === 1);
  process.kill(daemon.pid, 'SIGINT');
  assert.equal(await daemon.kill('SIGINT'), 0);
  await daemon.start();
  await client.turns(2);
  assert.equal(client.text, Array.from({ length: 80 }, (_, i) => `w${i + 1}`).join(' ').repeat(2));
});

test('daemon - messages that are not the contract\'s close the stream with 1007, refusals of the actor do not', { timeout: 60_000 }, async (t) => {
  const d = await startDaemons(t);
  const link = await d.link();
  const { sid, token } = await newSession(d, link);
  const good = d.client(link, { token, sid, org });
  good.raw({ kind: 'approve_dispatch', dispatch_id: 'nothing waits under this' });
  good.raw({ kind: 'cancel_dispatch', dispatch_id: '' });
  good.say('hello');
  await good.turns(1);
  assert.deepEqual(good.closes, []);
  for (const message of [{ kind: 'send_message' }, { kind: 'send_message', content: 'x', extra: 1 }, { kind: 'unknown' }, 'text', null]) {
    const bad = d.client(link, { token, sid, org });
    bad.raw(message);
    await assert.rejects(bad.until(() => false), /closed with 1007/);
  }
});

test('daemon - a second one on the same path, a bad file and missing arguments end with a sentence', { timeout: 60_000 }, async (t) => {
  const d = await startDaemons(t);
  const [daemon] = d.daemons;
  assert.ok(daemon);
  const second = await runToEnd(['--config', daemon.configPath]);
  assert.equal(second.code, 1);
  assert.ok(second.stderr.includes('socket_in_use') && second.stderr.includes(daemon.socketPath) && second.stderr.includes(`pid ${daemon.pid}`), second.stderr);
  assert.doesNotMatch(second.stderr, / at .*\.ts:/, 'a sentence, not a stack');
  const bad = join(d.folder, 'bad.toml');
  await writeFile(bad, `${await readFile(daemon.configPath, 'utf8')}\nmisspelt_key = 1\n`);
  const refused = await runToEnd(['--config', bad]);
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /misspelt_key/);
  await writeFile(bad, 'host = ');
  assert.match((await runToEnd(['--config', bad])).stderr, /is not TOML: line 1/);
  assert.match((await runToEnd(['--config', join(d.folder, 'none.toml')])).stderr, /cannot be read \(ENOENT\)/);
  assert.deepEqual(await runToEnd([]), { code: 2, stderr: 'usage: node actors/daemon/main.ts --config <file.toml>\n' });
  assert.equal((await runToEnd(['--nonsense'])).code, 2);
  await assert.doesNotReject(d.ask(await d.link(), 'health', '', ''));
});

test('daemon - without NATS it does not start, says so, and leaves its path free', { timeout: 60_000 }, async (t) => {
  const d = await startDaemons(t);
  const [daemon] = d.daemons;
  assert.ok(daemon);
  const link = await d.link();
  await d.nats.kill();
  await daemon.kill('SIGKILL');
  const { code, stderr } = await runToEnd(['--config', daemon.configPath]);
  assert.equal(code, 1);
  assert.match(stderr, /upstream_unavailable: NATS cannot be reached at nats:/);
  await assert.rejects(d.ask(link, 'health', '', ''), (error) => error instanceof CodedError && error.code === 'upstream_unavailable');
  await d.nats.restart();
  await daemon.start();
});
