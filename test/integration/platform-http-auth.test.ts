/** Who may call the platform, as far as the gateway decides it: access tokens, API keys, cookies, the site a request comes from, and what guesses cost. */
import assert from 'node:assert/strict';
import { createPublicKey } from 'node:crypto';
import { request } from 'node:https';
import { after, before, describe, test } from 'node:test';
import { exportSPKI, generateKeyPair, importJWK, SignJWT, UnsecuredJWT } from 'jose';
import { authRoutes } from '../../contracts/auth-routes.ts';
import { limits } from '../../contracts/limits.ts';
import { manualClock } from '../harness/manual-clock.ts';
import type { CallOptions, Reply } from '../harness/gateway.ts';
import { baseUrl, startPlatformEdge, type PlatformEdge, type Reached } from '../harness/platform-edge.ts';

const me = authRoutes.me.path;
const alice = 'usr_00000000000000000000000001';
const now = (): number => Math.floor(Date.now() / 1_000);
const codeOf = (reply: Reply): unknown => Object(Object(reply.json).error).code;
const refused = (reply: Reply, status: number, code: string): void => assert.deepEqual([reply.status, codeOf(reply)], [status, code], reply.text);

describe('platform access', () => {
  let edge: PlatformEdge;
  before(async () => {
    edge = await startPlatformEdge();
    edge.on = (one) => one.answer(200, {});
  });
  after(() => edge.stop());
  const call = async (path: string, options: CallOptions = {}): Promise<{ reply: Reply; reached: readonly Reached[] }> => {
    const from = edge.reached.length;
    const reply = await edge.call(path, options);
    return { reply, reached: edge.reached.slice(from) };
  };
  const isRefused = async (headers: Record<string, string>, what: string): Promise<void> => {
    const { reply, reached } = await call(me, { headers });
    assert.deepEqual([reply.status, codeOf(reply), reached.length], [401, 'unauthorized', 0], what);
    assert.equal(reply.headers['www-authenticate'], 'Bearer');
  };

  test('platform access - a token of the platform passes with its bearer beside the body, and goes to the daemon as it came', async () => {
    const token = await edge.access(alice);
    const { reply, reached } = await call(me, { token });
    assert.equal(reply.status, 200, reply.text);
    assert.deepEqual(reached.map((one) => [one.token, one.call.body]), [[token, undefined]]);
    assert.equal((await call(me, { headers: { authorization: `bearer   ${token}` } })).reply.status, 200);
  });

  test('platform access - no bearer, another scheme, two bearers, one over 8 KiB and what is no token are unauthorized [TOK-036] [TOK-037] [ERR-003]', async () => {
    const token = await edge.access(alice);
    for (const [what, headers] of [
      ['none', {}], ['basic', { authorization: `Basic ${Buffer.from('a:b').toString('base64')}` }], ['no scheme', { authorization: token }], ['empty', { authorization: 'Bearer ' }],
      ['two', { authorization: `Bearer ${token}, Bearer ${token}` }], ['two words', { authorization: `Bearer ${token} ${token}` }], ['other', { authorization: 'Bearer nonsense' }],
      ['long', { authorization: `Bearer ${'a'.repeat(limits.bearerMaxBytes + 1)}` }], ['cookie', { cookie: `__Host-troupe=${token}` }], ['dots', { authorization: 'Bearer a.b.c' }],
      ['short key', { authorization: 'Bearer trp_sk_' }], ['key with a dot', { authorization: `Bearer trp_sk_${'a'.repeat(32)}.` }], ['other prefix', { authorization: `Bearer trp_dk_${'a'.repeat(32)}` }],
    ] as const) await isRefused(headers, what);
  });

  test('platform access - past its time and its leeway, and before its time, a token is unauthorized [TOK-038]', async () => {
    await isRefused({ authorization: `Bearer ${await edge.access(alice, { expiresIn: -limits.tokenLeewaySec - 1 })}` }, 'expired');
    await isRefused({ authorization: `Bearer ${await edge.access(alice, { claims: { nbf: now() + limits.tokenLeewaySec + 60 } })}` }, 'not yet');
    for (const exp of [undefined, '9999999999', null]) await isRefused({ authorization: `Bearer ${await edge.access(alice, { claims: { exp: exp as unknown as number } })}` }, String(exp));
    // Within the leeway the daemon decides, to the second.
    const { reached } = await call(me, { token: await edge.access(alice, { expiresIn: -1 }) });
    assert.equal(reached.length, 1);
  });

  test('platform access - changed claims, a foreign signature, alg none and HS256 with the public key are unauthorized [TOK-039]', async () => {
    const token = await edge.access(alice);
    const [head = '', body = '', tail = ''] = token.split('.');
    const claims = Object(JSON.parse(Buffer.from(body, 'base64url').toString('utf8')));
    const changed = Buffer.from(JSON.stringify({ ...claims, sub: 'usr_00000000000000000000000002' })).toString('base64url');
    const stranger = await generateKeyPair('ES256');
    const published: unknown = Object((await edge.call(authRoutes.jwks.path)).json).keys?.[0];
    const pem = createPublicKey({ key: Object(published), format: 'jwk' }).export({ type: 'spki', format: 'pem' });
    assert.equal(String(pem).trim(), await exportSPKI(await importJWK(Object(published), 'ES256', { extractable: true }) as CryptoKey));
    const hs = (secret: string | Buffer, kid = 'platform-1'): Promise<string> =>
      new SignJWT(claims).setProtectedHeader({ alg: 'HS256', kid }).sign(typeof secret === 'string' ? Buffer.from(secret) : secret);
    for (const [what, forged] of [
      ['payload', `${head}.${changed}.${tail}`], ['signature', `${head}.${body}.${tail.slice(0, -4)}AAAA`], ['none', new UnsecuredJWT(claims).encode()], ['no signature', `${head}.${body}.`],
      ['foreign key', await edge.access(alice, { key: stranger.privateKey })], ['unknown kid', await edge.access(alice, { kid: 'nobody' })],
      ['HS256 public key', await hs(String(pem))], ['HS256 development secret', await hs(edge.devSecret)],
      ['no kid', await new SignJWT(claims).setProtectedHeader({ alg: 'ES256' }).sign(stranger.privateKey)],
    ] as const) await isRefused({ authorization: `Bearer ${forged}` }, what);
  });

  test('platform access - identity tokens, capabilities and tokens of another audience are unauthorized [TOK-040]', async () => {
    const identity = await edge.issuer.token(alice);
    const capability = Object((await edge.call('/troupe/v1/auth/bootstrap', { token: await edge.issuer.token('alice'), body: { user_id: 'alice' } })).json).access_token;
    assert.equal(typeof capability, 'string');
    const gatewayToken = await edge.sign({ iss: baseUrl, aud: 'troupe-gateway', sub: alice, grant: 'grt_00000000000000000000000000', exp: now() + 900 });
    for (const [what, token] of [
      ['identity', identity], ['capability', capability], ['gateway token', gatewayToken], ['other audience', await edge.access(alice, { aud: 'other' })],
      ['audience list', await edge.access(alice, { claims: { aud: ['troupe-platform'] } })], ['identity with our audience', await edge.issuer.token(alice, { aud: 'troupe-platform' })],
    ] as const) await isRefused({ authorization: `Bearer ${token}` }, what);
  });

  test('platform access - a token whose issuer is not the base URL is unauthorized [TOK-041]', async () => {
    for (const iss of ['https://evil.example', `${baseUrl}/`, 'http://platform.example', '', 'troupe-gateway']) {
      await isRefused({ authorization: `Bearer ${await edge.access(alice, { iss })}` }, iss);
    }
  });

  test('platform access - an access token is no identity at the edge, and a platform that is not believed there gives none [TOK-040]', async () => {
    for (const token of [await edge.access(alice), await edge.sign({ iss: baseUrl, aud: 'troupe-gateway', sub: alice, grant: 'grt_00000000000000000000000000', exp: now() + 900 })]) {
      assert.equal((await edge.call('/troupe/v1/auth/bootstrap', { token, body: { user_id: alice } })).status, 401);
    }
  });

  test('platform access - the form of an API key is all the gateway looks at: the daemon gets it', async () => {
    const key = `trp_sk_${'a'.repeat(43)}`;
    const { reached } = await call(me, { token: key });
    assert.deepEqual(reached.map((one) => one.token), [key]);
    edge.on = (one) => one.refuse(401, 'unauthorized');
    refused((await call(me, { token: key })).reply, 401, 'unauthorized');
    edge.on = (one) => one.answer(200, {});
  });

  test('platform access - a session cookie is the token of its routes; a malformed one, or two of the name, are nobody', async () => {
    const path = authRoutes.signout.path;
    const post = (cookie: string | undefined): Promise<{ reply: Reply; reached: readonly Reached[] }> => call(path, { method: 'POST', body: {}, headers: cookie === undefined ? {} : { cookie } });
    const good = await post('first=1; __Host-troupe=usr_x.secret; last=2');
    assert.deepEqual(good.reached.map((one) => one.token), ['usr_x.secret']);
    for (const cookie of [
      undefined, '', '__Host-troupe=', '__Host-troupe', '__host-troupe=usr_x.secret', '__Host-troupe=a; __Host-troupe=b', '__Host-troupe=a; x=1; __Host-troupe =a', '__Host-troupe="usr_x.secret"',
      '__Host-troupe=a%20b', 'x__Host-troupe=a.b', 'troupe=usr_x.secret',
      `__Host-troupe=${'a'.repeat(limits.bearerMaxBytes + 1)}`,
    ]) {
      const { reply, reached } = await post(cookie);
      refused(reply, 401, 'unauthorized');
      assert.deepEqual(reached, [], cookie);
    }
    // Where nobody is also somebody: no token goes on.
    const nobody = await call(authRoutes.session.path, { headers: { cookie: '__Host-troupe=a; __Host-troupe=b' } });
    assert.deepEqual(nobody.reached.map((one) => one.token), ['']);
  });

  test('platform access - a bearer beside a cookie route is not looked at', async () => {
    const { reply, reached } = await call(authRoutes.signout.path, { method: 'POST', body: {}, token: await edge.access(alice) });
    refused(reply, 401, 'unauthorized');
    assert.deepEqual(reached, []);
  });

  test('platform access - a browser that says it comes from elsewhere changes nothing, with or without a proof [ERR-004]', async () => {
    const own = `https://localhost:${edge.port}`;
    const cookie = '__Host-troupe=usr_x.secret';
    const path = authRoutes.signout.path;
    const from = (headers: Record<string, string>, to = path, body: unknown = {}): Promise<{ reply: Reply; reached: readonly Reached[] }> =>
      call(to, { method: 'POST', body, headers: { cookie, host: `localhost:${edge.port}`, 'x-csrf-token': 'proof', ...headers } });
    const near: readonly Record<string, string>[] = [{}, { origin: own }, { origin: baseUrl }, { origin: own, 'sec-fetch-site': 'same-origin' }, { 'sec-fetch-site': 'same-origin' }];
    for (const headers of near) {
      const { reply, reached } = await from(headers);
      assert.equal(reply.status, 200, JSON.stringify(headers));
      assert.equal(reached[0]?.call.context.csrf, 'proof');
    }
    const foreign: readonly Record<string, string>[] = [
      { origin: 'https://evil.example' }, { origin: 'null' }, { origin: `http://localhost:${edge.port}` }, { origin: 'https://localhost' }, { origin: `${own}.evil.example` }, { origin: `${own}, ${own}` },
      { origin: own, 'sec-fetch-site': 'cross-site' }, { origin: own, 'sec-fetch-site': 'same-site' }, { 'sec-fetch-site': 'none' }, { 'sec-fetch-site': 'cross-site' },
    ];
    for (const headers of foreign) {
      for (const [to, body] of [[path, {}], [authRoutes.emailVerify.path, { email: 'a@example.com', code: '12345678' }]] as const) {
        const { reply, reached } = await from(headers, to, body);
        refused(reply, 403, 'forbidden');
        assert.deepEqual(reached, [], JSON.stringify(headers));
      }
    }
    // What a page elsewhere embeds carries no session either; a person who opens the address does.
    const show = `${authRoutes.deviceShow.path}?user_code=ABCD-2345`;
    refused((await call(show, { headers: { cookie, 'sec-fetch-site': 'cross-site' } })).reply, 403, 'forbidden');
    refused((await call(show, { headers: { cookie, 'sec-fetch-site': 'same-site' } })).reply, 403, 'forbidden');
    assert.equal((await call(show, { headers: { cookie, 'sec-fetch-site': 'none' } })).reply.status, 200);
    // Programs with a bearer, and OAuth clients in a browser, come from anywhere.
    assert.equal((await call(me, { token: await edge.access(alice), headers: { origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' } })).reply.status, 200);
    assert.equal((await from({ origin: 'https://evil.example' }, authRoutes.deviceCode.path)).reply.status, 200);
  });

  test('platform access - a proof goes on only for routes with a cookie', async () => {
    const { reached } = await call(authRoutes.emailStart.path, { body: { email: 'a@example.com' }, headers: { 'x-csrf-token': 'proof' } });
    assert.equal(reached[0]?.call.context.csrf, undefined);
  });
});

describe('platform keys', () => {
  test('platform keys - the daemon\'s keys are fetched once for many, again for an unknown key, and stay when a fetch fails', async () => {
    const clock = manualClock();
    const edge = await startPlatformEdge({ clock });
    try {
      edge.on = (one) => one.answer(200, {});
      const claims = { iat: Math.floor(clock.wallMs() / 1_000), exp: Math.floor(clock.wallMs() / 1_000) + 86_400 };
      const token = await edge.access(alice, { claims });
      const many = await Promise.all(Array.from({ length: 20 }, () => edge.call(me, { token })));
      assert.deepEqual([new Set(many.map((reply) => reply.status)), edge.keyFetches], [new Set([200]), 1]);
      const key = await edge.newKey('platform-2');
      const next = await edge.access(alice, { key, kid: 'platform-2', claims });
      assert.equal((await edge.call(me, { token: next })).status, 200);
      assert.equal(edge.keyFetches, 2);
      // A made-up key id costs a fetch at most once in the cool-down.
      for (let i = 0; i < 5; i++) assert.equal((await edge.call(me, { token: await edge.access(alice, { kid: `made-up-${i}`, claims }) })).status, 401);
      assert.equal(edge.keyFetches, 2);
      edge.failKeys((request) => request.answer(503, { code: 'journal_unavailable', message: 'x' }));
      clock.advance(limits.jwksTtlMs);
      assert.equal((await edge.call(me, { token: next })).status, 200);
      assert.equal(edge.keyFetches, 3);
    } finally {
      await edge.stop();
    }
  });

  test('platform keys - as long as there are none, a token is neither believed nor called false', async () => {
    const edge = await startPlatformEdge();
    try {
      edge.failKeys((request) => request.answer(404, { code: 'not_found', message: 'x' }));
      const reply = await edge.call(me, { token: await edge.access(alice) });
      refused(reply, 503, 'upstream_unavailable');
      assert.deepEqual(edge.reached, []);
      // Another issuer needs no keys to be refused.
      refused(await edge.call(me, { token: await edge.access(alice, { iss: 'https://evil.example' }) }), 401, 'unauthorized');
    } finally {
      await edge.stop();
    }
  });
});

describe('platform limits', () => {
  const narrow = { limits: { per_user_capacity: 3, per_user_refill_per_sec: 0.001, per_ip_capacity: 4, per_ip_refill_per_sec: 0.001 } };
  const withEdge = async (body: (edge: PlatformEdge) => Promise<void>): Promise<void> => {
    const edge = await startPlatformEdge({ config: narrow });
    try {
      edge.on = (one) => one.answer(200, {});
      await body(edge);
    } finally {
      await edge.stop();
    }
  };
  const times = async (n: number, send: (i: number) => Promise<Reply>): Promise<number[]> => {
    const statuses: number[] = [];
    for (let i = 0; i < n; i++) statuses.push((await send(i)).status);
    return statuses;
  };

  test('platform limits - a verified user spends the own bucket, never the address\'s [ERR-008]', () => withEdge(async (edge) => {
    const token = await edge.access(alice);
    assert.deepEqual(await times(5, () => edge.call(me, { token })), [200, 200, 200, 429, 429]);
    const limited = await edge.call(me, { token });
    refused(limited, 429, 'rate_limited');
    assert.ok(Number(limited.headers['retry-after']) > 0);
    const other = await edge.access('usr_00000000000000000000000002');
    assert.equal((await edge.call(me, { token: other })).status, 200);
  }));

  test('platform limits - guessed keys and cookies, and requests without any, empty the bucket of their address', () => withEdge(async (edge) => {
    edge.on = (one) => one.refuse(401, 'unauthorized');
    const guesses = await times(6, (i) => (i % 2 === 0 ? edge.call(me, { token: `trp_sk_${String(i).repeat(43)}` })
      : edge.call(authRoutes.signout.path, { method: 'POST', body: {}, headers: { cookie: `__Host-troupe=guess.${i}` } })));
    assert.deepEqual(guesses, [401, 401, 401, 401, 429, 429]);
    assert.equal(edge.reached.length, 4);
    assert.equal((await edge.call('/api/legal/manifest', { localAddress: '127.0.0.2' })).status, 401);
    assert.deepEqual(await times(5, () => edge.call(me, { localAddress: '127.0.0.3' })), [401, 401, 401, 401, 429]);
  }));

  test('platform limits - a good key and a good cookie give the address its token back, and have a bucket of their own', () => withEdge(async (edge) => {
    edge.on = (one) => (one.token.startsWith('trp_sk_b') ? one.refuse(403, 'forbidden') : one.answer(200, {}));
    for (const [n, send] of [
      [0, () => edge.call(me, { token: `trp_sk_${'a'.repeat(43)}` })], [1, () => edge.call(me, { token: `trp_sk_${'b'.repeat(43)}` })],
      [2, () => edge.call(authRoutes.signout.path, { method: 'POST', body: {}, headers: { cookie: '__Host-troupe=usr_x.secret' } })],
    ] as const) {
      const statuses = await times(4, send);
      assert.deepEqual(statuses, [...Array.from({ length: 3 }, () => (n === 1 ? 403 : 200)), 429]);
    }
    // Nine good requests later the address has all of its four.
    assert.deepEqual(await times(5, () => edge.call('/api/nothing')), [404, 404, 404, 404, 429]);
  }));

  test('platform limits - a daemon that cannot say leaves the guess paid', () => withEdge(async (edge) => {
    edge.on = (one) => one.refuse(503, 'journal_unavailable');
    assert.deepEqual(await times(5, (i) => edge.call(me, { token: `trp_sk_${String(i).repeat(43)}` })), [503, 503, 503, 503, 429]);
  }));

  test('platform limits - an empty address bucket refuses before token, site and body are looked at', () => withEdge(async (edge) => {
    await times(4, () => edge.call('/api/nothing'));
    for (const options of [{ token: await edge.access(alice) }, { headers: { origin: 'https://evil.example' } }]) refused(await edge.call(me, options), 429, 'rate_limited');
    refused(await edge.call(authRoutes.emailStart.path, { body: {} }), 429, 'rate_limited');
    const oauth = await edge.call(authRoutes.deviceCode.path, { body: {} });
    assert.deepEqual([oauth.status, Object(oauth.json).error], [429, 'rate_limited']);
    assert.equal(edge.reached.length, 0);
  }));
});

test('platform limits - uploads under way are bounded per caller where a body may be large, by any token, and end with their answer', async () => {
  const edge = await startPlatformEdge();
  const path = '/api/v1/chat/completions';
  try {
    for (const token of [await edge.access(alice), `trp_sk_${'a'.repeat(43)}`]) {
      const begun = Array.from({ length: limits.uploadsPerUserMax }, () => {
        const sent = request({
          host: '127.0.0.1', servername: 'localhost', port: edge.port, path, method: 'POST', ca: edge.ca, agent: false,
          headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json', 'content-length': limits.bodyMaxBytes + 1 },
        });
        sent.write('{');
        return sent;
      });
      // Their own resets are what ends them.
      for (const sent of begun) sent.on('error', () => undefined);
      // Each other call is a look at what has arrived.
      while (edge.gateway.requests < begun.length) await edge.call('/healthz');
      const large = { messages: 'x'.repeat(limits.bodyMaxBytes) };
      const over = await edge.call(path, { token, body: large });
      assert.deepEqual([over.status, Object(Object(over.json).error).type], [429, 'rate_limit_error']);
      // Another caller of the same address is not held up, nor is a small body of this one.
      assert.equal((await edge.call(path, { token: await edge.access('usr_00000000000000000000000002'), body: large })).status, 400);
      assert.equal((await edge.call(path, { token, body: {} })).status, 400);
      for (const sent of begun) sent.destroy();
      while (edge.gateway.requests > 0) await edge.call('/healthz');
      assert.equal((await edge.call(path, { token, body: large })).status, 400);
    }
  } finally {
    await edge.stop();
  }
});
