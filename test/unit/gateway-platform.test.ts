/** Parts of the gateway's platform surface on whatever comes from outside. Randomness from one printed seed (fast-check). */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { authRoutes } from '../../contracts/auth-routes.ts';
import { CodedError } from '../../contracts/errors.ts';
import type { PlatformRoute } from '../../contracts/platform.ts';
import { platformRouteList } from '../../contracts/platform-routes.ts';
import { prefersHtml } from '../../gateway/accept.ts';
import { Buckets } from '../../gateway/bucket.ts';
import { cookieIn } from '../../gateway/cookies.ts';
import { readPlatformBody, readPlatformQuery } from '../../gateway/platform-body.ts';
import { hostName, hostRule } from '../../gateway/surface.ts';

const withBody = platformRouteList.filter((route) => route.body !== undefined && (route as PlatformRoute).raw !== true);
const formType = 'application/x-www-form-urlencoded';

/** What a reader gave, or undefined for `validation_error`; anything else is a failure. */
const read = <T>(run: () => T): T | undefined => {
  try {
    return run();
  } catch (error) {
    assert.ok(error instanceof CodedError && error.code === 'validation_error', String(error));
    assert.equal(typeof error.details?.['field'], 'string');
    assert.equal(typeof error.details?.['constraint'], 'string');
    return undefined;
  }
};

const nearJson = fc.oneof(
  fc.json(),
  fc.record({ email: fc.oneof(fc.emailAddress(), fc.string()), code: fc.string(), user_code: fc.string(), action: fc.constantFrom('approve', 'deny', 'x'), csrf: fc.string(), orgId: fc.string(), name: fc.string() }, { requiredKeys: [] }).map((value) => JSON.stringify(value)),
  fc.constantFrom('{"__proto__":{"a":1}}', '{"constructor":1}', '[]', 'null', '1e999', '"\ud800"', '{"email":"a@b.cc","email":"c@d.ee"}'),
);

test('platform body - whatever comes is read to what the route\'s schema takes, or refused with field and constraint', () => {
  fc.assert(fc.property(fc.constantFrom(...withBody), fc.constantFrom('application/json', '', formType, 'text/plain'), fc.oneof(nearJson.map((text) => Buffer.from(text)), fc.uint8Array().map((bytes) => Buffer.from(bytes))), (route: PlatformRoute, type, bytes) => {
    const got = read(() => readPlatformBody(route, type, bytes));
    if (got === undefined) return;
    assert.ok(type !== 'text/plain' && (type !== formType || route.form === true));
    assert.equal(route.body?.safeParse(got.body).success, true);
    // It goes to the daemon as JSON, and must still be taken there.
    assert.equal(route.body?.safeParse(JSON.parse(JSON.stringify(got.body))).success, true);
  }), { numRuns: 1_000 });
});

test('platform body - a raw one goes on byte for byte, whatever its type, and comes out of JSON as it was', () => {
  const raw = platformRouteList.filter((route: PlatformRoute) => route.raw === true);
  assert.deepEqual(raw.map(({ id }) => id).toSorted(), ['checkout', 'payment_events']);
  fc.assert(fc.property(fc.constantFrom(...raw), fc.constantFrom('application/json', '', 'text/plain'), fc.uint8Array({ maxLength: 4_096 }), (route: PlatformRoute, type, bytes) => {
    const { body } = readPlatformBody(route, type, bytes);
    assert.deepEqual(Buffer.from(String(JSON.parse(JSON.stringify(body))), 'base64'), Buffer.from(bytes));
  }));
});

test('platform body - a form says what its JSON would say; a csrf field is the proof wherever it stands', () => {
  const { emailStart } = authRoutes;
  fc.assert(fc.property(fc.emailAddress({ size: 'small' }), fc.string(), fc.boolean(), (email, csrf, first) => {
    const fields: [string, string][] = [['email', email], ['csrf', csrf]];
    const form = new URLSearchParams(first ? fields.toReversed() : fields).toString();
    const route = emailStart as unknown as PlatformRoute;
    const byForm = read(() => readPlatformBody(route, formType, Buffer.from(form)));
    const byJson = read(() => readPlatformBody(route, 'application/json', Buffer.from(JSON.stringify({ email }))));
    assert.deepEqual(byForm?.body, byJson?.body);
    if (byForm !== undefined) assert.equal(byForm.csrf, csrf.toWellFormed());
  }));
});

test('platform query - a name given twice is refused, whatever the values', () => {
  const route = platformRouteList.find(({ id }) => id === 'members') ?? assert.fail('no such route');
  fc.assert(fc.property(fc.string({ minLength: 1, maxLength: 8 }), fc.string(), (a, b) => {
    assert.equal(read(() => readPlatformQuery(route, `${new URLSearchParams([['orgId', a], ['orgId', b]]).toString()}`)), undefined);
    assert.deepEqual(read(() => readPlatformQuery(route, new URLSearchParams([['orgId', a]]).toString())), { orgId: a.toWellFormed() });
  }));
});

test('cookies - a value is found among others exactly when the name is there once', () => {
  const name = '__Host-troupe';
  const others = fc.array(fc.tuple(fc.stringMatching(/^[a-z_-]{1,12}$/), fc.stringMatching(/^[A-Za-z0-9]{0,8}$/)), { maxLength: 5 });
  fc.assert(fc.property(others, fc.stringMatching(/^[A-Za-z0-9_.-]{1,40}$/), fc.nat(2), (pairs, value, times) => {
    const all = [...pairs.map(([key, text]) => `${key}=${text}`), ...Array.from({ length: times }, () => `${name}=${value}`)].toSorted();
    assert.equal(cookieIn(all.join('; '), name), times === 1 ? value : undefined);
  }));
  fc.assert(fc.property(fc.string(), (header) => {
    const found = cookieIn(header, name);
    if (found !== undefined) assert.match(found, /^[\x21-\x7e]+$/);
  }));
});

test('accept and host names - any text is judged without a throw', () => {
  const rule = hostRule({ platform: ['a.example'], edge: undefined, console: ['[::1]'] }) ?? assert.fail('no rule');
  fc.assert(fc.property(fc.string(), (text) => {
    assert.equal(typeof prefersHtml(text), 'boolean');
    // Exactly one of a listed and an unlisted world.
    assert.equal(rule('edge', text), !rule('platform', text) && !rule('console', text));
  }));
  assert.equal(hostRule({ platform: undefined, edge: undefined, console: undefined }), undefined);
  for (const [host, name] of [['A.example:443', 'a.example'], ['[::1]:443', '[::1]'], ['[::1]', '[::1]'], ['a.example:', 'a.example'], ['', '']] as const) assert.equal(hostName(host), name);
});

test('buckets - what is given back was taken: never above capacity, and nothing for a key that was forgotten', () => {
  let nowMs = 0;
  const buckets = new Buckets({ capacity: 3, refillPerSec: 1 }, () => nowMs);
  const tokens = (): number => buckets.inspect('a', 1)[0]?.tokens ?? 0;
  buckets.give('a');
  assert.deepEqual([tokens(), buckets.size], [3, 0]);
  assert.equal(buckets.take('a'), 0);
  buckets.give('a');
  buckets.give('a');
  assert.equal(tokens(), 3);
  for (let i = 0; i < 3; i++) buckets.take('a');
  assert.equal(buckets.take('a'), 1);
  nowMs += 500;
  buckets.give('a');
  assert.equal(tokens(), 1.5);
  buckets.override('a', { capacity: 1, refillPerSec: 1 });
  buckets.give('a');
  assert.equal(tokens(), 1);
});
