/** The TLS listener: version, certificate from files, swap while it runs, several processes on one port. */
import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { rm, writeFile } from 'node:fs/promises';
import { Agent } from 'node:https';
import { connect as connectTcp } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { connect, getCiphers, type ConnectionOptions, type TLSSocket } from 'node:tls';
import { callEdge, ending, makeCertificate, nextFrame, opened, openSocket, prepareEdge, spawnGateway, startEdge, writeCertificate, type Edge } from '../harness/gateway.ts';
import { startIssuer } from '../harness/issuer.ts';
import { manualClock } from '../harness/manual-clock.ts';
import { startPeer, type PeerStream } from '../harness/peer.ts';
import { freePort } from '../harness/port.ts';

const wide = { limits: { per_user_capacity: 100_000, per_ip_capacity: 100_000 } };

/** The protocol that was agreed on, or the code of the error. */
const handshake = (port: number, options: ConnectionOptions): Promise<string> => new Promise((resolve) => {
  const socket = connect({ host: '127.0.0.1', port, rejectUnauthorized: false, ...options }, () => {
    resolve(socket.getProtocol() ?? 'none');
    socket.destroy();
  });
  socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
  socket.on('close', () => resolve('closed'));
});

const commonName = (port: number): Promise<string> => new Promise((resolve, reject) => {
  const socket = connect({ host: '127.0.0.1', port, rejectUnauthorized: false }, () => {
    resolve(socket.getPeerX509Certificate()?.subject ?? '');
    socket.destroy();
  });
  socket.on('error', reject);
});

describe('gateway tls', () => {
  let edge: Edge;
  before(async () => {
    edge = await startEdge({ config: wide });
  });
  after(() => edge.stop());

  test('gateway tls - a TLS 1.3 handshake completes [TLS-001]', async () => {
    assert.equal(await handshake(edge.port, {}), 'TLSv1.3');
    assert.equal(await handshake(edge.port, { minVersion: 'TLSv1.3', ca: edge.ca, servername: 'localhost', rejectUnauthorized: true }), 'TLSv1.3');
  });

  test('gateway tls - no client limited to TLS 1.2, 1.1 or 1.0 completes a handshake, whatever it offers [TLS-002]', async () => {
    const refused = /^(ERR_SSL_|EPROTO|ECONNRESET|closed)/;
    const suites = getCiphers().filter((name) => !name.startsWith('tls_')).map((name) => name.toUpperCase());
    assert.ok(suites.length > 20);
    const offers = ['ALL:COMPLEMENTOFALL:@SECLEVEL=0', 'DEFAULT', ...suites.map((name) => `${name}:@SECLEVEL=0`)];
    for (const ciphers of offers) assert.match(await handshake(edge.port, { minVersion: 'TLSv1', maxVersion: 'TLSv1.2', ciphers }), refused, ciphers);
    for (const version of ['TLSv1.2', 'TLSv1.1', 'TLSv1'] as const) {
      assert.match(await handshake(edge.port, { minVersion: version, maxVersion: version, ciphers: 'ALL:@SECLEVEL=0' }), refused, version);
    }
    // The one TLS 1.2 suite the server has needs a shared key that no one shares.
    for (const ciphers of ['ECDHE-PSK-AES128-CBC-SHA:@SECLEVEL=0', 'PSK:@SECLEVEL=0']) {
      const pskCallback = (): { psk: Buffer; identity: string } => ({ psk: Buffer.alloc(16), identity: '' });
      assert.match(await handshake(edge.port, { maxVersion: 'TLSv1.2', ciphers, pskCallback, checkServerIdentity: () => undefined }), refused, ciphers);
    }
  });

  test('gateway tls - plain HTTP gets no HTTP answer [TLS-003]', async () => {
    const text = await new Promise<string>((resolve) => {
      const socket = connectTcp(edge.port, '127.0.0.1', () => socket.write('GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n'));
      let seen = '';
      socket.on('data', (data: Buffer) => {
        seen += data.toString('latin1');
      });
      socket.on('error', () => undefined);
      socket.on('close', () => resolve(seen));
    });
    assert.ok(!text.includes('HTTP'), text);
  });

  test('gateway tls - the certificate of tls.cert_path is served [TLS-004]', async () => {
    const socket = await new Promise<TLSSocket>((resolve, reject) => {
      const made = connect({ host: '127.0.0.1', port: edge.port, ca: edge.ca, servername: 'localhost' }, () => resolve(made));
      made.on('error', reject);
    });
    assert.equal(socket.getPeerX509Certificate()?.fingerprint256, new X509Certificate(edge.ca).fingerprint256);
    assert.equal(edge.gateway.certificate.fingerprint, new X509Certificate(edge.ca).fingerprint256.replaceAll(':', '').toLowerCase());
    socket.destroy();
  });
});

test('gateway tls - a start with a missing file, no PEM, or a key of another certificate is refused [TLS-004]', async () => {
  const other = await makeCertificate('other');
  for (const [name, text] of [['key.pem', other.key], ['cert.pem', 'no pem'], ['key.pem', 'no pem'], ['cert.pem', undefined], ['key.pem', undefined]] as const) {
    const issuer = await startIssuer();
    const { folder, raw } = await prepareEdge(issuer, '/nonexistent/d0.sock');
    if (text === undefined) await rm(join(folder, name));
    else await writeFile(join(folder, name), text);
    await assert.rejects(spawnGateway(folder, 'gateway', raw), /The gateway ended with 1/);
    await issuer.stop();
    await rm(folder, { recursive: true });
  }
});

test('gateway tls - a replaced certificate is found by polling every 5 s and served to new connections without a restart [TLS-005]', async () => {
  const clock = manualClock();
  const edge = await startEdge({ clock, config: wide });
  try {
    assert.equal(await commonName(edge.port), 'CN=first');
    await writeCertificate(edge.folder, await makeCertificate('second'));
    clock.advance(4_999);
    assert.equal(await commonName(edge.port), 'CN=first');
    const swapped = edge.logged('certificate swapped');
    clock.advance(1);
    await swapped;
    assert.equal(await commonName(edge.port), 'CN=second');
  } finally {
    await edge.stop();
  }
});

test('gateway tls - existing connections, WebSockets included, live on over a swap with the old certificate [TLS-006]', async () => {
  const edge = await startEdge({ config: wide });
  const agent = new Agent({ ca: edge.ca, keepAlive: true, maxSockets: 1 });
  try {
    const socket = edge.socket('s', { token: await edge.issuer.token('alice') });
    const ended = ending(socket);
    const stream = edge.peer.opened();
    await opened(socket);
    assert.equal((await edge.call('/healthz', { agent })).status, 200);
    const kept = Object.values(agent.freeSockets).flatMap((sockets) => sockets ?? []);
    assert.equal(kept.length, 1);
    for (const name of ['second', 'third']) {
      await writeCertificate(edge.folder, await makeCertificate(name));
      assert.equal((await edge.gateway.reloadCertificate()).swapped, true);
      assert.equal(await commonName(edge.port), `CN=${name}`);
    }
    // The agent trusts the first certificate only: an answer over another connection would fail.
    assert.equal((await edge.call('/healthz', { agent })).status, 200);
    assert.equal(Object.values(agent.freeSockets).flatMap((sockets) => sockets ?? [])[0], kept[0]);
    (await stream).send('{"kind":"agent_event","n":1}');
    assert.equal(await nextFrame(socket), '{"kind":"agent_event","n":1}');
    socket.close();
    await ended;
  } finally {
    agent.destroy();
    await edge.stop();
  }
});

test('gateway tls - no connection is refused while certificates are swapped under load [TLS-007]', async () => {
  const edge = await startEdge({ config: wide });
  try {
    const pairs = [await makeCertificate('even'), await makeCertificate('odd')];
    let swaps = 0;
    let answered = 0;
    const names = new Set<string>();
    const load = Array.from({ length: 8 }, async () => {
      while (swaps < 12 || answered < 200) {
        names.add(await commonName(edge.port));
        answered += 1;
      }
    });
    const swapping = (async () => {
      while (swaps < 12) {
        const pair = pairs[swaps % 2];
        if (pair !== undefined) await writeCertificate(edge.folder, pair);
        assert.equal((await edge.gateway.reloadCertificate()).swapped, true);
        swaps += 1;
        const until = answered + 10;
        while (answered < until) await commonName(edge.port).then(() => (answered += 1));
      }
    })();
    await Promise.all([swapping, ...load]);
    assert.ok(names.has('CN=even') && names.has('CN=odd'), [...names].join());
  } finally {
    await edge.stop();
  }
});

test('gateway tls - a reload that fails keeps the old certificate in service, and a good one later is taken [TLS-008]', async () => {
  const edge = await startEdge({ config: wide });
  try {
    const second = await makeCertificate('second');
    const third = await makeCertificate('third');
    const put = (name: string, text: string): Promise<void> => writeFile(join(edge.folder, name), text);
    const broken: (() => Promise<void>)[] = [
      () => put('cert.pem', second.cert), () => put('cert.pem', 'no pem'), () => put('cert.pem', second.cert.slice(0, 200)), () => put('cert.pem', ''),
      () => rm(join(edge.folder, 'cert.pem')), () => writeCertificate(edge.folder, { cert: second.cert, key: third.key }), () => put('key.pem', 'no pem'), () => rm(join(edge.folder, 'key.pem')),
    ];
    for (const breakIt of broken) {
      await breakIt();
      await assert.rejects(edge.gateway.reloadCertificate(), { code: 'cert_reload_failed' });
      assert.equal(await commonName(edge.port), 'CN=first');
      assert.equal((await edge.call('/healthz')).status, 200);
    }
    await writeCertificate(edge.folder, second);
    assert.equal((await edge.gateway.reloadCertificate()).swapped, true);
    assert.equal(await commonName(edge.port), 'CN=second');
    assert.equal((await edge.gateway.reloadCertificate()).swapped, false);
  } finally {
    await edge.stop();
  }
});

test('gateway tls - two processes serve one port; one drains on SIGTERM, tells its streams 1001, and the other serves on', async () => {
  const issuer = await startIssuer();
  const on = { request: (request: { answer: (status: number, body: unknown) => void }) => request.answer(200, 'OK') };
  const [peerA, peerB] = [await startPeer({ on }), await startPeer({ on })];
  const { folder, raw, ca } = await prepareEdge(issuer, peerA.socketPath, { ...wide, listen: { port: await freePort() } });
  const first = await spawnGateway(folder, 'a', raw);
  const second = await spawnGateway(folder, 'b', { ...raw, upstream: { socket_path: peerB.socketPath } });
  const agent = new Agent({ ca });
  try {
    assert.equal(second.port, first.port);
    const asked = { a: 0, b: 0 };
    for (const [peer, name] of [[peerA, 'a'], [peerB, 'b']] as const) {
      peer.on.request = (request) => {
        asked[name] += 1;
        request.answer(200, 'OK');
      };
    }
    // The kernel chooses by connection, so both are met before long.
    while (asked.a === 0 || asked.b === 0) await callEdge(first.port, agent, '/healthz', {});
    const onFirst: PeerStream[] = [];
    const sockets: Promise<{ code: number }>[] = [];
    for (const peer of [peerA, peerB]) {
      peer.on.open = (stream) => {
        if (peer === peerA) onFirst.push(stream);
        stream.send('{"kind":"agent_event","n":1}');
      };
    }
    while (onFirst.length === 0) {
      const socket = openSocket(first.port, ca, 's', { token: await issuer.token(`user-${sockets.length}`) });
      sockets.push(ending(socket));
      await nextFrame(socket);
    }
    first.child.kill('SIGTERM');
    assert.deepEqual(await onFirst[0]?.ended, { code: 1001, reason: 'going_away' });
    assert.equal((await Promise.race(sockets)).code, 1001);
    assert.equal(await first.ended, 0);
    const before = asked.b;
    for (let i = 0; i < 20; i++) assert.equal((await callEdge(first.port, agent, '/healthz', {})).status, 200);
    assert.equal(asked.b, before + 20);
  } finally {
    agent.destroy();
    first.child.kill('SIGKILL');
    second.child.kill('SIGTERM');
    await second.ended;
    await Promise.all([peerA.stop(), peerB.stop(), issuer.stop()]);
    await rm(folder, { recursive: true });
  }
});
