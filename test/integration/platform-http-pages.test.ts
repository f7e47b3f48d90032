/** Pages rendered by the gateway: which requests get one, what a page may ask, what becomes of a browser's form post. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { authRoutes } from '../../contracts/auth-routes.ts';
import { CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { prefersHtml } from '../../gateway/accept.ts';
import type { Answer } from '../../gateway/answer.ts';
import { pageHeaders, type Ask, type FormOutcome, type PageHandler, type PageRequest } from '../../gateway/page.ts';
import type { CallOptions, Reply } from '../harness/gateway.ts';
import { startPlatformEdge, type PlatformEdge } from '../harness/platform-edge.ts';

const browser = { accept: 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8' };
const cookie = { cookie: '__Host-troupe=usr_x.secret' };
const formType = { 'content-type': 'application/x-www-form-urlencoded' };
const html = (body: string, status = 200): Answer => ({ status, headers: { 'content-type': 'text/html; charset=utf-8' }, body });

describe('platform pages', () => {
  let edge: PlatformEdge;
  let page: PageHandler = () => html('a page');
  let formPage: (routeId: string, outcome: FormOutcome, request: PageRequest, ask: Ask) => Answer | undefined | Promise<Answer | undefined> = () => html('an outcome');
  const handler: PageHandler = (request, ask) => page(request, ask);

  before(async () => {
    edge = await startPlatformEdge({
      dependencies: {
        pages: {
          routes: new Map((['/device', '/legal/:id', '/console/*', authRoutes.apiToken.path] as const).map((path) => [`GET ${path}` as const, handler])),
          formPage: (...given) => formPage(...given),
        },
      },
    });
    edge.on = (one) => one.answer(200, {});
  });
  after(() => edge.stop());

  const strict = (reply: Reply): void => {
    for (const name of ['content-security-policy', 'x-content-type-options', 'referrer-policy', 'cross-origin-opener-policy']) assert.equal(reply.headers[name], pageHeaders[name], name);
  };
  test('platform pages - their headers admit nothing inline, nothing foreign, no frame, and forms to this site only', () => {
    const policy = new Map((pageHeaders['content-security-policy'] ?? '').split('; ').map((directive) => {
      const [name = '', ...values] = directive.split(' ');
      return [name, values.join(' ')] as const;
    }));
    for (const [name, value] of [['default-src', '\'none\''], ['script-src', '\'self\''], ['style-src', '\'self\''], ['base-uri', '\'none\''], ['form-action', '\'self\''], ['frame-ancestors', '\'none\'']] as const) {
      assert.equal(policy.get(name), value, name);
    }
    const { 'x-content-type-options': sniff, 'cross-origin-opener-policy': opener, 'referrer-policy': referrer, 'cache-control': cache } = pageHeaders;
    assert.deepEqual([sniff, opener, referrer, cache], ['nosniff', 'same-origin', 'same-origin', 'no-store']);
  });

  const post = (path: string, text: string, options: CallOptions = {}): Promise<Reply> =>
    edge.call(path, { method: 'POST', body: text, ...options, headers: { ...formType, ...browser, ...cookie, ...options.headers } });

  test('platform pages - a page gets path, parameters, query and whether there is a cookie, and answers with strict headers', async () => {
    const seen: PageRequest[] = [];
    page = (request) => {
      seen.push(request);
      return { ...html('<p>ü</p>', 404), headers: { 'content-type': 'text/html; charset=utf-8', 'content-security-policy': 'default-src *', 'cache-control': 'max-age=60' } };
    };
    const reply = await edge.call('/legal/terms%20of?a=1&a=2&b=%C3%BC&__proto__=x', { headers: { ...cookie, 'user-agent': 'Agent' } });
    assert.deepEqual([reply.status, reply.text, reply.headers['cache-control']], [404, '<p>ü</p>', 'max-age=60']);
    strict(reply);
    const [request] = seen;
    assert.ok(request !== undefined);
    assert.deepEqual([request.method, request.path, request.params, request.hasSession, request.fields, request.context], ['GET', '/legal/terms%20of', ['terms of'], true, {}, { ip: '127.0.0.1', user_agent: 'Agent' }]);
    assert.deepEqual(Object.entries(request.query).filter(([name]) => name !== '__proto__'), [['a', '1'], ['b', 'ü']]);
    assert.equal((await edge.call('/console/any/where')).status, 404);
    assert.equal(seen[1]?.path, '/console/any/where');
    assert.equal((await edge.call('/device', { method: 'POST', body: 'x' })).status, 404);
    assert.equal(seen.length, 2);
  });

  test('platform pages - a page asks routes with its own cookie and nobody\'s bearer, and gets refusals as errors', async () => {
    let outcome: unknown;
    page = async (_request, ask) => {
      const manifest = await ask('manifest');
      const session = await ask('session');
      const show = await ask('device_show', { query: { user_code: 'ABCD-2345' } });
      outcome = [manifest.json, session.json, show.status];
      return { ...html('asked'), cookies: session.headers['set-cookie'] ?? [] };
    };
    const from = edge.reached.length;
    edge.on = (one) => one.answer(200, { id: one.id }, one.id === 'session' ? { 'set-cookie': ['a=1'] } : {});
    const reply = await edge.call('/device', { headers: { ...cookie, authorization: 'Bearer x' } });
    assert.deepEqual([reply.text, reply.headers['set-cookie'], outcome], ['asked', ['a=1'], [{ id: 'manifest' }, { id: 'session' }, 200]]);
    assert.deepEqual(edge.reached.slice(from).map((one) => [one.id, one.token, one.call.query]), [['manifest', '', undefined], ['session', 'usr_x.secret', undefined], ['device_show', 'usr_x.secret', { user_code: 'ABCD-2345' }]]);

    edge.on = (one) => one.refuse(404, 'not_found', { field: 'user_code' });
    const codes: unknown[] = [];
    page = async (_request, ask) => {
      for (const [id, query] of [['device_show', { user_code: 'ABCD-2345' }], ['device_show', { wrong: '1' }], ['signout', undefined]] as const) {
        await ask(id, query === undefined ? {} : { query }).catch((error: unknown) => codes.push(error instanceof CodedError ? error.code : error));
      }
      return html('refused');
    };
    assert.equal((await edge.call('/device', { headers: cookie })).text, 'refused');
    assert.deepEqual(codes.splice(0), ['not_found', 'validation_error', 'not_found']);
    assert.equal((await edge.call('/device')).text, 'refused');
    assert.deepEqual(codes, ['unauthorized', 'unauthorized', 'unauthorized']);
    edge.on = (one) => one.answer(200, {});
  });

  test('platform pages - what a page throws is shown in the envelope, and a bug of it as nothing more', async () => {
    page = (_request, ask) => ask('me').then(() => html('never'));
    const bug = await edge.call('/device', { headers: cookie });
    assert.deepEqual([bug.status, Object(Object(bug.json).error).code], [500, 'internal_error']);
    page = () => {
      throw new CodedError('not_found');
    };
    assert.equal((await edge.call('/legal/none')).status, 404);
  });

  test('platform pages - the api-token address is a page for whoever prefers HTML, and the route for everyone else', async () => {
    page = () => html('button');
    const asPage = await edge.call(authRoutes.apiToken.path, { headers: { ...browser, ...cookie } });
    assert.equal(asPage.text, 'button');
    strict(asPage);
    // Opened by a link elsewhere it is still only a page.
    assert.equal((await edge.call(authRoutes.apiToken.path, { headers: { ...browser, ...cookie, 'sec-fetch-site': 'cross-site' } })).text, 'button');
    const from = edge.reached.length;
    for (const accept of ['application/json', '*/*', 'application/json, text/html;q=0.9', '']) {
      assert.equal((await edge.call(authRoutes.apiToken.path, { headers: { ...cookie, accept } })).text, '{}', accept);
    }
    assert.equal(edge.reached.length, from + 4);
  });

  test('platform pages - text/html counts if it weighs more than JSON, or as much and comes first', () => {
    for (const accept of ['text/html', browser.accept, 'text/html;q=0.5', 'application/json;q=0.4, text/html;q=0.5', 'TEXT/HTML, application/json', 'text/html; level=1; q=1.0']) assert.equal(prefersHtml(accept), true, accept);
    for (const accept of ['', '*/*', 'text/*', 'application/json', 'application/json, text/html', 'text/html;q=0', 'text/html;q=0.3, application/json;q=0.4', 'text/htmlx', 'text/html;q=0, */*']) assert.equal(prefersHtml(accept), false, accept);
  });

  test('platform pages - the outcome of a browser\'s form post becomes a page, its cookies kept', async () => {
    const seen: [string, FormOutcome, PageRequest][] = [];
    formPage = (id, outcome, request) => {
      seen.push([id, outcome, request]);
      return { status: 303, headers: { location: '/device?done=1' }, body: '' };
    };
    edge.on = (one) => one.answer(200, { status: 'denied' }, { 'set-cookie': ['__Host-troupe=; Max-Age=0'] });
    const reply = await post(authRoutes.deviceAuthorize.path, 'user_code=ABCD-2345&action=deny&csrf=proof');
    assert.deepEqual([reply.status, reply.headers.location, reply.headers['set-cookie']], [303, '/device?done=1', ['__Host-troupe=; Max-Age=0']]);
    strict(reply);
    assert.equal(edge.reached.at(-1)?.call.context.csrf, 'proof');
    const [id, outcome, request] = seen[0] ?? [];
    assert.deepEqual([id, outcome?.kind, request?.method, request?.fields], ['device_authorize', 'answered', 'POST', { user_code: 'ABCD-2345', action: 'deny' }]);
    assert.ok(outcome?.kind === 'answered');
    assert.deepEqual([outcome.status, outcome.json], [200, { status: 'denied' }]);
    // For JSON, and for programs that post forms, nothing changes.
    assert.equal((await post(authRoutes.deviceAuthorize.path, 'user_code=ABCD-2345&action=deny', { headers: { accept: '*/*' } })).status, 200);
    assert.equal((await edge.call(authRoutes.deviceAuthorize.path, { method: 'POST', body: { user_code: 'ABCD-2345', action: 'deny' }, headers: { ...browser, ...cookie } })).status, 200);
    assert.equal(seen.length, 1);
    formPage = () => undefined;
    assert.deepEqual((await post(authRoutes.deviceAuthorize.path, 'user_code=ABCD-2345&action=deny')).json, { status: 'denied' });
  });

  test('platform pages - a refused form post is a page too: by the daemon, for its values, its site, a missing cookie', async () => {
    const seen: FormOutcome[] = [];
    formPage = async (_id, outcome, request, ask) => {
      seen.push(outcome);
      const session = await ask('session');
      return html(`${outcome.kind === 'refused' ? outcome.code : ''} ${request.fields['action'] ?? ''} ${session.status}`, outcome.status);
    };
    edge.on = (one) => (one.id === 'session' ? one.answer(200, {}) : one.refuse(410, 'device_expired'));
    const path = authRoutes.deviceAuthorize.path;
    const shown = async (text: string, headers: Record<string, string> = {}): Promise<unknown[]> => {
      const reply = await post(path, text, { headers });
      return [reply.status, reply.text];
    };
    assert.deepEqual(await shown('user_code=ABCD-2345&action=deny'), [410, 'device_expired deny 200']);
    assert.deepEqual(await shown('user_code=ABCD-2345&action=maybe'), [422, 'validation_error maybe 200']);
    assert.deepEqual(await shown('action=a&action=b'), [422, 'validation_error  200']);
    assert.deepEqual(await shown('user_code=ABCD-2345&action=deny', { origin: 'https://evil.example' }), [403, 'forbidden  200']);
    assert.deepEqual(await shown('user_code=ABCD-2345&action=deny', { cookie: '' }), [401, 'unauthorized  200']);
    edge.on = (one) => (one.id === 'session' ? one.answer(200, {}) : one.request.answer(500, {}));
    assert.deepEqual(await shown('user_code=ABCD-2345&action=deny'), [500, 'internal_error deny 200']);
    assert.ok(seen.every((outcome) => outcome.kind === 'refused' && outcome.message !== ''));
    // A page that fails itself is an envelope.
    formPage = () => {
      throw new Error('broken');
    };
    const broken = await post(path, 'user_code=ABCD-2345&action=deny');
    assert.deepEqual([broken.status, Object(Object(broken.json).error).code], [500, 'internal_error']);
    edge.on = (one) => one.answer(200, {});
    formPage = (_id, outcome) => html('in words', outcome.status);
    const tooLarge = await post(path, `user_code=${'a'.repeat(limits.bodyMaxBytes)}`);
    assert.deepEqual([tooLarge.status, tooLarge.text], [413, 'in words']);
  });
});

test('platform pages - at an empty address bucket no page runs; a form post is answered in words, which ask nothing', async () => {
  let runs = 0;
  const asked: unknown[] = [];
  const edge = await startPlatformEdge({
    config: { limits: { per_ip_capacity: 2, per_ip_refill_per_sec: 0.001 } },
    dependencies: {
      pages: {
        routes: new Map([['GET /device', () => {
          runs += 1;
          return html('page');
        }] as const]),
        formPage: async (_id, outcome, _request, ask) => {
          await ask('session').catch((error: unknown) => asked.push(error instanceof CodedError ? error.code : error));
          return html('wait', outcome.status);
        },
      },
    },
  });
  try {
    assert.deepEqual([(await edge.call('/device')).status, (await edge.call('/device')).status, (await edge.call('/device')).status, runs], [200, 200, 429, 2]);
    const posted = await edge.call(authRoutes.emailStart.path, { method: 'POST', body: 'email=a%40example.com', headers: { ...formType, ...browser } });
    assert.deepEqual([posted.status, posted.text, asked], [429, 'wait', ['rate_limited']]);
    assert.deepEqual(edge.reached, []);
  } finally {
    await edge.stop();
  }
});
