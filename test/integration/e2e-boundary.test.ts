/** The boundary between gateway and daemon as real processes: what each holds, what a kill costs, what a lost one is answered with. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { after, afterEach, before, describe, test } from 'node:test';
import { decodeResponse, frameType } from '../../contracts/link.ts';
import { routes } from '../../contracts/routes.ts';
import { descriptorsOf } from '../harness/descriptors.ts';
import { closedWith, numbered, startEndToEnd, textOf, type EndToEnd, type Visitor } from '../harness/e2e.ts';
import { rawGateway } from '../harness/raw-gateway.ts';
import type { DaemonProcess, GatewayProcess } from '../harness/stack.ts';

const createPath = '/v1/agent/create_session';
/** The kernel keeps the name a socket was bound under; the daemon binds beside its path and renames. */
const renamed = (path: string): string => path.replace(/\.new$/, '');

describe('e2e boundary', () => {
  let e: EndToEnd;
  let daemon: DaemonProcess;
  let first: GatewayProcess;
  /** Gives an upstream call far less than 10 seconds. */
  let hasty: GatewayProcess;
  const hastyMs = 400;

  before(async () => {
    e = await startEndToEnd({ gateways: 2, deadlineMs: (index) => (index === 1 ? hastyMs : undefined) });
    const [one] = e.stack.daemons;
    const [left, right] = e.stack.gateways;
    assert.ok(one !== undefined && left !== undefined && right !== undefined);
    [daemon, first, hasty] = [one, left, right];
  });
  afterEach((t) => e.blame(t));
  after(() => e.stop());

  const create = (visitor: Visitor, gateway: GatewayProcess) => visitor.call(createPath, { gateway, body: { user_id: visitor.sub, project_id: 'p' } });
  const ready = (): Promise<unknown> => Promise.all(e.stack.gateways.map((gateway) => gateway.ready()));

  test('e2e boundary - a gateway killed in the middle of a turn and started again serves the same sid with full replay [UDS-001]', async () => {
    const visitor = await e.visitor();
    const { sid, watcher } = await visitor.chat();
    await watcher.turn('/say before\n/tool clock');
    watcher.say('/slow 10 200');
    watcher.say('/approve the plan');
    const said = watcher.text.length;
    await watcher.until(() => watcher.text.length > said, 'the second turn');
    await first.kill('SIGKILL');
    assert.equal((await watcher.closed()).code, 1006);
    await first.start();
    // What waits, waits on: the approval is asked for by the actor, not by a gateway.
    const back = visitor.watch(sid, { lastSeqNo: watcher.last ?? 0 });
    const asked = await back.event('APPROVAL_REQUIRED');
    await first.restart();
    const again = visitor.watch(sid, { lastSeqNo: asked.seq_no });
    await again.opened;
    again.send({ kind: 'approve_dispatch', dispatch_id: asked.record.payload['dispatch_id'] });
    await again.turns(1);
    const parts = [...watcher.events, ...back.events, ...again.events];
    const whole = visitor.watch(sid, { lastSeqNo: 0 });
    await whole.turns(3);
    assert.deepEqual(whole.events, parts);
    assert.ok(whole.text.includes(numbered(200)));
    const resumed = await visitor.call(createPath, { body: { user_id: visitor.sub, project_id: 'p', resume_sid: sid } });
    assert.equal(resumed.status, 200);
  });

  test('e2e boundary - a stream goes on at another gateway process with sid and last_seq_no, nothing lost or repeated [UDS-002]', async () => {
    const visitor = await e.visitor();
    const { sid, watcher } = await visitor.chat();
    watcher.say('/slow 10 200');
    await watcher.event('TOKEN');
    await first.kill('SIGKILL');
    await watcher.closed();
    const other = visitor.watch(sid, { lastSeqNo: watcher.last ?? 0, gateway: hasty });
    await other.until(() => other.events.length >= 5, 'some events');
    // Back again, while the second one is still there: each sees the rest.
    const until = other.events.length;
    const position = other.last ?? 0;
    await first.start();
    const back = visitor.watch(sid, { lastSeqNo: position });
    await Promise.all([other.turns(1), back.turns(1)]);
    const events = [...watcher.events, ...other.events];
    assert.deepEqual(events.map((event) => event.seq_no), events.map((_, i) => i + 1));
    assert.equal(textOf(events), numbered(200));
    assert.deepEqual(back.events, other.events.slice(until));
  });

  test('e2e boundary - the daemon listens on its Unix socket and on nothing else, also while it works [UDS-003]', async () => {
    const visitor = await e.visitor();
    const { watcher } = await visitor.chat();
    watcher.say('/tool clock\n/hang 3');
    await watcher.event('TOKEN');
    const { inet, unix } = await descriptorsOf(daemon.pid);
    assert.deepEqual(inet.filter((socket) => socket.listening), []);
    assert.deepEqual(unix.filter((socket) => socket.listening).map((socket) => renamed(socket.path)), [daemon.socketPath]);
    // The look works: it sees the daemon's way to NATS, and the ports of those who do listen.
    assert.ok(inet.some((socket) => socket.remotePort === e.stack.nats.port));
    assert.deepEqual((await descriptorsOf(e.stack.nats.pid)).inet.filter((socket) => socket.listening).map((socket) => socket.localPort), [e.stack.nats.port]);
    watcher.send({ kind: 'cancel_dispatch', dispatch_id: '' });
    await watcher.turns(1);
  });

  test('e2e boundary - a gateway holds its listeners, its clients and the daemon\'s socket: no file, no database, no journal [UDS-004] [UDS-005]', async () => {
    const visitor = await e.visitor();
    const { watcher } = await visitor.chat();
    await watcher.turn('/tool clock');
    assert.equal((await visitor.call('/troupe/v1/auth/bootstrap', { body: { user_id: visitor.sub } })).status, 200);
    const { files, inet, unix } = await descriptorsOf(first.pid);
    assert.deepEqual(files, []);
    const own = new Set([first.port, first.opsPort]);
    assert.deepEqual(new Set(inet.filter((socket) => socket.listening).map((socket) => socket.localPort)), own);
    assert.ok(inet.some((socket) => !socket.listening && socket.localPort === first.port), 'the look sees the client');
    assert.deepEqual(inet.filter((socket) => !own.has(socket.localPort)), [], 'it has called nobody');
    assert.deepEqual(unix.filter((socket) => socket.listening).map((socket) => socket.path), [first.adminSocket]);
    // It has one end of the link, the daemon the other, which is bound to the path of the configuration.
    const link = (await descriptorsOf(daemon.pid)).unix.filter((socket) => !socket.listening && renamed(socket.path) === daemon.socketPath);
    assert.equal(link.length, e.stack.gateways.length);
    assert.ok(unix.some((socket) => !socket.listening && socket.path === ''));
  });

  test('e2e boundary - what does not answer is given up with 504, and a stream whose turn takes longer is not [UDS-006] [UDS-007] [UDS-010]', async () => {
    const visitor = await e.visitor();
    const { watcher } = await visitor.chat({ gateway: hasty });
    watcher.say('/slow 20 80');
    await watcher.event('TOKEN');
    const before = watcher.last ?? 0;
    daemon.pause();
    const late = await create(visitor, hasty);
    assert.deepEqual([late.status, typeof late.json === 'object' && late.json !== null && 'error' in late.json && late.json.error], [504, 'upstream_timeout']);
    daemon.resume();
    await watcher.turns(1);
    assert.ok((watcher.last ?? 0) > before);
    assert.equal(watcher.text, numbered(80));
    assert.ok(watcher.isOpen);
    assert.equal((await create(visitor, hasty)).status, 201);
  });

  test('e2e boundary - without a daemon the answer is 503 at once; back again it is served by the running gateway [UDS-008] [UDS-011] [GWH-002]', async () => {
    const visitor = await e.visitor();
    const { sid, watcher } = await visitor.chat();
    await watcher.turn('/say kept');
    const pid = first.pid;
    await daemon.kill('SIGKILL');
    closedWith(await watcher.closed(), 4004, 'upstream_unavailable');
    assert.ok(existsSync(daemon.socketPath), 'the file is left: connecting to it is refused');
    for (const path of [createPath, '/healthz']) {
      const reply = path === createPath ? await create(visitor, first) : await visitor.call(path);
      assert.equal(reply.status, 503);
      assert.equal(typeof reply.json === 'object' && reply.json !== null && 'error' in reply.json && reply.json.error, 'upstream_unavailable');
      assert.ok(!reply.text.includes('/'), reply.text);
    }
    await daemon.start();
    await ready();
    assert.equal(first.pid, pid);
    assert.equal((await visitor.call('/healthz')).text, 'OK');
    const back = visitor.watch(sid, { lastSeqNo: 0 });
    await back.turns(1);
    assert.equal(back.text, 'kept');
    assert.equal(textOf(await back.turn('/say again')), 'again');
  });

  test('e2e boundary - while NATS is gone no answer shows a path or an address of the inside, and afterwards all goes on [UDS-009]', async () => {
    const visitor = await e.visitor();
    const { watcher } = await visitor.chat();
    await watcher.turn('/say before');
    await e.stack.nats.kill();
    const replies = await Promise.all([create(visitor, hasty), create(visitor, hasty), visitor.call('/v1/agent/blobs', { gateway: hasty, method: 'POST', body: 'x' })]);
    await e.stack.nats.restart();
    for (const { status, text } of replies) {
      assert.ok(status >= 502 && status <= 504, `${status} ${text}`);
      assert.doesNotMatch(text, /\/|nats|127\.0\.0\.1|\.ts\b/i);
    }
    assert.equal(textOf(await watcher.turn('/say after')), 'after');
  });

  test('e2e boundary - the daemon takes no identity token and no capability of another audience, whoever holds its socket [UDS-012]', async () => {
    const visitor = await e.visitor();
    const { sid, watcher } = await visitor.chat();
    await watcher.turn('/say secret');
    const bootstrap = await visitor.call('/troupe/v1/auth/bootstrap', { body: { user_id: visitor.sub } });
    assert.ok(typeof bootstrap.json === 'object' && bootstrap.json !== null && 'access_token' in bootstrap.json && typeof bootstrap.json.access_token === 'string');
    const raw = await rawGateway(daemon.socketPath);
    try {
      raw.hello();
      await raw.until(frameType.owns);
      let id = 0;
      for (const token of ['', visitor.token, bootstrap.json.access_token]) {
        id += 1;
        raw.request(id, routes.createSession.wire, JSON.stringify({ user_id: visitor.sub, project_id: 'p' }), { token });
        const { status } = decodeResponse((await raw.until(frameType.response, id)).payload);
        assert.ok(status === 401 || status === 403, String(status));
        id += 1;
        raw.request(id, routes.stream.wire, JSON.stringify({ sid, last_seq_no: 0 }), { token, open: true });
        await raw.until(frameType.close, id);
      }
      assert.equal(raw.frames.filter((frame) => frame.type === frameType.data).length, 0);
    } finally {
      raw.socket.destroy();
    }
  });
});
