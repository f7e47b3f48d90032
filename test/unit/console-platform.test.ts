/** The console's parts that need no browser: the client of the API, readers of answers, what a role is offered, addresses. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { CodedError } from '../../contracts/errors.ts';
import { slug } from '../../contracts/ids.ts';
import { allows, roles } from '../../contracts/roles.ts';
import { Api, type ApiFetch } from '../../gateway/console/api.ts';
import { platformIdentity } from '../../gateway/console/identity.ts';
import { consolePaths, hrefOf, placeOf, views } from '../../gateway/console/platform/place.ts';
import { mayChange, mayRemove, slugOf } from '../../gateway/console/platform/rights.ts';
import { fields, list, nothing, number, oneOf, orNull, text } from '../../gateway/console/read.ts';

interface Sent {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
}
type Said = { readonly status: number; readonly body: unknown; readonly headers?: Record<string, string> };

const signedIn = { user: { id: 'usr_1', email: 'a@example.com', name: 'A' }, csrf: 'proof', legalAccepted: true, providers: ['email'] };

/** A server that knows sessions and numbers its tokens; `answer` decides everything else. */
const serverOf = (answer: (sent: Sent) => Said | undefined, session: unknown = signedIn): { readonly fetch: ApiFetch; readonly sent: Sent[] } => {
  const sent: Sent[] = [];
  let tokens = 0;
  return {
    sent,
    fetch: async (path, { method, headers }) => {
      const asked = { method, path, headers };
      sent.push(asked);
      const said = answer(asked)
        ?? (path === '/api/auth/session' ? { status: 200, body: session }
          : path === '/api/auth/session/token' ? { status: 200, body: { access_token: `token-${++tokens}`, token_type: 'Bearer', expires_in: 900 } } : { status: 404, body: {} });
      return new Response(JSON.stringify(said.body), { status: said.status, ...(said.headers === undefined ? {} : { headers: said.headers }) });
    },
  };
};
const times = (sent: readonly Sent[], path: string): number => sent.filter((asked) => asked.path === path).length;
const codeOf = async (work: Promise<unknown>): Promise<string> => work.then(() => 'no error', (error: unknown) => (error instanceof CodedError ? error.code : String(error)));

test('console - the API: calls that run together share one token, which goes with each; the proof goes with the token request only', async () => {
  const { fetch, sent } = serverOf(({ path }) => (path.startsWith('/api/x') ? { status: 200, body: {} } : undefined));
  const api = new Api(fetch);
  await Promise.all([api.get('/api/x', { a: '1 2' }, nothing), api.send('PATCH', '/api/x', {}, nothing), api.get('/api/x', {}, nothing)]);
  assert.equal(times(sent, '/api/auth/session/token'), 1);
  assert.deepEqual(sent.filter(({ path }) => path.startsWith('/api/x')).map(({ path, headers }) => [path, headers['authorization'], headers['x-csrf-token']]), [
    ['/api/x?a=1+2', 'Bearer token-1', undefined], ['/api/x', 'Bearer token-1', undefined], ['/api/x', 'Bearer token-1', undefined],
  ]);
  assert.equal(sent.find(({ path }) => path === '/api/auth/session/token')?.headers['x-csrf-token'], 'proof');
});

test('console - the API: a refused token is renewed once for all who met it; a second refusal is the answer', async () => {
  const old = serverOf(({ path, headers }) => (path === '/api/x' ? (headers['authorization'] === 'Bearer token-1' ? { status: 401, body: { error: { code: 'unauthorized', message: '' } } } : { status: 200, body: {} }) : undefined));
  const api = new Api(old.fetch);
  await Promise.all([api.get('/api/x', {}, nothing), api.get('/api/x', {}, nothing), api.get('/api/x', {}, nothing)]);
  assert.equal(times(old.sent, '/api/auth/session/token'), 2);
  const never = serverOf(({ path }) => (path === '/api/x' ? { status: 401, body: { error: { code: 'stale_policy', message: '' } } } : undefined));
  assert.equal(await codeOf(new Api(never.fetch).get('/api/x', {}, nothing)), 'stale_policy');
  assert.equal(times(never.sent, '/api/x'), 2);
});

test('console - the API: without a session there is no token, and what failed once is asked again', async () => {
  const none = serverOf(() => undefined, { ...signedIn, user: null, csrf: null });
  assert.equal(await codeOf(new Api(none.fetch).get('/api/x', {}, nothing)), 'unauthorized');
  assert.equal(times(none.sent, '/api/x'), 0);
  let broken = true;
  const back = serverOf(({ path }) => (path === '/api/auth/session/token' && broken ? { status: 503, body: { error: { code: 'overloaded', message: '' } } } : path === '/api/x' ? { status: 200, body: {} } : undefined));
  const api = new Api(back.fetch);
  assert.equal(await codeOf(api.get('/api/x', {}, nothing)), 'overloaded');
  broken = false;
  assert.equal(await codeOf(api.get('/api/x', {}, nothing)), 'no error');
});

test('console - the API: a refusal keeps code, field and wait; what is no answer of ours is an error of its own', async () => {
  const server = serverOf(({ path }) => {
    switch (path) {
      case '/api/field': return { status: 400, body: { error: { code: 'validation_error', message: 'Wrong.', details: { field: 'slug' } } } };
      case '/api/wait': return { status: 429, body: { error: { code: 'rate_limited', message: 'Later.' } }, headers: { 'retry-after': '7' } };
      case '/api/flat': return { status: 403, body: { error: 'wrong_audience', message: 'No.' } };
      case '/api/none': return { status: 500, body: 'oops' };
      case '/api/shape': return { status: 200, body: { name: 1 } };
      default: return undefined;
    }
  });
  const api = new Api(server.fetch);
  const refusal = async (path: string): Promise<unknown> => api.get(path, {}, fields({ name: text })).catch((error: unknown) => (error instanceof CodedError ? [error.code, error.details?.['field'], error.details?.['retry_after']] : error));
  assert.deepEqual(await refusal('/api/field'), ['validation_error', 'slug', undefined]);
  assert.deepEqual(await refusal('/api/wait'), ['rate_limited', undefined, 7]);
  assert.deepEqual(await refusal('/api/flat'), ['wrong_audience', undefined, undefined]);
  assert.deepEqual(await refusal('/api/none'), ['upstream_error', undefined, undefined]);
  assert.deepEqual(await refusal('/api/shape'), ['upstream_error', undefined, undefined]);
  assert.equal(await codeOf(new Api(() => Promise.reject(new TypeError('no network'))).get('/api/x', {}, nothing)), 'upstream_unavailable');
});

test('console - readers give what is there or name what is not', () => {
  const read = fields<{ a: string | null; b: number[]; c: 'x' | 'y' }>({ a: orNull(text), b: list(number), c: oneOf(['x', 'y']) });
  assert.deepEqual(read({ a: null, b: [1], c: 'y', more: true }, 'answer'), { a: null, b: [1], c: 'y' });
  for (const [value, at] of [[{ a: 1, b: [], c: 'x' }, 'answer.a'], [{ a: '', b: [1, '2'], c: 'x' }, 'answer.b[1]'], [{ a: '', b: [], c: 'z' }, 'answer.c'], [[], 'answer'], [null, 'answer']] as const) {
    assert.throws(() => read(value, 'answer'), (error: unknown) => error instanceof CodedError && error.message.includes(`(${at})`));
  }
});

test('console - what a role is offered is what it may do: nobody above oneself, admins by owners only [ORG-047] [ORG-051]', () => {
  const table = roles.map((mine) => roles.map((theirs) => `${mayChange(mine, theirs) ? 'c' : '-'}${mayRemove(mine, theirs) ? 'r' : '-'}`).join(' '));
  assert.deepEqual(table, ['-- -- -- --', '-- -- -- --', 'cr cr -- --', 'cr cr cr cr']);
  for (const role of roles) assert.equal(mayRemove(role, 'viewer'), allows(role, 'member.remove'));
});

test('console - the address that a name suggests is one that is taken, or nothing', () => {
  for (const [name, address] of [['Acme Inc.', 'acme-inc'], ['  Ärzte & Söhne ', 'arzte-sohne'], ['日本', ''], ['-a-', 'a'], ['x'.repeat(60), 'x'.repeat(32)], [`${'x'.repeat(31)} y`, 'x'.repeat(31)]] as const) {
    assert.equal(slugOf(name), address);
    if (address.length >= 3) assert.ok(slug.safeParse(address).success);
  }
});

test('console - a place and its address are the same both ways; an unknown path is the start', () => {
  for (const view of views) {
    for (const org of [undefined, 'org_1', 'a&b=c']) {
      const { pathname, search } = new URL(hrefOf({ view, org }), 'https://localhost');
      assert.deepEqual(placeOf(pathname, search), { view, org });
      assert.ok(consolePaths.includes(pathname));
    }
  }
  assert.deepEqual(placeOf('/console/none', ''), { view: 'organizations', org: undefined });
});

test('chat page - a gateway token is used until a minute before its end, then one new one for all who ask', async () => {
  let now = 0;
  const server = serverOf(({ path }) => (path === '/api/auth/gateway-token' ? { status: 200, body: { access_token: `gateway-${now}`, token_type: 'Bearer', expires_in: 900 } } : undefined));
  const found = await platformIdentity(new Api(server.fetch), undefined, () => now);
  assert.ok(found.kind === 'somebody');
  const { token, userId, renew } = found.identity;
  assert.equal(userId, 'usr_1');
  assert.deepEqual(await Promise.all([token(), token()]), ['gateway-0', 'gateway-0']);
  now = 839_999;
  assert.equal(await token(), 'gateway-0');
  now = 840_000;
  assert.deepEqual(await Promise.all([token(), token()]), ['gateway-840000', 'gateway-840000']);
  assert.equal(times(server.sent, '/api/auth/gateway-token'), 2);
  renew?.();
  await token();
  assert.equal(times(server.sent, '/api/auth/gateway-token'), 3, 'a refused one is not used again, whatever its time');
});

test('chat page - a gateway without accounts, and one where nobody is signed in, are told apart', async () => {
  const identity = async (session: Said): Promise<unknown> => platformIdentity(new Api(serverOf(({ path }) => (path === '/api/auth/session' ? session : undefined)).fetch), undefined, () => 0);
  assert.deepEqual(await identity({ status: 404, body: { error: { code: 'not_found', message: '' } } }), { kind: 'nobody', accounts: false });
  assert.deepEqual(await identity({ status: 200, body: { ...signedIn, user: null, csrf: null } }), { kind: 'nobody', accounts: true });
});
