/** The local listener for readiness and metrics, the console's files, and a gateway process's whole life. */
import assert from 'node:assert/strict';
import { mkdir, readdir, readlink, rm } from 'node:fs/promises';
import { Agent } from 'node:https';
import { dirname } from 'node:path';
import { test } from 'node:test';
import { callEdge, ending, linked, nextFrame, opened, openSocket, prepareEdge, spawnGateway, startEdge } from '../harness/gateway.ts';
import { startIssuer } from '../harness/issuer.ts';
import { startPeer } from '../harness/peer.ts';
import { freePort } from '../harness/port.ts';

const get = async (port: number, path: string): Promise<{ status: number; type: string; text: string }> => {
  const answer = await fetch(`http://127.0.0.1:${port}${path}`);
  return { status: answer.status, type: answer.headers.get('content-type') ?? '', text: await answer.text() };
};

test('gateway ops - readyz is 200 while a daemon is connected and nothing drains, on a local port of its own', async () => {
  const edge = await startEdge({ config: { ops: { port: await freePort() } } });
  try {
    const { opsPort } = edge.gateway;
    assert.equal((await get(opsPort, '/readyz')).status, 200);
    const gone = linked(edge.gateway, 0);
    await edge.peer.stop();
    await gone;
    assert.equal((await get(opsPort, '/readyz')).status, 503);
    const back = linked(edge.gateway, 1);
    await mkdir(dirname(edge.peer.socketPath), { recursive: true });
    const again = await startPeer({ socketPath: edge.peer.socketPath });
    await back;
    assert.equal((await get(opsPort, '/readyz')).status, 200);
    await edge.gateway.drain(1);
    assert.equal((await get(opsPort, '/readyz')).status, 503);
    for (const path of ['/', '/drain', '/metrics/x']) assert.equal((await get(opsPort, path)).status, 404);
    await again.stop();
    await rm(dirname(edge.peer.socketPath), { recursive: true, force: true });
  } finally {
    await edge.stop();
  }
});

test('gateway ops - metrics count requests, limits, closes, and time verification, upstream and sockets, naming nobody', async () => {
  const edge = await startEdge({ config: { ops: { port: await freePort() }, limits: { per_user_capacity: 3, per_user_refill_per_sec: 0.001 } } });
  try {
    const token = await edge.issuer.token('alice-secret-name', { org: 'acme-secret' });
    const socket = edge.socket('sid-secret', { token });
    const ended = ending(socket);
    await opened(socket);
    socket.send('{"kind":"close"}');
    await ended;
    const create = { token, body: { user_id: 'alice-secret-name', project_id: 'p' } };
    assert.deepEqual([(await edge.call('/v1/agent/create_session', create)).status, (await edge.call('/v1/agent/create_session', create)).status], [200, 429]);
    assert.equal((await edge.call('/nowhere-secret')).status, 404);
    const { text, type } = await get(edge.gateway.opsPort, '/metrics');
    assert.match(type, /version=0\.0\.4/);
    for (const line of [
      'troupe_gateway_requests_total{route="create_session",status="200"} 1', 'troupe_gateway_requests_total{route="create_session",status="429"} 1', 'troupe_gateway_requests_total{route="none",status="404"} 1',
      'troupe_gateway_rate_limited_total{bucket="user"} 1', 'troupe_gateway_upgrades_total{status="101"} 1', 'troupe_gateway_socket_closes_total{code="1000"} 1',
      'troupe_gateway_token_verification_seconds_count 3', 'troupe_gateway_upstream_seconds_count 1', 'troupe_gateway_socket_seconds_count 1',
      'troupe_gateway_sockets 0', 'troupe_gateway_daemons 1', 'troupe_gateway_jwks_fetches 1', 'troupe_gateway_draining 0',
    ]) assert.ok(text.split('\n').includes(line), `${line} is not in\n${text}`);
    assert.ok(!text.includes('secret') && !text.includes('127.0.0.1') && !text.includes(token));
    for (const line of text.trim().split('\n')) assert.match(line, /^(# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.e+-]+)$/);
  } finally {
    await edge.stop();
  }
});

test('gateway ops - the console\'s files are served from memory with a strict policy, and nothing else is', async () => {
  const files = new Map([
    ['/', { type: 'text/html; charset=utf-8', body: Buffer.from('<!doctype html>') }], ['/console.js', { type: 'text/javascript; charset=utf-8', body: Buffer.from('1') }],
  ]);
  const edge = await startEdge({ dependencies: { files } });
  try {
    const page = await edge.call('/');
    assert.deepEqual([page.status, page.text, page.headers['content-type']], [200, '<!doctype html>', 'text/html; charset=utf-8']);
    const policy = page.headers['content-security-policy'];
    assert.ok(typeof policy === 'string' && policy.includes("default-src 'none'") && !policy.includes('unsafe'));
    assert.equal(page.headers['x-content-type-options'], 'nosniff');
    const { etag } = page.headers;
    assert.ok(typeof etag === 'string');
    assert.equal((await edge.call('/', { headers: { 'if-none-match': etag } })).status, 304);
    for (const path of ['/console.js/', '/../package.json', '/%2e%2e/package.json', '/console.js.map', '//']) assert.equal((await edge.call(path)).status, 404, path);
    assert.equal((await edge.call('/', { method: 'POST', body: '' })).status, 404);
  } finally {
    await edge.stop();
  }
});

test('gateway process - serves the built console, opens only its listener and the daemon\'s socket, ends clean on SIGTERM [UDS-004] [UDS-005]', async () => {
  const issuer = await startIssuer();
  const peer = await startPeer({ on: { request: (request) => request.answer(200, 'OK'), open: (stream) => stream.send('{"kind":"agent_event","n":1}') } });
  const { folder, raw, ca } = await prepareEdge(issuer, peer.socketPath, { console: true });
  const connected = peer.connection();
  const gateway = await spawnGateway(folder, 'gateway', raw);
  const agent = new Agent({ ca });
  try {
    await connected;
    while ((await callEdge(gateway.port, agent, '/healthz', {})).status !== 200);
    const page = await callEdge(gateway.port, agent, '/', {});
    assert.match(page.text, /<!doctype html>/i);
    assert.equal((await callEdge(gateway.port, agent, '/console.js', {})).status, 200);
    const token = await issuer.token('alice');
    assert.equal((await callEdge(gateway.port, agent, '/troupe/v1/auth/bootstrap', { token, body: { user_id: 'alice' } })).status, 200);
    // Whatever it holds open now: no file of its folder, no other folder's data; keys were read and closed.
    const fds = `/proc/${String(gateway.child.pid)}/fd`;
    const links = await Promise.all((await readdir(fds)).map((fd) => readlink(`${fds}/${fd}`).catch(() => '')));
    const held = links.filter((link) => link.startsWith('/') && !link.startsWith('/dev/') && !link.startsWith('/proc/'));
    assert.deepEqual(held, []);

    const socket = openSocket(gateway.port, ca, 's', { token });
    const ended = ending(socket);
    await nextFrame(socket);
    gateway.child.kill('SIGTERM');
    const { code, frames } = await ended;
    assert.deepEqual([code, frames.at(-1)], [1001, { kind: 'closing', reason: 'going_away' }]);
    assert.equal(await gateway.ended, 0);
    assert.ok(!gateway.lines.some((line) => line.includes(token)), 'a token is in the log');
  } finally {
    agent.destroy();
    gateway.child.kill('SIGKILL');
    await Promise.all([peer.stop(), issuer.stop()]);
    await rm(folder, { recursive: true });
  }
});

test('gateway process - a daemon that comes back is served again without a restart of the gateway [UDS-011]', async () => {
  const edge = await startEdge();
  try {
    const gone = linked(edge.gateway, 0);
    await edge.peer.stop();
    await gone;
    assert.equal((await edge.call('/healthz')).status, 503);
    const back = linked(edge.gateway, 1);
    await mkdir(dirname(edge.peer.socketPath), { recursive: true });
    const again = await startPeer({ socketPath: edge.peer.socketPath, on: { request: (request) => request.answer(200, 'OK') } });
    await back;
    assert.equal((await edge.call('/healthz')).status, 200);
    await again.stop();
    await rm(dirname(edge.peer.socketPath), { recursive: true, force: true });
  } finally {
    await edge.stop();
  }
});
