/** Which listener and which host name serve which surface, and whom the edge believes when the platform is its identity provider. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { WebSocket } from 'ws';
import { signDevToken } from '../../deploy/start/dev-file.ts';
import { checkConfig } from '../../gateway/config.ts';
import { refusal, startEdge, type CallOptions, type Edge, type EdgeOptions, type Reply } from '../harness/gateway.ts';
import { baseUrl, startPlatformEdge, type PlatformEdge } from '../harness/platform-edge.ts';

const consoleFile = { type: 'text/html; charset=utf-8', body: Buffer.from('the console') };
const files = new Map([['/', consoleFile]]);
const paths = { platform: '/api/legal/manifest', edge: '/healthz', console: '/' } as const;

const withEdge = async (options: EdgeOptions, body: (edge: PlatformEdge) => Promise<void>): Promise<void> => {
  const edge = await startPlatformEdge({ ...options, dependencies: { files, ...options.dependencies } });
  try {
    await body(edge);
  } finally {
    await edge.stop();
  }
};
/** Which surfaces answer there. */
const served = async (edge: Pick<Edge, 'call'>, options: CallOptions): Promise<string[]> => {
  const found: string[] = [];
  for (const [surface, path] of Object.entries(paths)) {
    const reply = await edge.call(path, options);
    if (reply.status === 200) found.push(surface);
    else assert.equal(reply.status, 404, `${surface}: ${reply.text}`);
  }
  return found;
};
const upgrade = (edge: Edge, token: string, options: { readonly port?: number; readonly host?: string }): WebSocket =>
  new WebSocket(`wss://localhost:${options.port ?? edge.port}/v1/agent/stream?sid=s`, {
    ca: edge.ca, headers: { authorization: `Bearer ${token}`, ...(options.host === undefined ? {} : { host: options.host }) },
    lookup: (_host, lookup, done) => (typeof lookup === 'object' && lookup.all === true ? done(null, [{ address: '127.0.0.1', family: 4 }]) : done(null, '127.0.0.1', 4)),
  });

describe('platform surfaces', () => {
  test('platform surfaces - one listener serves platform, edge and console together [VER-005] [VER-004]', () => withEdge({}, async (edge) => {
    assert.deepEqual(await served(edge, {}), ['platform', 'edge', 'console']);
    const token = await edge.issuer.token('alice');
    assert.equal((await edge.call('/troupe/v1/auth/bootstrap', { token, body: { user_id: 'alice' } })).status, 200);
    for (const path of ['/troupe/auth/bootstrap', '/agent/create_session', '/v2/agent/create_session', '/api/v1/agent/create_session']) {
      assert.equal((await edge.call(path, { token, body: { user_id: 'alice' } })).status, 404, path);
    }
    // Each speaks its own language also where it knows nothing.
    assert.deepEqual((await edge.call('/v1/agent/nothing')).json, { error: 'not_found', message: 'There is nothing here.' });
    assert.deepEqual((await edge.call('/api/nothing')).json, { error: { code: 'not_found', message: 'There is nothing here.' } });
  }));

  test('platform surfaces - a listener with surfaces of its own answers 404 for the paths of the others [VER-006]', () => withEdge({
    config: { listen: { surfaces: ['edge'] }, listeners: [{ host: '127.0.0.1', port: 0, surfaces: ['platform', 'console'] }, { host: '127.0.0.1', port: 0, surfaces: ['console'] }] },
  }, async (edge) => {
    const [first, second, third] = edge.gateway.ports;
    assert.deepEqual(await served(edge, { port: first ?? 0 }), ['edge']);
    assert.deepEqual(await served(edge, { port: second ?? 0 }), ['platform', 'console']);
    assert.deepEqual(await served(edge, { port: third ?? 0 }), ['console']);
    const token = await edge.issuer.token('alice');
    const refused = await refusal(upgrade(edge, token, { port: second ?? 0 }));
    assert.equal(refused.status, 404);
    const open = upgrade(edge, token, { port: first ?? 0 });
    await new Promise<void>((resolve, reject) => open.once('open', resolve).once('error', reject));
    assert.equal(edge.gateway.sockets, 1);
    open.terminate();
  }));

  test('platform surfaces - a listed host name serves the surfaces that list it, an unlisted one those without a list [VER-006]', () => withEdge({
    config: { hosts: { platform: ['accounts.example', 'both.example'], edge: ['edge.example', 'both.example'] } },
  }, async (edge) => {
    for (const [host, expected] of [
      ['accounts.example', ['platform']], ['ACCOUNTS.example:8443', ['platform']], ['edge.example', ['edge']], ['both.example', ['platform', 'edge']],
      ['other.example', ['console']], ['localhost', ['console']], ['accounts.example.evil', ['console']], ['127.0.0.1:8443', ['console']], ['[::1]:8443', ['console']],
    ] as const) {
      assert.deepEqual(await served(edge, { headers: { host } }), expected, host);
    }
    const token = await edge.issuer.token('alice');
    const refused = await refusal(upgrade(edge, token, { host: 'accounts.example' }));
    assert.equal(refused.status, 404);
    const open = upgrade(edge, token, { host: 'edge.example' });
    await new Promise<void>((resolve, reject) => open.once('open', resolve).once('error', reject));
    open.terminate();
  }));

  test('platform surfaces - a gateway without a platform knows none of its paths [VER-006]', async () => {
    const edge = await startEdge({ config: { limits: { per_ip_capacity: 1_000 } } });
    try {
      for (const path of ['/api/auth/me', '/api/legal/manifest', '/.well-known/oauth-authorization-server', '/device']) assert.equal((await edge.call(path)).status, 404, path);
    } finally {
      await edge.stop();
    }
  });

  test('platform surfaces - a certificate swap reaches every listener, a drain ends them all', () => withEdge({
    config: { listeners: [{ host: '127.0.0.1', port: 0, surfaces: ['platform'] }] },
  }, async (edge) => {
    const port = edge.gateway.ports[1] ?? 0;
    assert.equal((await edge.call(paths.platform, { port })).status, 200);
    await edge.gateway.drain(0);
    for (const at of edge.gateway.ports) await assert.rejects(edge.call(paths.platform, { port: at }), { code: 'ECONNREFUSED' });
  }));

  test('platform surfaces - a port that is taken leaves nothing listening', async () => {
    await withEdge({}, async (edge) => {
      await assert.rejects(startPlatformEdge({ config: { listeners: [{ host: '127.0.0.1', port: 0, surfaces: ['edge'] }, { host: '203.0.113.1', port: edge.port, surfaces: ['edge'] }] } }), { code: 'bad_config' });
    });
  });
});

describe('platform identity', () => {
  const alice = 'usr_00000000000000000000000001';
  const orgId = 'org_00000000000000000000000001';
  const grant = 'grt_00000000000000000000000001';
  const exp = (): number => Math.floor(Date.now() / 1_000) + 900;
  const bootstrap = async (edge: PlatformEdge, token: string, userId: string): Promise<Reply> => edge.call('/troupe/v1/auth/bootstrap', { token, body: { user_id: userId } });
  const claimsOf = (reply: Reply): Record<string, unknown> =>
    Object(JSON.parse(Buffer.from(String(Object(reply.json).access_token).split('.')[1] ?? '', 'base64url').toString('utf8')));

  test('platform identity - the platform\'s gateway token is believed, and its login and organization go into the capability', () => withEdge({ config: { auth: { platform: true } } }, async (edge) => {
    const token = await edge.sign({ iss: baseUrl, aud: 'troupe-gateway', sub: alice, org: orgId, grant, exp: exp() });
    const reply = await bootstrap(edge, token, alice);
    assert.equal(reply.status, 200, reply.text);
    const { sub, org, grant: login } = claimsOf(reply);
    assert.deepEqual([sub, org, login], [alice, orgId, grant]);
    // Another provider is believed as before, its users have no login of ours.
    const foreign = await bootstrap(edge, await edge.issuer.token('bob', { claims: { grant } }), 'bob');
    assert.deepEqual([foreign.status, claimsOf(foreign)['grant']], [200, undefined]);
  }));

  test('platform identity - a token of the platform must be for this gateway, name its login, and be signed by the platform', () => withEdge({ config: { auth: { platform: true } } }, async (edge) => {
    const good = { iss: baseUrl, aud: 'troupe-gateway', sub: alice, grant, exp: exp() };
    assert.equal((await bootstrap(edge, await edge.sign(good), alice)).status, 200);
    for (const [what, status, token] of [
      ['other gateway', 403, await edge.sign({ ...good, aud: 'other-gateway' })], ['access token', 403, await edge.access(alice)],
      ['no login', 401, await edge.sign({ iss: baseUrl, aud: 'troupe-gateway', sub: alice, exp: exp() })], ['expired', 401, await edge.sign({ ...good, exp: exp() - 1_000 })],
      ['other key', 401, await edge.sign(good, { key: (await edge.issuer.makeKey('x')).privateKey })],
      ['provider with our issuer', 401, await edge.issuer.token(alice, { claims: { iss: baseUrl, grant } })],
    ] as const) assert.equal((await bootstrap(edge, token, alice)).status, status, what);
  }));

  test('platform identity - where the platform is believed, no other provider speaks for its accounts and organizations; the development secret may', () => withEdge({
    config: { auth: { platform: true, dev_mode: true } },
  }, async (edge) => {
    for (const [sub, org] of [[alice, undefined], ['bob', orgId], [alice, orgId]] as const) {
      assert.equal((await bootstrap(edge, await edge.issuer.token(sub, org === undefined ? {} : { org }), sub)).status, 401, `${sub} ${String(org)}`);
    }
    assert.equal((await bootstrap(edge, await edge.issuer.token('bob', { org: 'acme' }), 'bob')).status, 200);
    const dev = await bootstrap(edge, await signDevToken(edge.devSecret.toString('utf8'), { sub: alice, org: orgId, audience: 'troupe-gateway' }), alice);
    assert.deepEqual([dev.status, claimsOf(dev)['org'], claimsOf(dev)['grant']], [200, orgId, undefined]);
  }));

  test('platform identity - the keys are checked at start: no platform without its address, no gateway named as the access audience', () => {
    const base = { listen: { port: 0 }, tls: { cert_path: 'c', key_path: 'k' }, capability: { key_path: 'k' }, upstream: { socket_path: 's' } };
    assert.throws(() => checkConfig({ ...base, auth: { platform: true } }, 'test'), { code: 'bad_config' });
    assert.throws(() => checkConfig({ ...base, auth: {}, platform: { base_url: baseUrl } }, 'test'), { code: 'bad_config' });
    assert.throws(() => checkConfig({ ...base, name: 'troupe-platform', auth: { platform: true }, platform: { base_url: baseUrl } }, 'test'), { code: 'bad_config' });
    assert.throws(() => checkConfig({ ...base, auth: { platform: true }, platform: { base_url: `${baseUrl}/` } }, 'test'), { code: 'bad_config' });
    assert.throws(() => checkConfig({ ...base, auth: { platform: true }, platform: { base_url: baseUrl }, hosts: { edge: ['Upper.example'] } }, 'test'), { code: 'bad_config' });
    assert.equal(checkConfig({ ...base, auth: { platform: true }, platform: { base_url: baseUrl } }, 'test').auth.platform, true);
  });
});
