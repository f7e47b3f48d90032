/** The server-rendered pages as functions: what they ask, where they send people, what they never let through. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { coded, CodedError } from '../../contracts/errors.ts';
import { developmentDocuments } from '../../contracts/legal.ts';
import type { Answer } from '../../gateway/answer.ts';
import type { Ask, FormOutcome, PageRequest } from '../../gateway/page.ts';
import { html } from '../../gateway/pages/html.ts';
import { createPages } from '../../gateway/pages/pages.ts';

const pages = createPages({ documents: developmentDocuments, files: new Map([['/pages.css', { type: 'text/css', body: Buffer.from('a{}') }]]) });
const nobody = { user: null, csrf: null, legalAccepted: false, providers: ['email', 'google', 'github'] };
const somebody = { user: { id: 'usr_1', email: 'a@example.com', name: 'A' }, csrf: 'proof', legalAccepted: false, providers: ['email'] };

type Script = Readonly<Record<string, unknown>>;
const asks: string[] = [];
/** Answers from the script; an error in it is thrown. */
const askOf = (script: Script): Ask => async (routeId) => {
  asks.push(routeId);
  const answer = script[routeId];
  if (answer instanceof Error) throw answer;
  return { status: 200, headers: {}, json: answer };
};
const requestOf = (over: Partial<PageRequest>): PageRequest => ({
  method: 'GET', path: '/', params: [], query: {}, fields: {}, hasSession: false, context: { ip: '127.0.0.1', user_agent: '' }, signal: new AbortController().signal, ...over,
});
const get = async (path: string, query: Record<string, string>, script: Script): Promise<Answer> => {
  const handler = pages.routes.get(`GET ${path}` as `GET /${string}`);
  assert.ok(handler !== undefined, path);
  return handler(requestOf({ path, query }), askOf(script));
};
const post = async (routeId: string, outcome: FormOutcome, fields: Record<string, string>, script: Script): Promise<Answer> => {
  const answer = await pages.formPage?.(routeId, outcome, requestOf({ method: 'POST', fields }), askOf(script));
  assert.ok(answer !== undefined);
  return answer;
};
const refused = (code: string, details: Record<string, unknown> = {}): FormOutcome => {
  const error = new CodedError(code);
  return { kind: 'refused', status: error.entry.http, code, message: error.message, details };
};
const text = (answer: Answer): string => String(answer.body);

test('pages - every interpolated text is escaped, for content and for attributes; nested templates are not escaped twice', () => {
  const nasty = '<img src=x onerror=alert(1)>"\'&';
  assert.equal(html`<p title="${nasty}">${nasty}</p>`.text, '<p title="&lt;img src=x onerror=alert(1)&gt;&quot;&#39;&amp;">&lt;img src=x onerror=alert(1)&gt;&quot;&#39;&amp;</p>');
  assert.equal(html`${[html`<b>${1}</b>`, undefined, null, 'a&b']}`.text, '<b>1</b>a&amp;b');
});

test('pages - the providers that are configured are offered, with the way back', async () => {
  const offered = text(await get('/signin', { return_to: '/device?code=ABCD-2345' }, { session: nobody }));
  for (const way of ['google', 'github']) assert.ok(offered.includes(`href="/api/auth/signin/${way}?return_to=%2Fdevice%3Fcode%3DABCD-2345"`));
  assert.ok(!text(await get('/signin', {}, { session: { ...nobody, providers: ['email'] } })).includes('/api/auth/signin/'));
});

test('pages - an address names an error of its own list only, never a text', async () => {
  assert.match(text(await get('/signin', { error: 'email_unverified' }, { session: nobody })), /role="alert">That account has no e-mail address/);
  for (const error of ['no_such', 'You won! Call 123', '__proto__', 'constructor']) {
    assert.ok(!text(await get('/signin', { error }, { session: nobody })).includes('role="alert"'), error);
  }
});

test('pages - a path back that leads elsewhere is dropped', async () => {
  for (const returnTo of ['https://evil.example', '//evil.example', '/\\evil.example', 'javascript:alert(1)', '/a\nb', `/${'x'.repeat(2_000)}`]) {
    assert.equal((await get('/signin', { return_to: returnTo }, { session: somebody })).headers['location'], '/console', returnTo);
    const verified = await post('email_verify', { kind: 'answered', status: 200, headers: {}, json: {} }, { email: 'a@b.cd', return_to: returnTo }, {});
    assert.deepEqual([verified.status, verified.headers['location']], [303, '/console'], returnTo);
  }
  assert.equal((await get('/signin', { return_to: '/legal' }, { session: somebody })).headers['location'], '/legal');
});

test('pages - nobody sees a token, a code or a form that acts, but is sent to sign in and back', async () => {
  for (const [path, query, back] of [
    ['/api/auth/api-token', {}, '/api/auth/api-token'], ['/device', { code: 'ABCD-2345' }, '/device?code=ABCD-2345'], ['/device', {}, '/device'],
  ] as const) {
    const answer = await get(path, query, { session: nobody });
    assert.deepEqual([answer.status, answer.headers['location'], text(answer)], [303, `/signin?return_to=${encodeURIComponent(back)}`, '']);
  }
  const ended = await post('device_authorize', refused('unauthorized'), { user_code: 'ABCD-2345' }, {});
  assert.equal(ended.headers['location'], `/signin?return_to=${encodeURIComponent('/device?code=ABCD-2345')}`);
});

test('pages - an outcome keeps its status: expired 410, unknown 404, conflict 409, forbidden 403 [DEV-045] [DEV-047]', async () => {
  for (const code of ['device_expired', 'not_found', 'forbidden']) {
    const answer = await post('device_authorize', refused(code), { user_code: 'ABCD-2345' }, { session: somebody });
    assert.equal(answer.status, new CodedError(code).entry.http);
    assert.match(text(answer), /role="alert"/);
  }
  assert.equal((await get('/device', { code: 'ABCD-2345' }, { session: somebody, device_show: coded('device_expired') })).status, 410);
  assert.equal((await get('/device', { code: 'x' }, { session: somebody, device_show: coded('not_found') })).status, 404);
});

test('pages - an invitation: its states in words, the button for the invited address only, refusals of joining', async () => {
  const invitation = { id: 'inv_1', email: 'a@example.com', role: 'admin', status: 'pending', expiresAt: '2026-01-01T00:00:00.000Z' };
  const shown = { organizationName: '<b>Acme</b>', invitation };
  const open = (script: Script): Promise<Answer> => get('/invite', { token: 't"><script>' }, script);
  const mine = text(await open({ session: somebody, show_invitation: shown }));
  assert.ok(mine.includes('name="token" value="t&quot;&gt;&lt;script&gt;"') && mine.includes('Join &lt;b&gt;Acme&lt;/b&gt;'));
  for (const [status, said] of [['accepted', /accepted already/], ['expired', /has expired/], ['revoked', /taken back/]] as const) {
    const answer = text(await open({ session: somebody, show_invitation: { ...shown, invitation: { ...invitation, status } } }));
    assert.match(answer, said);
    assert.ok(!answer.includes('action="/invite"'));
  }
  const others = text(await open({ session: { ...somebody, user: { ...somebody.user, email: 'b@example.com' } }, show_invitation: shown }));
  assert.ok(others.includes('signed in as <strong>b@example.com</strong>') && !others.includes('action="/invite"'));
  assert.ok(text(await open({ session: nobody, show_invitation: shown })).includes('/signin?return_to='));
  assert.equal((await open({ session: nobody, show_invitation: coded('not_found') })).status, 404);
  const full = await post('join', refused('plan_limit'), { token: 't' }, { session: somebody, show_invitation: shown });
  assert.equal(full.status, 403);
  assert.match(text(full), /no free place/);
});

test('pages - what a limit refuses is said in words and seconds, and asks the daemon nothing more', async () => {
  for (const [routeId, code] of [['email_start', 'rate_limited'], ['email_verify', 'rate_limited'], ['device_authorize', 'overloaded'], ['join', 'payload_too_large']] as const) {
    asks.length = 0;
    const answer = await post(routeId, refused(code, { retry_after: 42 }), { email: 'a@b.cd' }, {});
    assert.equal(answer.status, new CodedError(code).entry.http);
    assert.match(text(answer), /wait 42 seconds/);
    assert.deepEqual(asks, []);
  }
});

test('pages - an outage is a page with its status, a bug is not hidden', async () => {
  const away = await get('/signin', {}, { session: coded('upstream_unavailable') });
  assert.equal(away.status, 503);
  assert.match(text(away), /cannot be reached/);
  await assert.rejects(get('/signin', {}, { session: new TypeError('a bug') }), TypeError);
  assert.equal((await get('/signin', {}, { session: { user: 1 } })).status, 502, 'an answer of another shape is the upstream\'s failure');
});

test('pages - the documents in force are shown and accepted; ours only while they are those; an address of a manifest is never a script', async () => {
  const manifest = { version: '1', hash: 'h', documents: [{ id: 'terms', title: 'Terms', url: 'javascript:alert(1)', sha256: '0'.repeat(64) }] };
  const listed = text(await get('/legal', {}, { session: somebody, manifest }));
  assert.ok(!listed.includes('javascript:') && listed.includes('name="hash" value="h"'));
  assert.equal(listed.match(/type="checkbox"/g)?.length, 4);
  assert.ok(!listed.includes('checked'));
  assert.equal((await get('/legal/terms', {}, { session: nobody, manifest })).status, 404);
  const changed = await post('accept_legal', refused('conflict'), {}, { session: somebody, manifest });
  assert.equal(changed.status, 409);
  assert.match(text(changed), /have changed/);
});

test('pages - every page forbids scripts of others, frames and caches', async () => {
  for (const answer of [await get('/signin', {}, { session: nobody }), await get('/invite', {}, { session: nobody, show_invitation: coded('not_found') }), await post('make_api_token', refused('forbidden'), {}, { session: somebody })]) {
    const { headers } = answer;
    assert.match(headers['content-security-policy'] ?? '', /default-src 'none'.*form-action 'self'.*frame-ancestors 'none'/);
    assert.doesNotMatch(headers['content-security-policy'] ?? '', /unsafe|\*/);
    assert.deepEqual([headers['x-frame-options'], headers['cache-control'], headers['referrer-policy'], headers['content-type']], ['DENY', 'no-store', 'same-origin', 'text/html; charset=utf-8']);
    assert.doesNotMatch(text(answer), / style=| on\w+=|<style|<script>/);
  }
});
