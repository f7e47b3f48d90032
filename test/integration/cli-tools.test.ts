/** `troupe sessions`, `troupe status`, `troupe replay`, `troupe admin` and how the command finds its configuration. */
import assert from 'node:assert/strict';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { sessionSummary } from '../../contracts/session.ts';
import { FakeEdge } from '../harness/fake-edge.ts';
import { Troupe, troupe, troupeHome, type Home } from '../harness/troupe.ts';

let edge: FakeEdge;
let home: Home;
before(async () => {
  edge = await FakeEdge.start();
  home = await troupeHome(edge);
});
after(async () => {
  await edge.stop();
  await home.remove();
});

/** An admin socket that records each line and answers what it is told to. */
const adminSocket = async (path: string, answer: (request: unknown) => string | undefined): Promise<{ asked: unknown[]; close: () => Promise<void> }> => {
  const asked: unknown[] = [];
  const server = createServer((socket) => {
    socket.on('data', (data) => {
      const request: unknown = JSON.parse(data.toString());
      asked.push(request);
      const text = answer(request);
      if (text === undefined) socket.destroy();
      else socket.end(text);
    });
    socket.on('error', () => undefined);
  });
  await new Promise<void>((resolve) => { server.listen(path, resolve); });
  return { asked, close: () => new Promise((resolve) => { server.close(() => { resolve(); }); }) };
};

test('cli - help names every command and the exit codes; wrong use is exit code 2', async () => {
  const help = await troupe(['--help'], home.folder);
  assert.equal(help.code, 0);
  for (const word of ['chat', 'sessions', 'status', 'replay', 'admin', 'Exit codes']) assert.ok(help.out.includes(word), word);
  for (const name of ['chat', 'sessions', 'status', 'replay']) {
    const own = await troupe([name, '--help'], home.folder);
    assert.ok(own.out.includes('--json') && own.out.includes('Exit codes'), name);
  }
  assert.equal((await troupe(['dance'], home.folder)).code, 2);
  assert.equal((await troupe(['replay'], home.folder)).code, 2);
});

test('cli - finds dev.json from a folder below, and says what to do where there is none', async () => {
  const below = join(home.folder, 'a', 'b');
  await mkdir(below, { recursive: true });
  assert.equal((await troupe(['chat', 'hi'], below)).out, 'You said: hi\n');
  const none = await troupe(['chat', 'hi'], tmpdir());
  assert.equal(none.code, 2);
  assert.match(none.err, /not_configured: .*\nStart Troupe here with `npm start`/);
});

test('cli - takes gateway, token and certificate from the environment', async () => {
  const env = { TROUPE_GATEWAY_URL: edge.url, TROUPE_TOKEN: edge.token, TROUPE_USER_ID: edge.userId, TROUPE_CA: join(home.folder, '.troupe', 'ca.pem') };
  assert.equal((await troupe(['chat', 'hi'], tmpdir(), undefined, env)).out, 'You said: hi\n');
  assert.equal((await troupe(['chat', 'hi'], tmpdir(), undefined, { TROUPE_GATEWAY_URL: edge.url })).code, 2);
});

test('cli - a damaged dev.json is named by its fields, never by its content', async () => {
  const path = join(home.folder, 'bad.json');
  await writeFile(path, JSON.stringify({ gatewayUrl: 'x', user: { gatewayToken: 'very-secret' } }));
  const ran = await troupe(['status', '--config', path], home.folder);
  assert.equal(ran.code, 2);
  assert.match(ran.err, /caPath/);
  assert.ok(!ran.err.includes('very-secret'));
});

test('cli status - says ok while the gateway answers and 3 when it does not', async (t) => {
  const up = await troupe(['status', '--json'], home.folder);
  assert.equal(up.code, 0);
  const report: unknown = JSON.parse(up.out);
  assert.deepEqual(report, {
    gateway: { url: edge.url, ok: true },
    admin: { ok: false, code: 'upstream_unavailable', message: `Nobody serves the admin socket ${home.adminSocket}.` },
  });
  const gone = await FakeEdge.start();
  const place = await troupeHome(gone);
  t.after(() => place.remove());
  await gone.stop();
  const down = await troupe(['status'], place.folder);
  assert.equal(down.code, 3);
  assert.match(down.out, /upstream_unavailable[^]*npm start/);
});

test('cli sessions - lists the newest first over as many pages as it takes, for people and for programs', async (t) => {
  const own = await FakeEdge.start();
  const place = await troupeHome(own);
  t.after(async () => {
    await own.stop();
    await place.remove();
  });
  const none = await troupe(['sessions'], place.folder);
  assert.deepEqual([none.code, none.out], [0, '']);
  assert.match(none.err, /no session yet/);
  for (let i = 0; i < 3; i++) await troupe(['chat', `hi ${i}`], place.folder);
  const sids = [...own.sessions.keys()].toReversed();
  const shown = await troupe(['sessions'], place.folder);
  assert.deepEqual(shown.out.trim().split('\n').map((line) => line.split('  ')[0]), sids);
  assert.match(shown.out, /2026-01-02 03:04  idle {14}1 turns, 8 tokens  mock\n/);
  const two = await troupe(['sessions', '--json', '--limit', '2'], place.folder);
  assert.deepEqual(two.out.trim().split('\n').map((line) => sessionSummary.parse(JSON.parse(line)).sid), sids.slice(0, 2));
  // More than a page of the server holds.
  for (let i = 0; i < 120; i++) own.addSession();
  const many = await troupe(['sessions', '--json', '--limit', '110'], place.folder);
  assert.deepEqual(many.out.trim().split('\n').map((line) => sessionSummary.parse(JSON.parse(line)).sid), [...own.sessions.keys()].toReversed().slice(0, 110));
  assert.equal((await troupe(['sessions', '--limit', '0'], place.folder)).code, 2);
});

test('cli replay - prints the stream from event 1 and the counts', async () => {
  await troupe(['chat', '/tool one'], home.folder);
  const sid = [...edge.sessions.keys()].at(-1) ?? '';
  const ran = await troupe(['replay', sid, '--json'], home.folder);
  assert.equal(ran.code, 0);
  const numbers = ran.out.trim().split('\n').map((line) => /"seq_no":(\d+)/.exec(line)?.[1]);
  assert.deepEqual(numbers, ['1', '2', '3', '4', '5']);
  assert.equal(ran.err, '{"kind":"counts","delivered":5,"lost":0,"repeated":0}\n');
  const text = await troupe(['replay', sid], home.folder);
  assert.match(text.out, /^ {5}1 {2}\S+ {2}TOKEN/);
  assert.match(text.err, /5 events, 0 lost, 0 repeated/);
});

test('cli replay - --follow goes on with live events until Ctrl-C', async () => {
  await troupe(['chat', 'first'], home.folder);
  const sid = [...edge.sessions.keys()].at(-1) ?? '';
  const follow = new Troupe(['replay', sid, '--follow'], home.folder);
  await follow.saw('FINISH');
  await troupe(['chat', '--sid', sid, 'second'], home.folder);
  await follow.saw('second');
  follow.interrupt();
  assert.equal((await follow.ended).code, 0);
});

test('cli admin - sends the operation as the contract has it and prints the result [ADM-002]', async () => {
  const admin = await adminSocket(home.adminSocket, () => '{"ok":true,"result":{"state":"serving"}}\n');
  const ran = await troupe(['admin', 'rate_limit_override', '--kind', 'user', '--key', 'u1', '--capacity', '5', '--refill_per_sec', 'none', '--json'], home.folder);
  const drain = await troupe(['admin', 'drain', '--timeout_ms', '100'], home.folder);
  const bad = await troupe(['admin', 'rate_limit_inspect', '--kind', 'planet'], home.folder);
  await admin.close();
  assert.deepEqual(ran, { code: 0, out: '{"state":"serving"}\n', err: '' });
  assert.equal(drain.code, 0);
  assert.equal(bad.code, 2);
  assert.deepEqual(admin.asked, [
    { op: 'rate_limit_override', kind: 'user', key: 'u1', capacity: 5, refill_per_sec: null }, { op: 'drain', timeout_ms: 100 },
  ]);
});

test('cli admin - a refusal, a socket that closes and an answer that is none are told apart', async () => {
  for (const [reply, code, text] of [
    ['{"ok":false,"error":{"code":"cert_reload_failed","message":"no such file"}}\n', 3, /cert_reload_failed: no such file/],
    [undefined, 4, /forbidden: .*(turned this user away|closed without an answer)/],
    ['hello\n', 4, /protocol_error/],
  ] as const) {
    await rm(home.adminSocket, { force: true });
    const admin = await adminSocket(home.adminSocket, () => reply);
    const ran = await troupe(['admin', 'cert_reload'], home.folder);
    await admin.close();
    assert.equal(ran.code, code, ran.err);
    assert.match(ran.err, text);
  }
});
