/** Tier 1 and Tier 2 at the gateway, over real TLS, with a real issuer and a fake daemon. */
import assert from 'node:assert/strict';
import { createPublicKey, generateKeyPairSync } from 'node:crypto';
import { connect } from 'node:tls';
import { after, before, describe, test } from 'node:test';
import { decodeJwt, exportJWK, generateKeyPair, jwtVerify, SignJWT, type JWTPayload } from 'jose';
import { audiences, bootstrapScopes, scopes, sessionScopes } from '../../contracts/capability.ts';
import { ending, opened, refusal, startEdge, type Edge, type Reply, type SocketOptions } from '../harness/gateway.ts';
import type { PeerRequest } from '../harness/peer.ts';
import { wide } from '../harness/watch.ts';

const bootstrapPath = '/troupe/v1/auth/bootstrap';
const createPath = '/v1/agent/create_session';
const custody = ['sign_auth', 'sign_wallet', 'get_auth_pubkey', 'get_wallet_pubkey', 'mint_session_cap', 'enroll_passkey', 'challenge'] as const;
const digest = Buffer.alloc(32).toString('base64');

const fails = (reply: { status: number; json: unknown }, status: number, code: string): void => {
  assert.ok(typeof reply.json === 'object' && reply.json !== null && 'error' in reply.json);
  assert.deepEqual([reply.status, reply.json.error], [status, code]);
};
const textOf = (reply: Reply, field: string): string => {
  assert.ok(typeof reply.json === 'object' && reply.json !== null, reply.text);
  const value = new Map<string, unknown>(Object.entries(reply.json)).get(field);
  assert.ok(typeof value === 'string', reply.text);
  return value;
};
const bootstrap = (edge: Edge, token: string, sub = 'alice'): Promise<Reply> => edge.call(bootstrapPath, { token, body: { user_id: sub } });
const custodyBody = (route: string, sub = 'alice'): object => ({
  user_id: sub, ...(route.startsWith('sign') ? { digest_b64: digest } : {}), ...(route === 'enroll_passkey' ? { attestation_object_b64: digest, client_data_json_b64: digest } : {}),
});

describe('gateway auth', () => {
  let edge: Edge;
  let asked: PeerRequest[] = [];

  before(async () => {
    edge = await startEdge({ config: wide });
    edge.peer.on.request = (request) => {
      asked.push(request);
      request.answer(request.route?.id === 'create_session' ? 201 : 200, {});
    };
  });
  after(() => edge.stop());

  /** A capability signed with the gateway's own key, with these claims. */
  const forge = (claims: JWTPayload, sign = edge.capabilityKey): Promise<string> => {
    const nowSec = Math.floor(Date.now() / 1_000);
    return new SignJWT({
      iss: 'troupe-gateway', aud: audiences.custody, sub: 'alice', org: 'u-alice', iat: nowSec, nbf: nowSec, exp: nowSec + 600, jti: 'j', scope: [...bootstrapScopes], ...claims,
    }).setProtectedHeader({ alg: 'ES256' }).sign(sign);
  };
  const capabilityOf = async (sub = 'alice'): Promise<string> => textOf(await bootstrap(edge, await edge.issuer.token(sub), sub), 'access_token');

  test('gateway auth - only ES256 by a key of the set is an identity; RS256, HS256 and none are 401 [GWA-001]', async () => {
    assert.equal((await bootstrap(edge, await edge.issuer.token('alice'))).status, 200);
    const rsa = await generateKeyPair('RS256', { extractable: true });
    edge.issuer.publishRaw({ ...(await exportJWK(rsa.publicKey)), kid: 'rsa', alg: 'RS256', use: 'sig' });
    const claims = { sub: 'alice', aud: 'troupe-gateway', exp: Math.floor(Date.now() / 1_000) + 600 };
    const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
    const { kid } = edge.issuer.key;
    const tokens = [
      await new SignJWT(claims).setProtectedHeader({ alg: 'RS256', kid: 'rsa' }).sign(rsa.privateKey),
      await new SignJWT(claims).setProtectedHeader({ alg: 'HS256', kid }).sign(Buffer.alloc(32, 1)),
      `${part({ alg: 'none', kid })}.${part(claims)}.`, `${part({ alg: 'none', kid })}.${part(claims)}.AA`, `${part({ alg: 'ES256', kid })}.${part(claims)}.${'A'.repeat(86)}`,
      await new SignJWT(claims).setProtectedHeader({ alg: 'ES256', kid }).sign((await edge.issuer.makeKey('other')).privateKey), 'abc', 'a.b.c',
    ];
    for (const token of tokens) fails(await bootstrap(edge, token), 401, 'unauthorized');
  });

  test('gateway auth - HS256 keyed with the published key is 401: the entry decides the algorithm [GWA-002]', async () => {
    const { publicJwk, kid } = edge.issuer.key;
    const key = createPublicKey({ format: 'jwk', key: { kty: 'EC', crv: 'P-256', x: publicJwk.x ?? '', y: publicJwk.y ?? '' } });
    for (const secret of [key.export({ type: 'spki', format: 'pem' }), key.export({ type: 'spki', format: 'der' }), JSON.stringify(publicJwk)]) {
      const token = await new SignJWT({ sub: 'alice', aud: 'troupe-gateway', exp: Math.floor(Date.now() / 1_000) + 600 })
        .setProtectedHeader({ alg: 'HS256', kid }).sign(typeof secret === 'string' ? Buffer.from(secret) : secret);
      fails(await bootstrap(edge, token), 401, 'unauthorized');
    }
  });

  test('gateway auth - a token without kid is 401 [GWA-003]', async () => {
    fails(await bootstrap(edge, await edge.issuer.token('alice', { kid: null })), 401, 'unauthorized');
  });

  test('gateway auth - another audience is 403 wrong_audience; a list that holds the name passes [GWA-006]', async () => {
    fails(await bootstrap(edge, await edge.issuer.token('alice', { aud: 'another' })), 403, 'wrong_audience');
    fails(await bootstrap(edge, await edge.issuer.token('alice', { aud: ['x', 'y'] })), 403, 'wrong_audience');
    assert.equal((await bootstrap(edge, await edge.issuer.token('alice', { aud: ['x', 'troupe-gateway'] }))).status, 200);
  });

  test('gateway auth - expiry has 30 s leeway: 20 s ago passes, 40 s ago is 401 [GWA-007]', async () => {
    assert.equal((await bootstrap(edge, await edge.issuer.token('alice', { expiresIn: -20 }))).status, 200);
    fails(await bootstrap(edge, await edge.issuer.token('alice', { expiresIn: -40 })), 401, 'unauthorized');
    assert.equal((await bootstrap(edge, await edge.issuer.token('alice', { notBefore: 20 }))).status, 200);
    fails(await bootstrap(edge, await edge.issuer.token('alice', { notBefore: 40 })), 401, 'unauthorized');
  });

  test('gateway auth - without a valid bearer nothing goes upstream [GWA-015]', async () => {
    asked = [];
    for (const path of [bootstrapPath, createPath, '/v1/agent/blobs']) {
      for (const headers of [undefined, { authorization: 'Bearer' }, { authorization: 'Bearer x' }, { authorization: 'Basic YTpi' }, { authorization: 'Bearer a b' }]) {
        const reply = await edge.call(path, { ...(headers === undefined ? {} : { headers }), body: { user_id: 'alice', project_id: 'p' } });
        fails(reply, 401, 'unauthorized');
        assert.equal(reply.headers['www-authenticate'], 'Bearer');
      }
    }
    fails(await refusal(edge.socket('s')), 401, 'unauthorized');
    assert.deepEqual(asked, []);
  });

  test('gateway auth - agent routes take Tier 1 alone and give the daemon a capability, never the identity token [GWA-016] [GWA-017]', async () => {
    asked = [];
    const token = await edge.issuer.token('carol', { org: 'acme' });
    const socket = edge.socket('s', { token });
    const [stream] = await Promise.all([edge.peer.opened(), opened(socket)]);
    const reply = await edge.call(createPath, { token, body: { user_id: 'carol', project_id: 'p' } });
    assert.equal(reply.status, 201);
    for (const given of [asked[0]?.token ?? '', stream.token]) {
      assert.notEqual(given, token);
      const { payload } = await jwtVerify(given, createPublicKey(edge.capabilityKey), { algorithms: ['ES256'], issuer: 'troupe-gateway', audience: audiences.agent });
      assert.deepEqual([payload.sub, payload['org'], payload['scope']], ['carol', 'acme', [scopes.agentSession]]);
    }
    const frames = edge.peer.connections.flatMap((connection) => connection.seen);
    assert.ok(!frames.some((frame) => frame.payload.includes(token)), 'the identity token was sent to the daemon');
    const ended = ending(socket);
    socket.close();
    await ended;
  });

  test('gateway auth - a capability has the agreed claims, scopes and at most 900 s [GWA-018] [GWA-019] [GWA-020]', async () => {
    const token = await capabilityOf();
    const { payload, protectedHeader } = await jwtVerify(token, createPublicKey(edge.capabilityKey));
    assert.equal(protectedHeader.alg, 'ES256');
    assert.deepEqual([payload.iss, payload.aud, payload.sub], ['troupe-gateway', 'custody.user-cap', 'alice']);
    for (const claim of ['iat', 'nbf', 'exp', 'jti'] as const) assert.ok(payload[claim] !== undefined, claim);
    assert.ok((payload.exp ?? Infinity) - (payload.iat ?? 0) <= 900);
    assert.deepEqual(payload['scope'], ['sign_auth', 'sign_wallet', 'get_pubkey', 'mint_session_cap', 'enroll_passkey'].map((word) => `custody.user.${word}`));
    assert.notEqual(decodeJwt(await capabilityOf()).jti, payload.jti);
  });

  test('gateway auth - a session capability carries only sign and read scopes, and cannot extend itself [GWA-021] [GWA-029]', async () => {
    const reply = await edge.call('/custody/mint_session_cap', { token: await capabilityOf(), body: { user_id: 'alice' } });
    assert.equal(reply.status, 200);
    const session = textOf(reply, 'token');
    const claims = decodeJwt(session);
    assert.deepEqual(claims['scope'], ['sign_auth', 'sign_wallet', 'get_pubkey'].map((word) => `custody.user.${word}`));
    assert.deepEqual(claims['scope'], sessionScopes);
    assert.deepEqual(reply.json, { token: session, expires_at_unix: claims.exp });
    for (const route of ['mint_session_cap', 'enroll_passkey', 'challenge']) {
      fails(await edge.call(`/custody/${route}`, { token: session, body: custodyBody(route) }), 403, 'scope_insufficient');
    }
  });

  test('gateway auth - Tier 1 on every custody route is 403 wrong_audience and nothing is asked [GWA-022]', async () => {
    asked = [];
    const token = await edge.issuer.token('alice');
    for (const route of custody) fails(await edge.call(`/custody/${route}`, { token, body: custodyBody(route) }), 403, 'wrong_audience');
    assert.deepEqual(asked, []);
  });

  test('gateway auth - a capability on create_session, stream and bootstrap is 403 wrong_audience [GWA-023]', async () => {
    asked = [];
    const token = await capabilityOf();
    const before = edge.issuer.fetches;
    fails(await edge.call(createPath, { token, body: { user_id: 'alice', project_id: 'p' } }), 403, 'wrong_audience');
    const again = await bootstrap(edge, token);
    fails(again, 403, 'wrong_audience');
    assert.ok(!again.text.includes('access_token'));
    fails(await refusal(edge.socket('s', { token })), 403, 'wrong_audience');
    fails(await bootstrap(edge, await forge({ aud: audiences.agent })), 403, 'wrong_audience');
    assert.deepEqual([asked, edge.issuer.fetches], [[], before]);
  });

  test('gateway auth - a gateway-signed token for another audience is 403 on custody [GWA-024]', async () => {
    for (const aud of [audiences.agent, 'custody', 'custody.user-cap.x']) {
      for (const route of custody) fails(await edge.call(`/custody/${route}`, { token: await forge({ aud }), body: custodyBody(route) }), 403, 'wrong_audience');
    }
  });

  test('gateway auth - a scope opens its own route and no other [GWA-025]', async () => {
    const token = await forge({ scope: [scopes.signAuth] });
    asked = [];
    assert.equal((await edge.call('/custody/sign_auth', { token, body: custodyBody('sign_auth') })).status, 200);
    for (const route of custody.slice(1)) fails(await edge.call(`/custody/${route}`, { token, body: custodyBody(route) }), 403, 'scope_insufficient');
    assert.deepEqual(asked.map((request) => [request.route?.id, request.token]), [['sign_auth', token]]);
  });

  test('gateway auth - insufficient, empty and missing scopes are 403 with required and present [GWA-026] [GWA-027]', async () => {
    for (const scope of [[], undefined, [scopes.getPubkey], ['custody.user.sign_auth.x']]) {
      const reply = await edge.call('/custody/sign_auth', { token: await forge({ scope }), body: custodyBody('sign_auth') });
      fails(reply, 403, 'scope_insufficient');
      assert.ok(typeof reply.json === 'object' && reply.json !== null && 'required' in reply.json && 'present' in reply.json);
      assert.deepEqual([reply.json.required, reply.json.present], [[scopes.signAuth], scope ?? []]);
    }
  });

  test('gateway auth - a capability of A is refused for B on every custody route [GWA-028]', async () => {
    asked = [];
    const token = await capabilityOf();
    for (const route of custody) fails(await edge.call(`/custody/${route}`, { token, body: custodyBody(route, 'bob') }), 403, 'user_id_mismatch');
    assert.deepEqual(asked, []);
  });

  test('gateway auth - an expired, early, foreign or damaged capability is 401 [GWA-030]', async () => {
    const nowSec = Math.floor(Date.now() / 1_000);
    const foreign = generateKeyPairSync('ec', { namedCurve: 'prime256v1' }).privateKey;
    const good = await forge({});
    const [head = '', body = '', tail = ''] = good.split('.');
    const swapped = Buffer.from(body, 'base64url').toString('utf8').replace('alice', 'bob__');
    for (const token of [
      await forge({ exp: nowSec - 1 }), await forge({ nbf: nowSec + 60 }), await forge({ exp: undefined }), await forge({}, foreign), await forge({ iss: 'another' }),
      `${head}.${body}.${tail.slice(0, -2)}AA`, `${head}.${body}.${tail.slice(4)}`, `${head}.${Buffer.from(swapped).toString('base64url')}.${tail}`, `${head}.${body}`,
    ]) {
      for (const path of ['/custody/sign_auth', '/custody/mint_session_cap']) fails(await edge.call(path, { token, body: custodyBody(path.slice(9)) }), 401, 'unauthorized');
    }
    assert.equal((await edge.call('/custody/sign_auth', { token: good, body: custodyBody('sign_auth') })).status, 200);
  });

  test('gateway auth - the upgrade takes the bearer in the header or in the subprotocol, and answers an offered one [GWA-031] [GWA-032] [GWA-040]', async () => {
    const token = await edge.issuer.token('dave');
    const cases: [SocketOptions, string][] = [
      [{ token }, ''], [{ protocols: [`bearer.${token}`] }, `bearer.${token}`], [{ protocols: [`bearer.${token}`, 'troupe.v1'] }, 'troupe.v1'],
      [{ protocols: ['troupe.v1', `bearer.${token}`] }, 'troupe.v1'], [{ token, protocols: ['troupe.v1'] }, 'troupe.v1'], [{ protocols: ['other', `bearer.${token}`] }, `bearer.${token}`],
    ];
    for (const [options, answered] of cases) {
      const socket = edge.socket('s', options);
      await opened(socket);
      assert.equal(socket.protocol, answered);
      const ended = ending(socket);
      socket.close();
      await ended;
    }
  });

  test('gateway auth - the subprotocol form is for upgrades only [GWA-033]', async () => {
    const token = await edge.issuer.token('alice');
    fails(await edge.call(createPath, { headers: { 'sec-websocket-protocol': `bearer.${token}` }, body: { user_id: 'alice', project_id: 'p' } }), 401, 'unauthorized');
  });

  /** Status line of an upgrade whose subprotocol header holds exactly these bytes. */
  const rawUpgrade = (value: Buffer, authorization = ''): Promise<string> => new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port: edge.port, ca: edge.ca, servername: 'localhost' }, () => {
      socket.write(Buffer.concat([
        Buffer.from(`GET /v1/agent/stream?sid=s HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: ${Buffer.alloc(16).toString('base64')}\r\n${authorization}sec-websocket-protocol: `),
        value, Buffer.from('\r\n\r\n'),
      ]));
    });
    let text = '';
    socket.on('data', (data: Buffer) => {
      text += data.toString('latin1');
      if (text.includes('\r\n')) socket.destroy();
    });
    socket.on('error', reject);
    socket.on('close', () => resolve(text.split('\r\n')[0] ?? ''));
  });

  test('gateway auth - tab, delete, non-ASCII and foreign characters in the bearer subprotocol are 400 before the upgrade [GWA-034] [GWA-035] [GWA-036]', async () => {
    const token = await edge.issuer.token('alice');
    const withByte = (byte: number): Buffer => Buffer.concat([Buffer.from(`bearer.${token.slice(0, 20)}`), Buffer.from([byte]), Buffer.from(token.slice(20))]);
    assert.match(await rawUpgrade(Buffer.from(`bearer.${token}`)), / 101 /);
    for (const byte of [0x09, 0x7f]) assert.match(await rawUpgrade(withByte(byte)), / 400 /, `control ${byte}`);
    for (const byte of [0x80, 0xa0, 0xe9, 0xff]) assert.match(await rawUpgrade(withByte(byte)), / 400 /, `non-ASCII ${byte}`);
    assert.match(await rawUpgrade(Buffer.from(`bearer.${token.slice(0, 20)}é${token.slice(20)}`)), / 400 /);
    for (const value of ['bearer.', 'bearer. ', 'bearer.a b', 'bearer.a=b', 'bearer.a/b', 'bearer.a"b', 'bearer.a;b', `bearer.${token}, bearer.${token}`, 'BEARER.a b']) {
      assert.match(await rawUpgrade(Buffer.from(value)), / 400 /, value);
    }
    assert.match(await rawUpgrade(Buffer.from('bearer.a b'), `authorization: Bearer ${token}\r\n`), / 400 /, 'malformed beside a good header');
  });

  // uWebSockets.js does not finish parsing a head that holds these: it is dropped after its 10 s, without an answer.
  test('gateway auth - other control characters in the bearer subprotocol never upgrade', { timeout: 30_000 }, async () => {
    const token = await edge.issuer.token('alice');
    const bytes = [0x00, 0x01, 0x07, 0x0b, 0x1f];
    const answers = await Promise.all(bytes.map((byte) => rawUpgrade(Buffer.concat([Buffer.from('bearer.'), Buffer.from([byte]), Buffer.from(token)]))));
    assert.deepEqual(answers, bytes.map(() => ''));
  });

  test('gateway auth - a bearer subprotocol over 8 KiB is 400; just under it is read and judged [GWA-037]', async () => {
    for (const bytes of [8_193, 9_000, 16_000]) assert.match(await rawUpgrade(Buffer.from(`bearer.${'a'.repeat(bytes)}`)), / 400 /);
    assert.match(await rawUpgrade(Buffer.from(`bearer.${'a'.repeat(8_192)}`)), / 401 /);
  });

  test('gateway auth - an Authorization bearer over 8 KiB is 400 bad_bearer; one of 8 KiB is not refused for its size [GWA-038]', async () => {
    fails(await edge.call(createPath, { token: 'a'.repeat(8_193), body: {} }), 400, 'bad_bearer');
    fails(await edge.call(createPath, { token: 'a'.repeat(8_192), body: {} }), 401, 'unauthorized');
    const padding = (text: string): JWTPayload => ({ pad: text });
    const small = await edge.issuer.token('alice', { claims: padding('') });
    const near = await edge.issuer.token('alice', { claims: padding('x'.repeat(Math.floor((8_150 - small.length) * 0.75))) });
    assert.ok(near.length > 8_100 && near.length <= 8_192, String(near.length));
    assert.equal((await bootstrap(edge, near)).status, 200);
  });

  test('gateway auth - a well-formed bearer subprotocol that does not verify is 401 and no upgrade [GWA-039]', async () => {
    const forged = await edge.issuer.token('alice', { key: { ...(await edge.issuer.makeKey('x')), kid: edge.issuer.key.kid } });
    for (const value of [forged, 'a.b.c', 'abc']) fails(await refusal(edge.socket('s', { protocols: [`bearer.${value}`] })), 401, 'unauthorized');
  });
});

test('gateway auth - HS256 is read in development mode only, and only with the configured secret [GWA-008] [GWA-009]', async () => {
  const sign = (secret: Uint8Array): Promise<string> =>
    new SignJWT({ sub: 'alice', aud: 'troupe-gateway', exp: Math.floor(Date.now() / 1_000) + 600 }).setProtectedHeader({ alg: 'HS256' }).sign(secret);
  for (const [auth, expected] of [[{ dev_mode: true }, 200], [{ dev_mode: false }, 401], [{}, 401]] as const) {
    const edge = await startEdge({ config: { auth } });
    try {
      assert.equal((await bootstrap(edge, await sign(edge.devSecret))).status, expected);
      fails(await bootstrap(edge, await sign(Buffer.alloc(32, 7))), 401, 'unauthorized');
      assert.equal((await bootstrap(edge, await edge.issuer.token('alice'))).status, 200);
    } finally {
      await edge.stop();
    }
  }
});
