/** The admin socket with real peers: who is admitted by the kernel's word, every operation, and what breaks the line protocol. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { chmod, mkdtemp, rename, rm, stat, unlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { limits } from '../../contracts/limits.ts';
import { Admission } from '../../gateway/admission.ts';
import { loadPeerLookup, type PeerLookup } from '../../gateway/peer.ts';
import { asProcess, connectAdmin, type AdminConnection } from '../harness/admin-client.ts';
import { ending, makeCertificate, nextFrame, opened, startEdge, writeCertificate, type ConfigPatch, type Edge } from '../harness/gateway.ts';
import { manualClock } from '../harness/manual-clock.ts';

const uid = process.getuid?.() ?? -1;
const root = uid === 0;
const groupFile = readFileSync('/etc/group', 'utf8').split('\n').map((line) => line.split(':'));
const nameOf = (gid: number): string => groupFile.find((line) => Number(line[2]) === gid)?.[0] ?? '';
/** As root a group root is not in; else one's own. */
const ownGid = process.getgid?.() ?? -1;
const member = { gid: root ? 1 : ownGid, name: nameOf(root ? 1 : ownGid) };
const stranger = groupFile.find((line) => line[0] !== '' && line[2] !== undefined && ![0, 1, ownGid, ...(process.getgroups?.() ?? [])].includes(Number(line[2])))?.[0] ?? '';

const silent = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined };

interface Adminable {
  readonly edge: Edge;
  readonly path: string;
  stop(): Promise<void>;
}

/** A gateway with an admin socket in a folder that every user can reach. */
const startAdminable = async (group: string | undefined, config: ConfigPatch = {}, options: Parameters<typeof startEdge>[0] = {}): Promise<Adminable> => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-admin-'));
  await chmod(folder, 0o755);
  const path = join(folder, 'admin.sock');
  const edge = await startEdge({
    ...options,
    config: { limits: { per_user_capacity: 1_000, per_ip_capacity: 1_000 }, ...config, admin: { socket_path: path, ...(group === undefined ? {} : { group }) } },
  });
  return {
    edge, path,
    stop: async () => {
      await edge.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
};

/** Admits this process whatever groups it has, so that operations can be tested as any user. */
const admitsAll: PeerLookup = { credentials: () => ({ pid: 1, uid, gid: 77 }), groups: () => [], groupId: () => 77 };

const resultOf = (reply: unknown): Record<string, unknown> => {
  assert.ok(typeof reply === 'object' && reply !== null && 'ok' in reply && 'result' in reply && typeof reply.result === 'object' && reply.result !== null, JSON.stringify(reply));
  assert.deepEqual([Object.keys(reply).sort(), reply.ok], [['ok', 'result'], true]);
  return { ...reply.result };
};
const errorOf = (reply: unknown): string => {
  assert.ok(typeof reply === 'object' && reply !== null && 'ok' in reply && reply.ok === false && 'error' in reply && typeof reply.error === 'object' && reply.error !== null, JSON.stringify(reply));
  assert.deepEqual(Object.keys(reply.error).sort(), ['code', 'message']);
  return 'code' in reply.error ? String(reply.error.code) : '';
};

describe('gateway admin operations', () => {
  let adminable: Adminable;
  let edge: Edge;
  let admin: AdminConnection;
  const clock = manualClock();

  before(async () => {
    adminable = await startAdminable('any', {}, { clock, dependencies: { peers: admitsAll } });
    ({ edge } = adminable);
    admin = await connectAdmin(adminable.path);
  });
  after(async () => {
    admin.close();
    await adminable.stop();
  });

  const bootstrap = async (token: string, sub: string): Promise<number> =>
    (await edge.call('/troupe/v1/auth/bootstrap', { token, body: { user_id: sub } })).status;

  test('gateway admin - a Unix socket of mode 0660 at the configured path [ADM-001] [ADM-019]', async () => {
    const found = await stat(adminable.path);
    assert.equal(found.isSocket(), true);
    assert.equal(found.mode & 0o777, 0o660);
  });

  test('gateway admin - no operation can be had over the TLS port [ADM-001]', async () => {
    for (const path of ['/admin', '/health', '/drain', '/jwks_flush']) assert.equal((await edge.call(path, { body: { op: 'health' } })).status, 404);
    assert.equal((await edge.call('/healthz')).status, 200);
  });

  test('gateway admin - one line a request, one line a reply, in order, many in one packet [ADM-002] [ADM-005]', async () => {
    const health = resultOf(await admin.ask({ op: 'health' }));
    assert.deepEqual([health['state'], health['port'], health['sockets']], ['serving', edge.port, 0]);
    resultOf(await admin.raw('{"op":"health"}\n{"op":"nope"}\n\n{"op":"jwks_dump"}'));
    assert.equal(errorOf(await admin.next()), 'unknown_op');
    assert.deepEqual(resultOf(await admin.next())['keys'], []);
  });

  test('gateway admin - bad JSON, unknown operations and fields, and failing operations answer ok false with a code [ADM-003]', async () => {
    for (const [line, code] of [
      ['{', 'bad_request'], ['[]', 'bad_request'], ['"health"', 'bad_request'], ['null', 'bad_request'], ['{}', 'bad_request'], ['{"op":"shutdown"}', 'unknown_op'], ['{"op":1}', 'unknown_op'],
      ['{"op":"health","x":1}', 'validation_error'], ['{"op":"drain","timeout_ms":"1"}', 'validation_error'], ['{"op":"rate_limit_override","kind":"user","key":"a","capacity":1,"refill_per_sec":null}', 'bad_request'],
    ] as const) assert.equal(errorOf(await admin.raw(line)), code, line);
    await unlink(join(edge.folder, 'cert.pem'));
    assert.equal(errorOf(await admin.ask({ op: 'cert_reload' })), 'cert_reload_failed');
    await writeFile(join(edge.folder, 'cert.pem'), edge.ca);
  });

  test('gateway admin - a line beyond the bound is refused and the connection ended', async () => {
    const other = await connectAdmin(adminable.path);
    assert.equal(errorOf(await other.raw(`{"op":"${'x'.repeat(limits.adminLineMaxBytes)}"}`)), 'bad_request');
    await other.ended;
  });

  test('gateway admin - jwks_flush fetches before the TTL ends; jwks_dump shows public keys only [ADM-006] [ADM-007]', async () => {
    assert.equal(await bootstrap(await edge.issuer.token('alice'), 'alice'), 200);
    const before = edge.issuer.fetches;
    const dump = resultOf(await admin.ask({ op: 'jwks_dump' }));
    const { publicJwk, kid } = edge.issuer.key;
    assert.deepEqual(dump['keys'], [{ kty: 'EC', crv: 'P-256', alg: 'ES256', kid, x: publicJwk.x, y: publicJwk.y }]);
    assert.equal(edge.issuer.fetches, before);
    const old = await edge.issuer.token('alice');
    assert.equal(await bootstrap(old, 'alice'), 200);
    edge.issuer.publish(await edge.issuer.makeKey('key-2'));
    assert.deepEqual(resultOf(await admin.ask({ op: 'jwks_flush' })), { keys: 1 });
    assert.equal(edge.issuer.fetches, before + 1);
    assert.equal(await bootstrap(await edge.issuer.token('alice'), 'alice'), 200);
    assert.equal(edge.issuer.fetches, before + 1);
    assert.equal(await bootstrap(old, 'alice'), 401);
    edge.issuer.fail('status');
    assert.equal(errorOf(await admin.ask({ op: 'jwks_flush' })), 'upstream_unavailable');
    assert.deepEqual(resultOf(await admin.ask({ op: 'jwks_dump' }))['keys'], []);
    edge.issuer.fail('none');
    assert.deepEqual(resultOf(await admin.ask({ op: 'jwks_flush' })), { keys: 1 });
  });

  test('gateway admin - rate_limit_inspect shows buckets by user and by address [ADM-008]', async () => {
    const token = await edge.issuer.token('inspected');
    for (let i = 0; i < 3; i++) assert.equal(await bootstrap(token, 'inspected'), 200);
    assert.equal((await edge.call('/nowhere', { localAddress: '127.0.0.7' })).status, 404);
    const shown = (reply: unknown): unknown => resultOf(reply)['buckets'];
    assert.deepEqual(shown(await admin.ask({ op: 'rate_limit_inspect', kind: 'user', key: 'inspected' })), [{ kind: 'user', key: 'inspected', tokens: 997, capacity: 1_000, refill_per_sec: 10, overridden: false }]);
    assert.deepEqual(shown(await admin.ask({ op: 'rate_limit_inspect', kind: 'ip', key: '127.0.0.7' })), [{ kind: 'ip', key: '127.0.0.7', tokens: 999, capacity: 1_000, refill_per_sec: 20, overridden: false }]);
    const all = JSON.stringify(shown(await admin.ask({ op: 'rate_limit_inspect' })));
    for (const key of ['"inspected"', '"127.0.0.7"']) assert.ok(all.includes(key), all);
  });

  test('gateway admin - rate_limit_override changes the next requests of that key, and null puts it back [ADM-009]', async () => {
    const token = await edge.issuer.token('limited');
    const set = (capacity: number | null): Promise<unknown> => admin.ask({ op: 'rate_limit_override', kind: 'user', key: 'limited', capacity, refill_per_sec: capacity === null ? null : 1 });
    assert.deepEqual(resultOf(await set(2))['buckets'], [{ kind: 'user', key: 'limited', tokens: 2, capacity: 2, refill_per_sec: 1, overridden: true }]);
    const seen = [await bootstrap(token, 'limited'), await bootstrap(token, 'limited'), await bootstrap(token, 'limited')];
    assert.deepEqual(seen, [200, 200, 429]);
    assert.equal(await bootstrap(await edge.issuer.token('other'), 'other'), 200);
    resultOf(await set(null));
    clock.advance(60_000);
    for (let i = 0; i < 5; i++) assert.equal(await bootstrap(token, 'limited'), 200);
  });

  test('gateway admin - cert_reload swaps at once for new connections [ADM-011]', async () => {
    await writeCertificate(edge.folder, await makeCertificate('second'));
    assert.equal(resultOf(await admin.ask({ op: 'cert_reload' }))['swapped'], true);
    const subject = await new Promise<string>((resolve) => {
      const socket = connectTls({ host: '127.0.0.1', port: edge.port, rejectUnauthorized: false }, () => {
        resolve(socket.getPeerX509Certificate()?.subject ?? '');
        socket.destroy();
      });
    });
    assert.equal(subject, 'CN=second');
    assert.equal(resultOf(await admin.ask({ op: 'cert_reload' }))['swapped'], false);
  });
});

test('gateway admin - these seven operations are known [ADM-004]', async () => {
  const adminable = await startAdminable('any', {}, { dependencies: { peers: admitsAll } });
  const admin = await connectAdmin(adminable.path);
  try {
    for (const request of [
      { op: 'health' }, { op: 'jwks_flush' }, { op: 'jwks_dump' }, { op: 'rate_limit_inspect' }, { op: 'rate_limit_override', kind: 'ip', key: '::1', capacity: null, refill_per_sec: null }, { op: 'cert_reload' }, { op: 'drain', timeout_ms: 1 },
    ]) resultOf(await admin.ask(request));
  } finally {
    admin.close();
    await adminable.stop();
  }
});

test('gateway admin - drain takes no new connection, lets streams go on until they finish, and answers then [ADM-010]', async () => {
  const adminable = await startAdminable('any', {}, { dependencies: { peers: admitsAll } });
  const { edge, path } = adminable;
  const [draining, asking] = [await connectAdmin(path), await connectAdmin(path)];
  try {
    const socket = edge.socket('s', { token: await edge.issuer.token('alice') });
    const ended = ending(socket);
    const stream = edge.peer.opened();
    await opened(socket);
    const drained = draining.ask({ op: 'drain' });
    // The reply to a line of the same connection comes in order; another connection is answered meanwhile.
    while (resultOf(await asking.ask({ op: 'health' }))['state'] !== 'draining');
    await assert.rejects(edge.call('/healthz'), { code: 'ECONNREFUSED' });
    (await stream).send('{"kind":"agent_event","n":1}');
    assert.equal(await nextFrame(socket), '{"kind":"agent_event","n":1}');
    socket.send('{"kind":"ping","seq_no":5}');
    assert.equal(await nextFrame(socket), '{"kind":"pong","seq_no":5}');
    socket.send('{"kind":"close"}');
    assert.equal((await ended).code, 1000);
    assert.deepEqual(resultOf(await drained), { closed: 0 });
    assert.equal(resultOf(await asking.ask({ op: 'health' }))['state'], 'drained');
  } finally {
    draining.close();
    asking.close();
    await adminable.stop();
  }
});

test('gateway admin - without a group there is no admin socket [ADM-016]', async () => {
  const adminable = await startAdminable(undefined);
  try {
    await assert.rejects(stat(adminable.path), { code: 'ENOENT' });
    assert.equal((await adminable.edge.call('/healthz')).status, 200);
  } finally {
    await adminable.stop();
  }
});

test('gateway admin - a stale socket file is replaced, a live one is left alone', async () => {
  const adminable = await startAdminable('any', {}, { dependencies: { peers: admitsAll } });
  const { path } = adminable;
  await assert.rejects(startEdge({ config: { admin: { socket_path: path, group: 'any' } }, dependencies: { peers: admitsAll } }), { code: 'socket_in_use' });
  assert.ok((await stat(path)).isSocket());
  await adminable.stop();
  const folder = await mkdtemp(join(tmpdir(), 'troupe-stale-'));
  const stalePath = join(folder, 'a.sock');
  const crashed = createServer();
  await new Promise<void>((resolve) => crashed.listen(stalePath, resolve));
  // Renamed away, closed, put back: a socket file without a process, as a crash leaves it.
  await rename(stalePath, `${stalePath}.kept`);
  await new Promise<void>((resolve) => crashed.close(() => resolve()));
  await rename(`${stalePath}.kept`, stalePath);
  const edge = await startEdge({ config: { admin: { socket_path: stalePath, group: 'any' } }, dependencies: { peers: admitsAll } });
  const admin = await connectAdmin(stalePath);
  resultOf(await admin.ask({ op: 'health' }));
  admin.close();
  await edge.stop();
  await rm(folder, { recursive: true });
});

test('gateway admin - the kernel\'s word decides: a process of the group is admitted, by primary or supplementary group [ADM-012] [ADM-013] [ADM-019]', async () => {
  const adminable = await startAdminable(member.name);
  try {
    const { path } = adminable;
    assert.equal((await stat(path)).gid, member.gid);
    assert.equal(await asProcess(path, { uid: root ? 65_534 : uid, gid: member.gid }), true);
    if (root) {
      assert.equal(await asProcess(path, { uid: 65_534, gid: 65_534, groups: [member.gid] }), true);
      assert.equal(await asProcess(path, { uid: 65_534, gid: 65_534, groups: [4, 5, 6, member.gid, 7] }), true);
    }
  } finally {
    await adminable.stop();
  }
});

test('gateway admin - a process outside the group is refused although file permissions let it in, root too [ADM-012] [ADM-014] [ADM-015]', async () => {
  const adminable = await startAdminable(root ? member.name : stranger);
  try {
    const { path } = adminable;
    await chmod(path, 0o666);
    assert.equal(await asProcess(path, { uid: root ? 65_534 : uid, gid: root ? 65_534 : ownGid, groups: [] }), 'peer_refused');
    if (root) {
      assert.equal(await asProcess(path, { uid: 0, gid: 0, groups: [0] }), 'peer_refused');
      assert.equal(await asProcess(path, { uid: 0, gid: 0, groups: [0, member.gid] }), true);
      assert.equal(await asProcess(path, { uid: 0, gid: member.gid }), true);
    }
    // Nothing that is sent changes it.
    const own = await connectAdmin(path);
    assert.equal(errorOf(await own.raw('{"op":"health","uid":1,"gid":1}')), 'peer_refused');
    await own.ended;
  } finally {
    await adminable.stop();
  }
});

const withLookup = (overrides: Partial<PeerLookup>): PeerLookup => ({ credentials: () => ({ pid: 1, uid: 0, gid: 0 }), groups: () => [0, 1, 2], groupId: () => 9, ...overrides });

test('gateway admin - uid 0 outside the group is refused, inside it is admitted [ADM-015]', () => {
  const admits = (lookup: Partial<PeerLookup>): boolean => new Admission('ops', withLookup(lookup), manualClock(), silent).admits(3);
  assert.equal(admits({}), false);
  assert.equal(admits({ groups: () => [0, 9] }), true);
  assert.equal(admits({ credentials: () => ({ pid: 1, uid: 0, gid: 9 }) }), true);
});

test('gateway admin - a lookup that fails refuses, and is not tried again for that user for 60 s [ADM-017] [ADM-018]', () => {
  const clock = manualClock();
  const fail = (): never => {
    throw new TypeError('lookup failed');
  };
  for (const broken of [{ groupId: fail }, { groupId: () => undefined }, { groups: fail }] satisfies Partial<PeerLookup>[]) {
    let lookups = 0;
    let working = false;
    let who = 1_000;
    const healthy = withLookup({ groups: () => [9] });
    const lookup: PeerLookup = {
      credentials: () => ({ pid: 1, uid: who, gid: 0 }),
      groupId: (name) => {
        lookups += 1;
        return (working ? healthy : withLookup(broken)).groupId(name);
      },
      groups: (fd) => (working ? healthy : withLookup(broken)).groups(fd),
    };
    const admission = new Admission('ops', lookup, clock, silent);
    assert.deepEqual([admission.admits(3), lookups], [false, 1]);
    working = true;
    clock.advance(59_999);
    assert.deepEqual([admission.admits(3), lookups], [false, 1]);
    // Another user is looked up.
    who = 1_001;
    assert.deepEqual([admission.admits(3), lookups], [true, 2]);
    who = 1_000;
    clock.advance(1);
    assert.deepEqual([admission.admits(3), lookups], [true, 3]);
  }
  assert.equal(new Admission('ops', withLookup({ credentials: fail }), clock, silent).admits(3), false);
});

test('gateway admin - a group that does not exist starts the gateway and admits nobody [ADM-017]', async () => {
  const adminable = await startAdminable('troupe-no-such-group');
  try {
    const own = await connectAdmin(adminable.path);
    assert.equal(errorOf(await own.ask({ op: 'health' })), 'peer_refused');
    own.close();
  } finally {
    await adminable.stop();
  }
});

test('gateway admin - the C library knows groups by name, and throws for what is no socket', async () => {
  const lookup = await loadPeerLookup();
  for (const [name, , gid] of groupFile) if (name !== undefined && name !== '' && gid !== undefined) assert.equal(lookup.groupId(name), Number(gid), name);
  assert.equal(lookup.groupId('troupe-no-such-group'), undefined);
  assert.throws(() => lookup.credentials(-1), { code: 'peer_lookup_failed' });
  assert.throws(() => lookup.groups(-1), { code: 'peer_lookup_failed' });
});
