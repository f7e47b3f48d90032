/** The platform's HTTP surface over real TLS with a fake daemon: bodies, queries, headers, and errors in the shape of each endpoint. */
import assert from 'node:assert/strict';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { after, before, describe, test } from 'node:test';
import { connect } from 'node:tls';
import { authRoutes } from '../../contracts/auth-routes.ts';
import { coded, errorEntry, errors } from '../../contracts/errors.ts';
import { organizationRoutes } from '../../contracts/organization-routes.ts';
import { platformRouteList } from '../../contracts/platform-routes.ts';
import { limits } from '../../contracts/limits.ts';
import { pageHeaders } from '../../gateway/page.ts';
import { refusalAnswer, refusedOf } from '../../gateway/platform-answer.ts';
import type { CallOptions, Reply } from '../harness/gateway.ts';
import { silent } from '../harness/log.ts';
import { startPlatformEdge, type PlatformEdge, type Reached } from '../harness/platform-edge.ts';

const formType = 'application/x-www-form-urlencoded';
const orgId = 'org_00000000000000000000000000';

const envelopeOf = (reply: Reply): { readonly code: string; readonly message: string; readonly details?: Record<string, unknown> } => {
  assert.ok(typeof reply.json === 'object' && reply.json !== null && 'error' in reply.json, reply.text);
  assert.deepEqual(Object.keys(reply.json), ['error']);
  const { error } = reply.json;
  assert.ok(typeof error === 'object' && error !== null && 'code' in error && 'message' in error, reply.text);
  assert.ok(typeof error.code === 'string' && typeof error.message === 'string');
  if (!('details' in error)) return { code: error.code, message: error.message };
  assert.ok(typeof error.details === 'object' && error.details !== null && !Array.isArray(error.details));
  return { code: error.code, message: error.message, details: { ...error.details } };
};
const fails = (reply: Reply, status: number, code: string): Record<string, unknown> => {
  assert.equal(reply.status, status, reply.text);
  assert.equal(envelopeOf(reply).code, code);
  assert.equal(reply.headers['content-type'], 'application/json');
  assert.equal(reply.headers['cache-control'], 'no-store');
  assert.equal(reply.headers['x-content-type-options'], 'nosniff');
  return envelopeOf(reply).details ?? {};
};

describe('platform http', () => {
  let edge: PlatformEdge;
  let token: string;
  let answers: (reached: Reached) => void = (one) => one.answer(200, {});

  before(async () => {
    edge = await startPlatformEdge();
    edge.on = (one) => answers(one);
    token = await edge.access('usr_00000000000000000000000001');
  });
  after(() => edge.stop());

  /** One call, and what reached the daemon because of it. */
  const call = async (path: string, options: CallOptions = {}, on: (reached: Reached) => void = (one) => one.answer(200, {})): Promise<{ reply: Reply; reached: Reached[] }> => {
    const from = edge.reached.length;
    answers = on;
    const reply = await edge.call(path, options);
    return { reply, reached: edge.reached.slice(from) };
  };
  const post = (path: string, body: unknown, options: CallOptions = {}, on?: (reached: Reached) => void): Promise<{ reply: Reply; reached: Reached[] }> =>
    call(path, { method: 'POST', body, ...options }, on);
  const form = (path: string, text: string, options: CallOptions = {}, on?: (reached: Reached) => void): Promise<{ reply: Reply; reached: Reached[] }> =>
    post(path, text, { ...options, headers: { 'content-type': formType, ...options.headers } }, on);

  test('platform http - every route of the table is served under its own method and path, and reaches the daemon as itself [VER-001]', async () => {
    const bodies = new Map<string, unknown>([
      ['device_code', {}], ['device_token', {}], ['refresh', {}], ['device_authorize', { user_code: 'ABCD-2345', action: 'deny' }],
      ['make_api_token', {}], ['revoke', { all: true }], ['gateway_token', {}], ['email_start', { email: 'a@example.com' }],
      ['email_verify', { email: 'a@example.com', code: '12345678' }], ['signout', {}], ['session_token', {}],
      ['revoke_grant', { id: 'grt_00000000000000000000000000' }], ['acceptance', { hash: 'h', terms: true, privacy: true, processing: true, age: true }],
      ['create_organization', { name: 'Acme', slug: 'acme' }], ['invite', { orgId, email: 'b@example.com' }],
      ['update_member', { orgId, userId: 'u', role: 'viewer' }], ['remove_member', { orgId, userId: 'u' }], ['accept_invitation', { token: 't' }],
      ['show_invitation', { token: 't' }], ['revoke_invitation', { orgId, invitationId: 'i' }], ['transfer', { orgId, userId: 'u' }],
      ['create_key', { orgId, name: 'k', scopes: ['*'] }], ['revoke_key', { orgId, id: 'k' }], ['webhook_redeliver', { orgId, id: 'e' }], ['webhook_rotate_secret', { orgId }],
      ['update_organization', { orgId }], ['delete_organization', { orgId }], ['leave', { orgId }],
    ]);
    const queries = new Map([['device_show', '?user_code=ABCD-2345']]);
    for (const route of platformRouteList.filter(({ serve }) => serve.by !== 'stream')) {
      // The form of a page may go to the page's own address.
      if (route.form !== true || route.path.startsWith('/api')) assert.match(route.path, /^\/(api\/(?!v\d)|api\/v1\/(chat\/|models)|\.well-known\/)/);
      const body = bodies.get(route.id);
      // A route that has no example here shows by its refusal that it is served.
      const without = route.body !== undefined && route.raw !== true && body === undefined;
      const query = queries.get(route.id) ?? (route.query !== undefined && /^\/api\/(organization|deployments)/.test(route.path) ? `?orgId=${orgId}` : '');
      const { reply, reached } = await call(`${route.path}${query}`, {
        method: route.method, token, headers: { cookie: '__Host-troupe=abc.def', accept: 'application/json' }, ...(without ? { body: [] } : body === undefined ? {} : { body }),
      }, (one) => one.answer(Number(Object.keys(route.answers)[0]), {}));
      if (without) {
        fails(reply, route.invalidStatus ?? 422, 'validation_error');
        continue;
      }
      if (route.id === 'jwks') assert.ok('keys' in Object(reply.json));
      else assert.deepEqual(reached.map((one) => one.id), [route.id], `${route.method} ${route.path}: ${reply.text}`);
      assert.equal(reply.status, Number(Object.keys(route.answers)[0]), reply.text);
      const expected = route.auth.kind === 'access' ? token : route.auth.kind === 'cookie' ? 'abc.def' : '';
      if (route.id !== 'jwks') assert.equal(reached[0]?.token, expected, route.id);
    }
  });

  test('platform http - unknown paths, other versions and other methods of known paths are not found, in the envelope [VER-002] [ERR-005]', async () => {
    const unknown: readonly (readonly [string, string])[] = [
      ['GET', '/api'], ['GET', '/api/'], ['GET', '/api/nothing'], ['POST', '/api/nothing'], ['GET', '/api/v2'], ['GET', '/api/v2/auth/me'], ['POST', '/api/v2/organization'],
      ['GET', '/api/v1/auth/me'], ['PUT', '/api/auth/me'], ['POST', '/api/auth/me'], ['DELETE', '/api/auth/me'], ['GET', '/api/auth/revoke'], ['PATCH', '/api/auth/email/start'],
      ['GET', '/api/auth/me/'], ['GET', '/.well-known/openid-configuration'],
    ];
    for (const [method, path] of unknown) {
      const { reply, reached } = await call(path, { method, token });
      fails(reply, 404, 'not_found');
      assert.deepEqual(reached, []);
    }
  });

  test('platform http - the daemon is told the address, the cut user agent and the cookies the route names, and nothing else of the head', async () => {
    // Not at the end: uWebSockets.js takes bytes beyond ASCII there for white space.
    const long = 'ü'.repeat(400);
    const { reached } = await call('/api/auth/callback/google?code=c&state=s&unheard=of', {
      headers: { cookie: '__Host-troupe-signin=sealed; __Host-troupe=abc; other=1', 'user-agent': `Agent ${Buffer.from(long).toString('latin1')} end`, 'x-csrf-token': 'proof', 'x-forwarded-for': '9.9.9.9' },
    }, (one) => one.answer(303, undefined, { location: '/' }));
    const [one] = reached;
    assert.ok(one !== undefined);
    assert.deepEqual(Object.keys(one.call.context).toSorted(), ['cookies', 'ip', 'user_agent']);
    assert.equal(one.call.context.ip, '127.0.0.1');
    assert.deepEqual(one.call.context.cookies, { '__Host-troupe-signin': 'sealed' });
    assert.equal(one.call.context.user_agent.length, limits.userAgentMaxChars);
    assert.ok(one.call.context.user_agent.startsWith('Agent ü'));
    assert.deepEqual(one.call.query, { code: 'c', state: 's' });
    assert.equal(one.token, '');
    const { reached: [plain] } = await call('/api/legal/manifest', { headers: { 'user-agent': '' } });
    assert.deepEqual(plain?.call, { context: { ip: '127.0.0.1', user_agent: '' } });
  });

  test('platform http - bodies are JSON; other types, broken JSON and unknown, missing or ill-typed fields are refused with field and constraint [ERR-002] [ERR-007] [ERR-012]', async () => {
    const start = authRoutes.emailStart.path;
    for (const type of ['application/json', 'application/json; charset=utf-8', 'Application/JSON']) {
      const { reply, reached } = await post(start, { email: 'a@example.com' }, { headers: { 'content-type': type } }, (one) => one.answer(202, { sent: true }));
      assert.equal(reply.status, 202, reply.text);
      assert.equal(reply.headers['content-type'], 'application/json');
      assert.deepEqual(reached[0]?.call.body, { email: 'a@example.com' });
    }
    const refused: readonly (readonly [body: unknown, field: string, headers?: Record<string, string>])[] = [
      [{ email: 'a@example.com', extra: 1 }, ''], [{}, 'email'], [{ email: 7 }, 'email'], [{ email: 'nobody' }, 'email'], [{ email: null }, 'email'], ['[]', ''], ['null', ''],
      ['"text"', ''], ['{', ''], ['', ''], ['{"email":"a@example.com"} {}', ''], [{ email: 'a@example.com', return_to: '//evil.example' }, 'return_to'],
      [{ email: 'ａ@example.com' }, 'email'], [Buffer.from([0x22, 0xff, 0x22]), ''],
      ['email=a@example.com', 'content-type', { 'content-type': 'text/plain' }], ['<a/>', 'content-type', { 'content-type': 'application/xml' }],
      ['x', 'content-type', { 'content-type': 'multipart/form-data; boundary=x' }], ['{"email":"a@example.com"}', 'content-type', { 'content-type': 'application/jsonp' }],
    ];
    for (const [body, field, headers] of refused) {
      const { reply, reached } = await post(start, body, headers === undefined ? {} : { headers });
      const details = fails(reply, 422, 'validation_error');
      assert.equal(details['field'], field, `${String(body)}: ${reply.text}`);
      assert.equal(typeof details['constraint'], 'string');
      assert.ok(Array.isArray(details['issues']) && details['issues'].length > 0);
      assert.deepEqual(reached, []);
    }
    const proto = await post(start, '{"email":"a@example.com","__proto__":{"x":1}}');
    fails(proto.reply, 422, 'validation_error');
    const noType = await post(start, Buffer.from('{"email":"a@example.com"}'), { headers: { 'content-type': '' } }, (one) => one.answer(202, { sent: true }));
    assert.equal(noType.reply.status, 202, noType.reply.text);
    const nothing = await post(authRoutes.signout.path, '', { headers: { 'content-type': '', cookie: '__Host-troupe=abc.def' } });
    assert.equal(nothing.reply.status, 200, nothing.reply.text);
  });

  test('platform http - a name that stands twice in a JSON body is refused, at any depth and however it is written', async () => {
    const path = authRoutes.emailStart.path;
    const twice = (name: string): { field: string; constraint: string } => ({ field: name, constraint: 'given more than once in the body' });
    for (const [text, name] of [
      ['{"email":"a@example.com","email":"b@example.com"}', 'email'], ['{"email":"a@example.com", "\\u0065mail" :"b@example.com"}', 'email'],
      ['{"email":{"x":[{"y":1},{"y":1,"y":2}]}}', 'y'], ['{"email":"a@example.com","return_to":"/","return_to":"/"}', 'return_to'],
    ] as const) {
      const { reply, reached } = await post(path, text);
      assert.deepEqual(fails(reply, 422, 'validation_error'), { ...twice(name), issues: [twice(name)] }, text);
      assert.deepEqual(reached, []);
    }
    const update = await call(organizationRoutes.updateOrganization.path, { method: 'PATCH', token, body: `{"orgId":"${orgId}","name":"a","name":"b"}` });
    fails(update.reply, 400, 'validation_error');
    const oauth = await post(authRoutes.refresh.path, '{"refresh_token":"a","refresh_token":"b"}');
    assert.deepEqual([oauth.reply.status, Object(oauth.reply.json).error], [400, 'invalid_request']);
    // The same name in two objects, or as a value, is none.
    assert.equal((await call(organizationRoutes.updateOrganization.path, { method: 'PATCH', token, body: `{"orgId":"${orgId}","name":"name","settings":{"defaultModel":"name"}}` })).reply.status, 200);
  });

  test('platform http - a bad value at an organization endpoint is validation_error with status 400 [ERR-007]', async () => {
    for (const [path, options] of [
      ['/api/organization', { body: { name: 'Acme', slug: 'A' } }], ['/api/organization', { body: {} }], ['/api/organization?orgId=a&orgId=b', {}],
      ['/api/organization/members', {}], ['/api/organization/members?orgId=a&more=1', {}], ['/api/organization/api-keys', { body: { orgId, name: 'k', scopes: ['org.delete'] } }],
    ] as const) {
      const { reply, reached } = await call(path, { token, ...options });
      assert.equal(typeof fails(reply, 400, 'validation_error')['constraint'], 'string');
      assert.deepEqual(reached, []);
    }
  });

  test('platform http - forms are taken where the route says so; their csrf field becomes the proof and is no field [ERR-012]', async () => {
    const cookie = { cookie: '__Host-troupe=abc.def' };
    const path = authRoutes.deviceAuthorize.path;
    const { reply, reached } = await form(path, 'user_code=abcd2345&action=approve&csrf=the%2Bproof', { headers: cookie }, (one) => one.answer(200, { status: 'approved', client_id: 'cli' }));
    assert.equal(reply.status, 200, reply.text);
    assert.deepEqual([reached[0]?.call.body, reached[0]?.call.context.csrf], [{ user_code: 'abcd2345', action: 'approve' }, 'the+proof']);
    const byHeader = await post(path, { user_code: 'abcd2345', action: 'deny' }, { headers: { ...cookie, 'x-csrf-token': 'of the header' } });
    assert.equal(byHeader.reached[0]?.call.context.csrf, 'of the header');
    const inJson = await post(path, { user_code: 'abcd2345', action: 'deny', csrf: 'x' }, { headers: cookie });
    fails(inJson.reply, 422, 'validation_error');
    for (const text of ['user_code=a&user_code=b&action=deny', 'user_code=a&action=deny&csrf=1&csrf=2', 'user_code=a&action=deny&more=1', 'action=deny', '%ff']) {
      const bad = await form(path, text, { headers: cookie });
      fails(bad.reply, 422, 'validation_error');
      assert.deepEqual(bad.reached, []);
    }
    // A JSON-only route takes no form.
    fails((await form('/api/auth/revoke', 'all=true', { token })).reply, 422, 'validation_error');
  });

  test('platform http - HEAD answers as GET does, without a body, and the connection goes on; where there is no GET there is no HEAD', async () => {
    answers = (one) => one.answer(200, { id: one.id }, { 'cache-control': 'public, max-age=7' });
    const me = `/api/auth/me HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${token}\r\n\r\n`;
    const asked = [`HEAD ${me}`, 'HEAD /api/auth/session HTTP/1.1\r\nhost: x\r\n\r\n', 'HEAD /api/auth/me HTTP/1.1\r\nhost: x\r\n\r\n', 'HEAD /api/auth/revoke HTTP/1.1\r\nhost: x\r\n\r\n', `GET ${me}`];
    const from = edge.reached.length;
    const text = await new Promise<string>((resolve, reject) => {
      const requests = [...asked];
      let got = '';
      const next = (): void => void socket.write(requests.shift() ?? '');
      const socket = connect({ host: '127.0.0.1', port: edge.port, ca: edge.ca, servername: 'localhost' }, next);
      socket.on('data', (data: Buffer) => {
        got += data.toString('utf8');
        if (requests.length === 0 && got.endsWith('}')) socket.destroy();
        else if (got.endsWith('\r\n\r\n') && requests.length > 0) next();
      });
      socket.on('error', reject);
      socket.on('close', () => resolve(got));
    });
    const parts = text.split('\r\n\r\n');
    assert.deepEqual(parts.map((head) => head.split('\r\n', 1)[0]), ['HTTP/1.1 200 OK', 'HTTP/1.1 200 OK', 'HTTP/1.1 401 Unauthorized', 'HTTP/1.1 404 Not Found', 'HTTP/1.1 200 OK', '{"id":"me"}']);
    for (const head of [parts[0], parts[4]]) assert.match(head ?? '', /\r\ncache-control: public, max-age=7(\r\n|$)/);
    assert.deepEqual(edge.reached.slice(from).map(({ id }) => id), ['me', 'session', 'me']);
  });

  test('platform http - a body over its bound is refused with 413, whether its length is said beforehand or not [ERR-001]', async () => {
    const path = authRoutes.emailStart.path;
    const { reply, reached } = await post(path, `{"email":"${'a'.repeat(limits.bodyMaxBytes)}"}`);
    fails(reply, 413, 'payload_too_large');
    const chunked = await new Promise<IncomingMessage>((resolve, reject) => {
      const sent = request({ host: '127.0.0.1', servername: 'localhost', port: edge.port, path, method: 'POST', ca: edge.ca, agent: false, headers: { 'content-type': 'application/json', 'transfer-encoding': 'chunked' } }, resolve);
      sent.on('error', reject);
      sent.write('a'.repeat(limits.bodyMaxBytes));
      sent.end('a');
    });
    assert.equal(chunked.statusCode, 413);
    chunked.destroy();
    assert.deepEqual(reached, []);
    // At the bound it is read.
    const exact = `{"email":"${'a'.repeat(limits.bodyMaxBytes - 12)}"}`;
    assert.equal(Buffer.byteLength(exact), limits.bodyMaxBytes);
    fails((await post(path, exact)).reply, 422, 'validation_error');
  });

  test('platform http - a refusal of the daemon keeps its code, message and details, with the status of the table [ERR-001] [ERR-003] [ERR-004] [ERR-005] [ERR-006] [ERR-008] [ERR-017] [ERR-018]', async () => {
    for (const code of ['unauthorized', 'forbidden', 'not_found', 'conflict', 'rate_limited', 'plan_limit', 'legal_acceptance_required', 'stale_policy', 'credits_exhausted', 'device_expired', 'last_owner'] as const) {
      const details = code === 'plan_limit' ? { limit: 3, upgradeUrl: 'https://troupe.example/plans' } : undefined;
      const { reply } = await call('/api/auth/me', { token }, (one) => one.refuse(errorEntry(code).http, code, details, `Sentence about /${code}`));
      const shown = fails(reply, errorEntry(code).http, code);
      assert.equal(envelopeOf(reply).message, `Sentence about /${code}`);
      assert.deepEqual(shown, details ?? {});
    }
    const expected = { unauthorized: 401, forbidden: 403, not_found: 404, conflict: 409, rate_limited: 429, plan_limit: 403, legal_acceptance_required: 403, stale_policy: 401, credits_exhausted: 402 };
    for (const [code, status] of Object.entries(expected)) assert.equal(errorEntry(code).http, status, code);
    const invalid = await call('/api/organization', { token }, (one) => one.refuse(422, 'validation_error', { field: 'slug', constraint: 'taken' }));
    assert.deepEqual(fails(invalid.reply, 400, 'validation_error'), { field: 'slug', constraint: 'taken' });
    const missing = await call('/api/auth/me', { token }, (one) => one.refuse(404, 'unknown_route'));
    fails(missing.reply, 404, 'not_found');
  });

  test('platform http - a bug of the daemon, an answer outside the contract and a header that would end its line are 500 with a correlation id and nothing else [ERR-010] [ERR-011]', async () => {
    const secret = 'postgres://troupe:hunter2@/var/run/x select * from users';
    const wrong: readonly ((one: Reached) => void)[] = [
      (one) => one.refuse(500, 'internal_error', { correlation_id: 'x' }, secret), (one) => one.request.answer(500, { stack: secret }), (one) => one.request.answer(200, { text: 5 }),
      (one) => one.request.answer(201, { headers: {}, text: '{}' }), (one) => one.request.answer(200, 'just text'),
      (one) => one.answer(200, {}, { 'x-made-up': secret }), (one) => one.answer(200, {}, { 'cache-control': `no-store\r\nset-cookie: a=b` }),
      (one) => one.answer(200, {}, { 'set-cookie': ['good=1', `bad=1\r\nx-injected: 1`] }), (one) => one.answer(200, {}, { location: '/a\nb' }),
      (one) => one.answer(200, {}, { 'content-disposition': 'attachment; filename="ü"' }),
    ];
    for (const on of wrong) {
      const logged = edge.logged('unexpected fault');
      const { reply } = await call('/api/auth/me', { token }, on);
      fails(reply, 500, 'internal_error');
      assert.deepEqual(reply.json, { error: { code: 'internal_error', message: errors.internal_error.message } });
      assert.equal(reply.headers['set-cookie'], undefined);
      assert.equal(reply.headers['x-injected'], undefined);
      const { fields } = await logged;
      assert.ok('correlation' in fields);
      assert.equal(reply.headers['x-correlation-id'], fields.correlation);
      assert.ok(!reply.text.includes('hunter2') && !JSON.stringify(reply.headers).includes('hunter2'));
    }
  });

  test('platform http - a fault says its code and the sentence of the table, never what upstream said [ERR-011]', async () => {
    const { reply } = await call('/api/auth/me', { token }, (one) => one.refuse(503, 'journal_unavailable', { host: '10.0.0.1' }, 'connect ECONNREFUSED 10.0.0.1'));
    assert.deepEqual(fails(reply, 503, 'journal_unavailable'), {});
    assert.equal(envelopeOf(reply).message, errors.journal_unavailable.message);
  });

  test('platform http - of an answer exactly the contract\'s headers pass, each cookie in a line of its own', async () => {
    const { reply } = await call('/api/organization/audit?orgId=x&format=csv', { token }, (one) => one.answer(200, 'id,action\n', {
      'content-type': 'text/csv; charset=utf-8', 'content-disposition': 'attachment; filename="audit.csv"', 'cache-control': 'private', 'set-cookie': ['a=1; Path=/', 'b=2; Path=/'],
    }));
    assert.equal(reply.text, 'id,action\n');
    assert.deepEqual(
      ['content-type', 'content-disposition', 'cache-control', 'x-content-type-options'].map((name) => reply.headers[name]),
      ['text/csv; charset=utf-8', 'attachment; filename="audit.csv"', 'private', 'nosniff'],
    );
    assert.deepEqual(reply.headers['set-cookie'], ['a=1; Path=/', 'b=2; Path=/']);
    const page = await call('/api/auth/me', { token }, (one) => one.answer(200, '<p>', { 'content-type': 'text/html; charset=utf-8' }));
    for (const [name, value] of Object.entries(pageHeaders)) assert.equal(page.reply.headers[name], value, name);
    const redirect = await call('/api/auth/signin/google', {}, (one) => one.answer(303, undefined, { location: 'https://accounts.example/o?x=1' }));
    assert.deepEqual([redirect.reply.status, redirect.reply.headers.location, redirect.reply.headers['content-type'], redirect.reply.text], [303, 'https://accounts.example/o?x=1', undefined, '']);
  });

  test('platform http - the OAuth endpoints take JSON and forms, ignore what they do not know, and answer errors flat [ERR-016]', async () => {
    const routes = [authRoutes.deviceCode, authRoutes.deviceToken, authRoutes.refresh];
    for (const { path } of routes) {
      for (const send of [() => post(path, { client_id: 'cli', audience: 'x' }), () => form(path, 'client_id=cli&audience=x')]) {
        const { reply, reached } = await send();
        assert.equal(reply.status, 200, reply.text);
        assert.deepEqual(reached[0]?.call.body, { client_id: 'cli' });
        assert.equal(reply.headers['cache-control'], 'no-store');
      }
      for (const send of [() => post(path, '{'), () => post(path, { client_id: 7 }), () => form(path, 'client_id=a&client_id=b'), () => post(path, 'x', { headers: { 'content-type': 'text/plain' } })]) {
        const { reply } = await send();
        assert.equal(reply.status, 400, reply.text);
        assert.deepEqual(Object.keys(Object(reply.json)).toSorted(), ['error', 'error_description']);
        assert.equal(Object(reply.json).error, 'invalid_request');
      }
    }
    // Too large is a malformed request in their words, whatever it comes as; what follows it is not read.
    const large = 'a'.repeat(limits.bodyMaxBytes);
    for (const send of [() => form(authRoutes.deviceCode.path, `client_id=${large}`), () => post(authRoutes.refresh.path, { refresh_token: large })]) {
      const { reply, reached } = await send();
      assert.equal(reply.status, 413, reply.text);
      assert.deepEqual(Object.keys(Object(reply.json)).toSorted(), ['error', 'error_description']);
      assert.equal(Object(reply.json).error, 'invalid_request');
      assert.deepEqual(reached, []);
    }
    const shown = async (status: number, code: string, message = 'A sentence.', details: Record<string, unknown> = {}): Promise<Reply> =>
      (await post(authRoutes.deviceToken.path, {}, {}, (one) => one.refuse(status, code, details, message))).reply;
    const words: readonly (readonly [status: number, code: string, shownStatus: number, word: string])[] = [
      [400, 'authorization_pending', 400, 'authorization_pending'], [400, 'access_denied', 400, 'access_denied'], [400, 'expired_token', 400, 'expired_token'],
      [400, 'invalid_grant', 400, 'invalid_grant'], [400, 'unsupported_grant_type', 400, 'unsupported_grant_type'], [401, 'invalid_refresh', 401, 'invalid_grant'],
      [422, 'validation_error', 400, 'invalid_request'], [503, 'journal_unavailable', 503, 'temporarily_unavailable'], [500, 'internal_error', 500, 'server_error'],
      [429, 'rate_limit_exceeded', 429, 'rate_limit_exceeded'],
    ];
    for (const [status, code, shownStatus, word] of words) {
      const reply = await shown(status, code);
      assert.deepEqual([reply.status, Object(reply.json).error], [shownStatus, word]);
    }
    assert.equal(Object((await shown(400, 'invalid_grant', 'A "quoted" \\ sentence – ü\n')).json).error_description, 'A \'quoted\' \' sentence ? ??');
  });

  test('platform http - what a limit says in its details becomes the rate-limit headers, of a limit\'s refusals only', async () => {
    const details = { limit: 5, remaining: 0, reset: 1_900_000_000, retry_after: 17 };
    const slow = await post(authRoutes.deviceToken.path, {}, {}, (one) => one.refuse(400, 'slow_down', details));
    const over = await post(authRoutes.deviceCode.path, {}, {}, (one) => one.refuse(429, 'rate_limit_exceeded', details));
    const limited = await call('/api/auth/me', { token }, (one) => one.refuse(429, 'rate_limited', { ...details, reset: '1\r\nx: y' }));
    const names = ['retry-after', 'x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset'];
    assert.deepEqual([slow.reply.status, ...names.map((name) => slow.reply.headers[name])], [400, '17', '5', '0', '1900000000']);
    assert.deepEqual([over.reply.status, ...names.map((name) => over.reply.headers[name])], [429, '17', '5', '0', '1900000000']);
    assert.deepEqual([limited.reply.status, ...names.map((name) => limited.reply.headers[name])], [429, '17', '5', '0', undefined]);
    const other = await call('/api/auth/me', { token }, (one) => one.refuse(403, 'plan_limit', details));
    assert.deepEqual(names.map((name) => other.reply.headers[name]), [undefined, undefined, undefined, undefined]);
  });

  test('platform http - the vendors\' shape of errors has type by status and the field as param', () => {
    const shape = (error: unknown): unknown => JSON.parse(String(refusalAnswer({ errorShape: 'openai', auth: { kind: 'access' } }, refusedOf(error, 400, silent)).body));
    assert.deepEqual(shape(coded('validation_error', 'n must be 1', { details: { field: 'n' } })), { error: { message: 'n must be 1', type: 'invalid_request_error', code: 'validation_error', param: 'n' } });
    for (const [code, type] of [
      ['unauthorized', 'authentication_error'], ['forbidden', 'permission_error'], ['not_found', 'not_found_error'], ['rate_limited', 'rate_limit_error'],
      ['provider_timeout', 'api_error'], ['model_not_supported', 'invalid_request_error'],
    ] as const) {
      assert.deepEqual(shape(coded(code, 'x')), { error: { message: 'x', type, code, param: null } });
    }
    assert.deepEqual(shape(new Error('hunter2')), { error: { message: errors.internal_error.message, type: 'api_error', code: 'internal_error', param: null } });
  });

  test('platform http - a client that goes away cancels the call at the daemon', async () => {
    let cancelled: (id: number) => void = () => undefined;
    const gone = new Promise<number>((resolve) => {
      cancelled = resolve;
    });
    edge.peer.on.cancel = (id) => cancelled(id);
    const id = await new Promise<number>((resolve) => {
      const sent = request({ host: '127.0.0.1', servername: 'localhost', port: edge.port, path: '/api/auth/me', ca: edge.ca, headers: { authorization: `Bearer ${token}` } });
      // The reset of our own socket is what this test wants.
      sent.on('error', () => undefined);
      answers = (one) => {
        sent.destroy();
        resolve(one.request.id);
      };
      sent.end();
    });
    assert.equal(await gone, id);
  });

  test('platform http - with no daemon, and with one that does not answer in time, the envelope says so', async () => {
    const away = await startPlatformEdge({ peer: false });
    try {
      fails(await away.call('/api/legal/manifest'), 503, 'upstream_unavailable');
    } finally {
      await away.stop();
    }
    const slow = await startPlatformEdge({ config: { upstream: { deadline_ms: 50 } } });
    try {
      slow.on = () => undefined;
      fails(await slow.call('/api/legal/manifest'), 504, 'upstream_timeout');
    } finally {
      await slow.stop();
    }
  });

  test('platform http - the organization routes need a bearer', async () => {
    for (const route of Object.values(organizationRoutes)) {
      if (route.auth.kind !== 'access') continue;
      const { reply, reached } = await call(route.path, { method: route.method, headers: { cookie: '__Host-troupe=abc.def' }, ...('body' in route && route.body !== undefined ? { body: {} } : {}) });
      fails(reply, 401, 'unauthorized');
      assert.deepEqual(reached, []);
    }
  });
});
