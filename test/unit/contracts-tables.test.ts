/** The tables of the contract: errors, close codes, limits, routes. What they promise about themselves. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { z } from 'zod';
import { closeCodes, reconnectCodes } from '../../contracts/close.ts';
import { coded, CodedError, errorEntry, errors, refuse, shown, type ErrorEntry } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { deploymentRouteList } from '../../contracts/deployment-routes.ts';
import { anyRouteByWire, consoleRouteList, platformRouteList } from '../../contracts/platform-routes.ts';
import { routeByWire, routeList, routes } from '../../contracts/routes.ts';
import { agentKind, agentPayloads } from '../../contracts/stream.ts';
import { feedKind, sessionEvents, sessionFeed, wirePayload } from '../../contracts/session.ts';

const entries: [string, ErrorEntry][] = Object.entries(errors);

test('errors - each code is a word, its status fits its kind, its message is a sentence without secrets of ours', () => {
  for (const [code, entry] of entries) {
    assert.match(code, /^[a-z][a-z_0-9]*[a-z0-9]$/);
    assert.ok(entry.http >= 400 && entry.http <= 599, code);
    if (entry.kind === 'refusal') assert.ok(entry.http < 500, `${code}: a refusal is the caller's doing`);
    else assert.ok(entry.http >= 500, `${code}: a ${entry.kind} is not the caller's doing`);
    assert.match(entry.message, /^[A-Z].*\.$|^user_id .*\.$/, code);
    assert.doesNotMatch(entry.message, /\/|\bstack\b|Error:/, code);
  }
});

test('errors - a close code of the table is one that clients know', () => {
  const known = new Set<number>(Object.values(closeCodes).map(({ code }) => code));
  for (const [code, entry] of entries) if (entry.close !== undefined) assert.ok(known.has(entry.close), code);
});

test('errors - a limit on requests and an unavailable service are worth another try', () => {
  assert.equal(errors.rate_limited.retry, 'later');
  for (const [code, entry] of entries) {
    if (entry.http === 503) assert.notEqual(entry.retry, 'never', code);
  }
});

test('errors - only coded errors are shown; everything else is an internal error without its text', () => {
  const secret = new Error('password is hunter2');
  assert.deepEqual(shown(secret), { code: 'internal_error', message: errors.internal_error.message });
  assert.deepEqual(shown('hunter2'), { code: 'internal_error', message: errors.internal_error.message });
  assert.deepEqual(shown(undefined), { code: 'internal_error', message: errors.internal_error.message });
  const cause = coded('conflict', undefined, { cause: secret, details: { id: 7 } });
  assert.deepEqual(shown(cause), { code: 'conflict', message: errors.conflict.message, details: { id: 7 } });
  assert.doesNotMatch(JSON.stringify(shown(cause)), /hunter2/);
});

test('errors - an actor\'s own code is a refusal with status 400, also when it is a name of Object.prototype', () => {
  for (const code of ['insufficient_funds', 'constructor', 'toString', '__proto__']) {
    assert.deepEqual({ ...errorEntry(code), message: '' }, { kind: 'refusal', http: 400, retry: 'never', message: '' });
  }
  const own = refuse('insufficient_funds', 'The balance is 3.00', { balance: 300 });
  assert.ok(own instanceof CodedError);
  assert.deepEqual(shown(own), { code: 'insufficient_funds', message: 'The balance is 3.00', details: { balance: 300 } });
});

test('close codes - each has its own number and reason; the retry set is the specification\'s', () => {
  const all = Object.values(closeCodes);
  assert.equal(new Set(all.map(({ code }) => code)).size, all.length);
  assert.equal(new Set(all.map(({ reason }) => reason)).size, all.length);
  for (const { code, reason } of all) {
    assert.ok((code >= 1000 && code <= 1011) || (code >= 4000 && code <= 4999));
    assert.ok(Buffer.byteLength(reason) <= 123, 'RFC 6455 5.5: a control frame holds 125 bytes');
  }
  assert.deepEqual([...reconnectCodes].toSorted((a, b) => a - b), [1001, 1006, 1011, 4002, 4004]);
});

test('limits - each is a positive whole number with its unit or count in its name', () => {
  for (const [name, value] of Object.entries(limits)) {
    assert.ok(Number.isSafeInteger(value) && value > 0, name);
    assert.match(name, /(Ms|Sec|Days|Bytes|Chars|Max|Commits|Events|Tokens|Usual|Share|Changes|Kept|MiB)$|^(socketsPerUser|partitions|snapshotEvery|knowledgeSnapshotEvery)$/, name);
  }
});

test('limits - those that stand in each other are ordered', () => {
  assert.ok(limits.commitMaxBytes < 1024 * 1024, 'a commit fits the default payload of NATS');
  assert.ok(limits.commandMaxBytes < limits.commitMaxBytes);
  assert.ok(limits.attachmentMaxBytes < limits.linkFrameMaxBytes);
  assert.ok(limits.bodyMaxBytes < limits.linkFrameMaxBytes);
  assert.ok(limits.toolResultMaxBytes < limits.commitMaxBytes);
  assert.ok(limits.restartBaseMs < limits.restartMaxMs);
  assert.ok(limits.idMaxChars * 4 * 3 + 2 <= limits.subjectTokenMaxBytes, 'an id of any script fits a token');
});

test('routes - ids, wire numbers and method with path are each unique', () => {
  assert.equal(new Set(routeList.map((r) => r.id)).size, routeList.length);
  assert.equal(new Set(routeList.map((r) => r.wire)).size, routeList.length);
  assert.equal(new Set(routeList.map((r) => `${r.method} ${r.path}`)).size, routeList.length);
  assert.deepEqual([...routeByWire.keys()].toSorted((a, b) => a - b), routeList.map((r) => r.wire).toSorted((a, b) => a - b));
});

test('routes - wire numbers are for ever: a gateway of another version names the same route', () => {
  assert.deepEqual(Object.fromEntries(routeList.map((r) => [r.id, r.wire])), {
    health: 1, bootstrap: 2, create_session: 3, stream: 4, put_blob: 5, list_sessions: 6,
    sign_auth: 10, sign_wallet: 11, get_auth_pubkey: 12, get_wallet_pubkey: 13, mint_session_cap: 14, enroll_passkey: 15, challenge: 16,
  });
});

test('routes - the platform\'s are unique beside the edge\'s, start at 100, and keep their numbers for ever', () => {
  const all = [...routeList, ...platformRouteList, ...deploymentRouteList, ...consoleRouteList];
  assert.equal(new Set(all.map((r) => r.id)).size, all.length);
  assert.equal(new Set(all.map((r) => r.wire)).size, all.length);
  assert.equal(new Set(all.map((r) => `${r.method} ${r.path}`)).size, all.length);
  assert.equal(anyRouteByWire.size, all.length);
  for (const route of platformRouteList) {
    assert.ok(route.wire >= 100, route.id);
    for (const code of route.errors) assert.ok(Object.hasOwn(errors, code), `${route.id}: ${code}`);
    if (route.body !== undefined) assert.ok(route.bodyMaxBytes > 0, route.id);
  }
  const wires = Object.fromEntries(platformRouteList.map((r) => [r.id, r.wire]));
  assert.deepEqual([wires['device_code'], wires['device_token'], wires['refresh'], wires['me'], wires['organization'], wires['webhook_redeliver']], [101, 102, 103, 106, 140, 158]);
});

test('routes - a deployment\'s are under /v1/, start at 300, and say every refusal of theirs with a code of the table; a mirror is its route\'s under another number [VER-001]', () => {
  for (const route of deploymentRouteList) {
    assert.match(route.path, /^\/v1\//, route.id);
    assert.ok(route.wire >= 300 && route.wire < 350, route.id);
    for (const code of route.errors) assert.ok(Object.hasOwn(errors, code), `${route.id}: ${code}`);
    assert.ok(!route.errors.includes('validation_error') && !route.errors.includes('bad_request'), `${route.id}: malformed input is invalid_argument there`);
  }
  assert.deepEqual(consoleRouteList.map((r) => r.wire), deploymentRouteList.filter((r) => r.console !== undefined).map((r) => r.wire + 100));
  for (const { path, mirrors, auth, query, body, answers } of consoleRouteList) {
    assert.deepEqual([path, auth.kind], [`/api/deployments/:deployment${mirrors.path}`, 'person']);
    assert.ok(query === mirrors.query && body === mirrors.body && answers === mirrors.answers, path);
  }
});

test('routes - the platform is under /api/ without a version, but for chat and the forms of pages; nothing is under /api/v2/ [VER-001]', () => {
  for (const { path } of platformRouteList) assert.ok(/^\/api\/(?!v\d)|^\/api\/v1\/|^\/\.well-known\/|^\/(?:legal|invite)$/.test(path), path);
});

test('routes - every declared error is in the table; a body has a bound, no body has none', () => {
  for (const route of routeList) {
    for (const code of route.errors) assert.ok(Object.hasOwn(errors, code), `${route.id}: ${code}`);
    assert.equal(route.body === undefined, route.bodyMaxBytes === 0, route.id);
    if (route.auth.kind === 'tier2') assert.ok(route.auth.scopes.length > 0, route.id);
  }
});

test('routes - every JSON body refuses unknown fields', () => {
  for (const route of routeList) {
    if (!(route.body instanceof z.ZodType)) continue;
    const schema = z.toJSONSchema(route.body, { io: 'input', unrepresentable: 'any' });
    assert.equal(schema.additionalProperties, false, route.id);
  }
});

test('routes - create_session makes a new actor of the caller, or resumes one by a sid of the right form', () => {
  const { serve } = routes.createSession;
  assert.ok(serve.by === 'actor');
  const principal = { kind: 'user', sub: 'ada', org: 'acme', scopes: [] } as const;
  const sid = 'abcdefghijklmnopqrstuvwxyz';
  const fresh = serve.call({ principal, body: { user_id: 'ada', project_id: 'p', model: '  ' }, newSid: () => sid });
  assert.deepEqual(fresh, { actor: { org: 'acme', type: 'session', key: sid }, command: 'create', input: { user_id: 'ada', project_id: 'p' }, status: 201 });
  const resumed = serve.call({ principal, body: { user_id: 'ada', project_id: 'p', resume_sid: sid }, newSid: () => assert.fail('no new sid') });
  assert.deepEqual(resumed, { actor: { org: 'acme', type: 'session', key: sid }, command: 'resume', input: { user_id: 'ada' }, status: 200 });
  for (const bad of ['', 'short', sid.toUpperCase(), `${sid}a`, '../../../../../../../../..', 'abcdefghijklmnopqrstuvwxy1']) {
    assert.throws(() => serve.call({ principal, body: { user_id: 'ada', project_id: 'p', resume_sid: bad }, newSid: () => sid }), { code: 'session_not_found' });
  }
});

test('stream - each shown event kind has an agent kind, and a client sees exactly that kind\'s fields', () => {
  assert.deepEqual([...new Set(Object.values(sessionFeed))].toSorted(), agentKind.options.toSorted());
  for (const kind of Object.keys(sessionFeed)) assert.ok(Object.hasOwn(sessionEvents, kind), kind);
  assert.equal(feedKind('UserMessage'), undefined);
  assert.equal(feedKind('toString'), undefined);
  const shownFields = wirePayload('TOOL_RESULT', { call_id: 'c', tool_name: 't', result: 1, is_error: false, run_id: 'hidden' });
  assert.deepEqual(shownFields, { call_id: 'c', tool_name: 't', result: 1, is_error: false });
  assert.ok(agentPayloads.TOOL_RESULT.safeParse(shownFields).success);
});
