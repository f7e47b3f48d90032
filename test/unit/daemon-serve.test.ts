/** What the daemon checks again before anything runs: capability, body, owner; and what it answers (capability.ts, serve.ts, sid.ts). */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { test } from 'node:test';
import { SignJWT, type JWTPayload } from 'jose';
import { createCapabilities, type Capabilities } from '../../actors/daemon/capability.ts';
import type { Call } from '../../actors/daemon/link-call.ts';
import { createServe, type DaemonHandler } from '../../actors/daemon/serve.ts';
import { newSid } from '../../actors/daemon/sid.ts';
import { upcastBy } from '../../actors/daemon/upcast.ts';
import type { Message } from '../../actors/runtime/message.ts';
import { audiences, scopes } from '../../contracts/capability.ts';
import { coded, CodedError, refuse } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { routeList, routes, sidPattern, type Route } from '../../contracts/routes.ts';
import { partitionOf } from '../../contracts/subjects.ts';
import { z } from 'zod';
import { recorder, silent } from '../harness/log.ts';

const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const publicKeyPem = keys.publicKey.export({ type: 'spki', format: 'pem' }).toString();
const issuer = 'troupe-gateway';
const nowSec = 1_900_000_000;

const claims = (more: JWTPayload = {}): JWTPayload => ({
  iss: issuer, aud: audiences.agent, sub: 'ada', org: 'o', iat: nowSec, nbf: nowSec, exp: nowSec + 900, jti: 'j', scope: [scopes.agentSession], ...more,
});
const sign = (payload: JWTPayload, header: { alg: string } = { alg: 'ES256' }, key: Parameters<SignJWT['sign']>[0] = keys.privateKey): Promise<string> =>
  new SignJWT(payload).setProtectedHeader(header).sign(key);

const capabilities = (now = nowSec * 1_000): Promise<Capabilities> => createCapabilities({ publicKeyPem, issuer, now: () => now });
const agentRoute: Route = { ...routes.health, auth: { kind: 'tier1' } };
const codeOf = async (work: Promise<unknown>): Promise<string> => {
  const error = await work.then(() => undefined, (e: unknown) => e);
  return error instanceof CodedError ? error.code : `not refused: ${String(error)}`;
};

test('capability - [UDS-012] a call without a valid capability is refused: none, noise, foreign key, algorithm, issuer, time, life', async () => {
  const other = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const none = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${Buffer.from(JSON.stringify(claims())).toString('base64url')}.`;
  const good = await sign(claims());
  const cases: Record<string, string> = {
    none: '',
    noise: 'not.a.token',
    'alg none': none,
    'foreign key': await sign(claims(), { alg: 'ES256' }, other.privateKey),
    'HS256 with the public key as secret': await sign(claims(), { alg: 'HS256' }, Buffer.from(publicKeyPem)),
    'changed payload': good.split('.').map((part, i) => (i === 1 ? Buffer.from(JSON.stringify(claims({ sub: 'eve' }))).toString('base64url') : part)).join('.'),
    'cut signature': good.slice(0, -2),
    'other issuer': await sign(claims({ iss: 'someone' })),
    'no issuer': await sign(claims({ iss: undefined })),
    expired: await sign(claims({ exp: nowSec - 1, iat: nowSec - 900, nbf: nowSec - 900 })),
    'just expired': await sign(claims({ exp: nowSec, iat: nowSec - 900, nbf: nowSec - 900 })),
    'not yet': await sign(claims({ nbf: nowSec + 1 })),
    'lives too long': await sign(claims({ exp: nowSec + limits.capabilityTtlSec + 1 })),
    'no exp': await sign(claims({ exp: undefined })),
    'no sub': await sign(claims({ sub: undefined })),
    'empty org': await sign(claims({ org: '' })),
  };
  const c = await capabilities();
  for (const [name, token] of Object.entries(cases)) assert.equal(await codeOf(c.authorise(agentRoute, token)), 'unauthorized', name);
  assert.deepEqual(await c.authorise(agentRoute, good), { kind: 'user', sub: 'ada', org: 'o', scopes: [scopes.agentSession] });
});

test('capability - [UDS-012] agent and custody routes do not take each other\'s tokens, and each wants its scope', async () => {
  const c = await capabilities();
  const agent = await sign(claims());
  const custody = await sign(claims({ aud: audiences.custody, scope: [scopes.signAuth] }));
  assert.equal(await codeOf(c.authorise(routes.signAuth as unknown as Route, agent)), 'wrong_audience');
  assert.equal(await codeOf(c.authorise(agentRoute, custody)), 'wrong_audience');
  assert.equal(await codeOf(c.authorise(agentRoute, await sign(claims({ aud: 'another.system' })))), 'wrong_audience');
  assert.equal(await codeOf(c.authorise(agentRoute, await sign(claims({ scope: [] })))), 'scope_insufficient');
  assert.equal(await codeOf(c.authorise(agentRoute, await sign(claims({ scope: undefined })))), 'scope_insufficient');
  assert.equal(await codeOf(c.authorise(routes.signWallet as unknown as Route, custody)), 'scope_insufficient');
  assert.equal((await c.authorise(routes.signAuth as unknown as Route, custody))?.sub, 'ada');
  assert.equal(await c.authorise(routes.health, ''), undefined);
});

test('capability - a remembered token ends with its exp', async () => {
  let now = nowSec * 1_000;
  const c = await createCapabilities({ publicKeyPem, issuer, now: () => now });
  const token = await sign(claims({ exp: nowSec + 10 }));
  await c.authorise(agentRoute, token);
  now += 9_999;
  await c.authorise(agentRoute, token);
  now += 1;
  assert.equal(await codeOf(c.authorise(agentRoute, token)), 'unauthorized');
});

test('capability - a key that is no ES256 public key is refused at start', async () => {
  assert.equal(await codeOf(createCapabilities({ publicKeyPem: 'nonsense', issuer })), 'bad_request');
  const rsa = generateKeyPairSync('rsa', { modulusLength: 2_048 }).publicKey.export({ type: 'spki', format: 'pem' }).toString();
  assert.equal(await codeOf(createCapabilities({ publicKeyPem: rsa, issuer })), 'bad_request');
});

interface Served {
  readonly asked: Message[];
  call(route: { readonly wire: number }, body: string | Buffer, token?: string): Promise<{ status: number; json: Record<string, unknown> }>;
}

const serving = async (options: { answer?: (message: Message) => unknown; handlers?: Record<string, DaemonHandler>; log?: typeof silent; owned?: number[] } = {}): Promise<Served> => {
  const asked: Message[] = [];
  const owned = new Set(options.owned ?? [3]);
  const serve = createServe({
    capabilities: await createCapabilities({ publicKeyPem, issuer }),
    actors: { ask: async (message) => { asked.push(message); return options.answer?.(message); } },
    ownership: { partitions: 64, owns: (n) => owned.has(n), ownsAny: () => owned.size > 0 },
    handlers: options.handlers ?? {},
    log: options.log ?? silent,
  });
  const realNow = Math.floor(Date.now() / 1_000);
  const fresh = await sign(claims({ iat: realNow, nbf: realNow, exp: realNow + 900 }));
  return {
    asked,
    call: async (route, body, token = fresh) => {
      const entry = routeList.find((r) => r.wire === route.wire);
      assert.ok(entry);
      const call: Call = { route: entry, token, body: Buffer.from(body), deadlineAt: performance.now() + 1_000, signal: new AbortController().signal };
      const answer = await serve(call);
      const json: unknown = JSON.parse(answer.body.toString());
      return { status: answer.status, json: typeof json === 'object' && json !== null ? { ...json } : { value: json } };
    },
  };
};

const session = { sid: 's', agent_id: 'a', user_id: 'ada', project_id: 'p', created_at_unix: 1 };
const create = (more: object = {}): string => JSON.stringify({ user_id: 'ada', project_id: 'p', ...more });

test('serve - an actor route becomes the actor\'s command with the caller as principal', async () => {
  const s = await serving({ answer: () => session });
  const { status, json } = await s.call(routes.createSession, create({ label: 'l' }));
  assert.deepEqual([status, json], [201, session]);
  const [message] = s.asked;
  assert.ok(message);
  assert.deepEqual(message.principal, { kind: 'user', sub: 'ada', org: 'o', scopes: [scopes.agentSession] });
  assert.deepEqual([message.command, message.input], ['create', { user_id: 'ada', project_id: 'p', label: 'l' }]);
  assert.match(message.address.key, sidPattern);
  assert.equal(partitionOf(message.address, 64), 3, 'a session is made where it will run');
});

test('serve - the body is checked again, whatever the gateway let through', async () => {
  const s = await serving({ answer: () => session });
  const cases: [string | Buffer, number, string][] = [
    ['{', 400, 'bad_request'],
    ['[]', 422, 'validation_error'],
    [create({ extra: 1 }), 422, 'validation_error'],
    [JSON.stringify({ user_id: 'ada' }), 422, 'validation_error'],
    [create({ user_id: 'a\u0000' }), 400, 'bad_user_id'],
    [create({ user_id: 'eve' }), 403, 'user_id_mismatch'],
    [create({ label: 'x'.repeat(129) }), 400, 'bad_request'],
    [create({ resume_sid: '../x' }), 404, 'session_not_found'],
    [Buffer.alloc(limits.bodyMaxBytes + 1, ' '), 413, 'payload_too_large'],
  ];
  for (const [body, status, code] of cases) {
    const answer = await s.call(routes.createSession, body);
    assert.deepEqual([answer.status, answer.json['code']], [status, code]);
  }
  assert.equal((await s.call(routes.createSession, create(), 'junk')).status, 401);
  assert.deepEqual(s.asked, []);
});

test('serve - a route that is the gateway\'s, a stream\'s, or without a handler is not served', async () => {
  const s = await serving();
  for (const route of [routes.stream, routes.putBlob]) assert.equal((await s.call(route, '')).json['code'], 'unknown_route');
  assert.equal((await s.call(routes.health, '')).json['code'], 'unknown_route');
});

test('serve - a handler\'s answer must fit its route; a raw body reaches it as bytes, within the bound', async () => {
  const log = recorder();
  const seen: unknown[] = [];
  let answer: { status: number; body: unknown } = { status: 201, body: { hash: 'sha256:x', size: 3 } };
  const s = await serving({ log, handlers: { put_blob: async ({ body, principal }) => { seen.push(body, principal?.org); return answer; } } });
  assert.equal((await s.call(routes.putBlob, Buffer.from([1, 2, 255]))).status, 201);
  assert.deepEqual(seen, [Buffer.from([1, 2, 255]), 'o']);
  answer = { status: 201, body: { hash: 'x' } };
  assert.equal((await s.call(routes.putBlob, Buffer.from([1]))).status, 500);
  answer = { status: 299, body: {} };
  assert.equal((await s.call(routes.putBlob, Buffer.from([1]))).json['code'], 'internal_error');
  assert.equal((await s.call(routes.putBlob, Buffer.alloc(limits.attachmentMaxBytes + 1))).status, 413);
});

test('serve - refusals and faults keep their code; a bug leaves only a correlation id, which the log has too', async () => {
  const log = recorder();
  const failures: unknown[] = [coded('mailbox_full'), coded('no_owner'), refuse('own_code', 'mine', { left: 3 }), new Error('/secret/path'), coded('journal_unreadable', 'inside')];
  const s = await serving({ log, answer: () => { throw failures.shift(); } });
  assert.deepEqual(await s.call(routes.createSession, create()), { status: 429, json: { code: 'mailbox_full', message: coded('mailbox_full').message } });
  assert.equal((await s.call(routes.createSession, create())).status, 503);
  assert.deepEqual(await s.call(routes.createSession, create()), { status: 400, json: { code: 'own_code', message: 'mine', details: { left: 3 } } });
  for (let i = 0; i < 2; i++) {
    const { status, json } = await s.call(routes.createSession, create());
    assert.deepEqual([status, json['code']], [500, 'internal_error']);
    assert.doesNotMatch(JSON.stringify(json), /secret|inside/);
    const { correlation_id: id } = z.object({ correlation_id: z.uuid() }).parse(json['details']);
    assert.ok(JSON.stringify(log.lines.at(-1)).includes(id));
  }
});

test('sid - 26 base32 characters, all different, in an owned partition; any partition when none is owned', () => {
  const owned = new Set([5, 9]);
  const sids = Array.from({ length: 500 }, () => newSid('o', 64, (n) => owned.has(n), true));
  assert.equal(new Set(sids).size, 500);
  for (const sid of sids) {
    assert.match(sid, sidPattern);
    assert.ok(owned.has(partitionOf({ org: 'o', type: 'session', key: sid }, 64)));
  }
  assert.match(newSid('o', 64, () => false, false), sidPattern);
  assert.match(newSid('o', 64, () => false, true), sidPattern, 'ends although nothing fits');
});

test('sid - every character carries five bits', () => {
  const counts = new Map<string, number>();
  for (let i = 0; i < 2_000; i++) for (const char of newSid('o', 64, () => true, true)) counts.set(char, (counts.get(char) ?? 0) + 1);
  assert.equal(counts.size, 32);
  for (const count of counts.values()) assert.ok(Math.abs(count - 1_625) < 300, `${count} of 1,625`);
});

test('upcast - an old version of an event is shown as the newest; an unknown one is never shown', () => {
  const upcast = upcastBy({
    type: 'session',
    events: { TextDelta: { version: 3, schema: z.object({}), upcast: { 1: (d) => ({ ...d, b: 2 }), 2: ({ a, ...d }) => ({ ...d, text: a }) } } },
  });
  assert.deepEqual(upcast({ id: '1', k: 'TextDelta', d: { a: 'x' } }), { b: 2, text: 'x' });
  assert.deepEqual(upcast({ id: '1', k: 'TextDelta', v: 3, d: { text: 'y' } }), { text: 'y' });
  for (const event of [{ id: '1', k: 'TextDelta', v: 4, d: {} }, { id: '1', k: 'toString', d: {} }]) {
    assert.throws(() => upcast(event), (error) => error instanceof CodedError && error.code === 'journal_unreadable');
  }
});
