/** A real gateway process before a daemon that misbehaves: the ten seconds of its configuration, and what a caller is told. */
import assert from 'node:assert/strict';
import { rm } from 'node:fs/promises';
import { Agent } from 'node:https';
import { after, before, describe, test } from 'node:test';
import { decodeClose, frameType } from '../../contracts/link.ts';
import { callEdge, ending, nextFrame, openSocket, prepareEdge, spawnGateway, type GatewayProcess, type Reply } from '../harness/gateway.ts';
import { startIssuer, type Issuer } from '../harness/issuer.ts';
import { startPeer, type Peer, type PeerRequest } from '../harness/peer.ts';

describe('e2e upstream', () => {
  let issuer: Issuer;
  let peer: Peer;
  let gateway: GatewayProcess;
  let agent: Agent;
  let folder: string;
  let ca: string;
  let token: string;

  before(async () => {
    issuer = await startIssuer();
    peer = await startPeer();
    const prepared = await prepareEdge(issuer, peer.socketPath);
    ({ folder, ca } = prepared);
    const connected = peer.connection();
    gateway = await spawnGateway(folder, 'gateway', prepared.raw);
    await connected;
    agent = new Agent({ ca });
    token = await issuer.token('alice');
  });
  after(async () => {
    agent.destroy();
    gateway.child.kill('SIGKILL');
    await Promise.all([gateway.ended, peer.stop(), issuer.stop()]);
    await rm(folder, { recursive: true });
  });

  const create = (): Promise<Reply> => callEdge(gateway.port, agent, '/v1/agent/create_session', { token, body: { user_id: 'alice', project_id: 'p' } });
  const codeOf = ({ json }: Reply): unknown => (typeof json === 'object' && json !== null && 'error' in json ? json.error : undefined);

  test('e2e upstream - a call that is never answered is given up after ten seconds with 504 and cancelled; a stream lives on through it [UDS-006] [UDS-007] [UDS-010]', async () => {
    const opened = peer.opened();
    const socket = openSocket(gateway.port, ca, 's', { token });
    const ended = ending(socket);
    const stream = await opened;
    const asked = new Promise<PeerRequest>((resolve) => { peer.on.request = resolve; });
    const cancelled = peer.arrival(frameType.cancel);
    const began = performance.now();
    const replied = create();
    const request = await asked;
    assert.equal(request.deadlineMs, 10_000);
    const reply = await replied;
    assert.deepEqual([reply.status, codeOf(reply)], [504, 'upstream_timeout']);
    // Not a measure of speed: it was not given up before its time.
    assert.ok(performance.now() - began >= 9_900);
    assert.equal((await cancelled).id, request.id);
    // An answer that comes too late is nobody's.
    request.answer(201, { late: true });
    const next = nextFrame(socket);
    stream.send('{"kind":"agent_event","n":1}');
    assert.equal(await next, '{"kind":"agent_event","n":1}');
    socket.close();
    assert.equal((await ended).code, 1005);
    assert.deepEqual(await stream.ended, { code: 1000, reason: 'normal' });
  });

  test('e2e upstream - a daemon\'s failure is 502 upstream_error without its path, its stack or its words beyond 256 characters [UDS-009]', async () => {
    const inside = `connect ENOENT ${peer.socketPath} at open (/srv/troupe/actors/daemon/daemon.ts:12:3) token=/etc/troupe/key`;
    for (const [status, body] of [
      [500, { code: 'internal_error', message: inside }], [502, { code: 'internal', message: inside }], [500, { message: `${inside} ${'x'.repeat(5_000)}` }],
      [500, inside], [401, { code: 'unauthorized', message: inside }], [500, { code: 'internal_error', message: 'x', details: { socket: peer.socketPath } }],
    ] as const) {
      peer.on.request = (request) => request.answer(status, body);
      const reply = await create();
      assert.deepEqual([reply.status, codeOf(reply)], [502, 'upstream_error'], reply.text);
      for (const word of [peer.socketPath, '/srv', '/etc', 'daemon.ts']) assert.ok(!reply.text.includes(word), reply.text);
      assert.ok(typeof reply.json === 'object' && reply.json !== null && 'message' in reply.json && typeof reply.json.message === 'string');
      assert.ok(reply.json.message.length <= 256);
    }
  });

  test('e2e upstream - a daemon that hangs up in the middle of a call is 503, and its streams close with 4004 [UDS-008] [WSS-043]', async () => {
    const opened = peer.opened();
    const socket = openSocket(gateway.port, ca, 's', { token });
    const ended = ending(socket);
    await opened;
    peer.on.request = ({ peer: connection }) => connection.destroy();
    const back = peer.connection();
    const reply = await create();
    assert.deepEqual([reply.status, codeOf(reply)], [503, 'upstream_unavailable']);
    const { code, frames } = await ended;
    assert.deepEqual([code, frames], [4004, [{ kind: 'closing', reason: 'upstream_unavailable' }]]);
    const connection = await back;
    peer.on.request = (request) => request.answer(201, {});
    assert.equal((await create()).status, 201);
    assert.deepEqual(connection.seen.filter((frame) => frame.type === frameType.close).map((frame) => decodeClose(frame.payload)), []);
  });
});
