import assert from 'node:assert/strict';
import test from 'node:test';
import * as client from 'openid-client';
import { z } from 'zod';
import { addressBlock } from '../../actors/daemon/platform/address.ts';
import { deviceAddress, deviceId } from '../../actors/device/codes.ts';
import { nameAddress } from '../../actors/name/address.ts';
import { deviceGrant } from '../../contracts/auth-routes.ts';
import { coded, CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { baseUrl, startDeviceFlow, type DeviceFlow } from '../harness/device-flow.ts';
import { codeOf, domainOf } from '../harness/memory-host.ts';

const begun = z.strictObject({
  device_code: z.string(), user_code: z.string(), verification_uri: z.string(), verification_uri_complete: z.string(), expires_in: z.int(), interval: z.int(),
});
const begin = async (flow: DeviceFlow, ip?: string, body: unknown = { client_id: 'cli' }): Promise<z.output<typeof begun>> =>
  begun.parse((await flow.call('deviceCode', { body, ...(ip === undefined ? {} : { ip }) })).body);
const poll = (flow: DeviceFlow, device_code: string, more: { readonly ip?: string; readonly client_id?: string } = {}) =>
  flow.call('deviceToken', { body: { grant_type: deviceGrant, device_code, ...(more.client_id === undefined ? {} : { client_id: more.client_id }) }, ...(more.ip === undefined ? {} : { ip: more.ip }) });
const decide = (flow: DeviceFlow, user_code: string, action: 'approve' | 'deny' = 'approve', as = 'usr_a') => flow.call('deviceAuthorize', { as, body: { user_code, action } });
const refusalOf = async (promise: Promise<unknown>): Promise<CodedError> => {
  const error: unknown = await promise.then(() => undefined, (reason: unknown) => reason);
  assert.ok(error instanceof CodedError, `expected a refusal, got ${String(error)}`);
  return error;
};

test('device flow - without a client_id, or with an empty one, the client is `cli` [DEV-012]', async () => {
  const flow = startDeviceFlow();
  for (const body of [{}, { client_id: '' }]) {
    const { user_code } = await begin(flow, undefined, body);
    assert.deepEqual((await flow.call('deviceShow', { as: 'usr_a', query: { user_code } })).body, { client_id: 'cli', user_code, expires_in: 900 });
  }
});

test('device flow - a client_id that is no text of a client is refused and begins nothing', async () => {
  const flow = startDeviceFlow();
  for (const client_id of ['\u202ecli', 'c\nli', 'клі', 'x'.repeat(129)]) assert.equal(await codeOf(begin(flow, undefined, { client_id })), 'invalid_request');
  assert.deepEqual(flow.journaled, []);
});

test('device flow - a drawn user code that somebody holds is drawn anew, until the draws are used up', async (t) => {
  const flow = startDeviceFlow();
  const real = flow.host.engine.deliver.bind(flow.host.engine);
  let refusals = 2;
  t.mock.method(flow.host.engine, 'deliver', async (message: Parameters<typeof real>[0]) => {
    if (message.command === 'claim' && refusals > 0) {
      refusals -= 1;
      return { holder: 'another', mine: false };
    }
    return real(message);
  });
  const { user_code } = await begin(flow);
  assert.equal(refusals, 0);
  assert.match(user_code, /^[A-Z]{4}-[2-9]{4}$/);
  refusals = limits.userCodeDrawsMax;
  assert.equal(await codeOf(begin(flow)), 'overloaded');
});

test('device flow - neither the device code nor a token stands in the journal', async () => {
  const flow = startDeviceFlow();
  const { device_code, user_code } = await begin(flow);
  await codeOf(poll(flow, device_code));
  await decide(flow, user_code);
  await poll(flow, device_code);
  const text = flow.journaled.map(({ subject, data }) => `${subject} ${Buffer.from(data).toString('latin1')}`).join('\n');
  assert.ok(text.includes(deviceId(device_code)) && text.includes('DeviceRedeemed') && text.includes(user_code), 'what is looked at is the journal');
  for (const secret of [device_code, 'access-of-usr_a', 'refresh-of-usr_a']) assert.ok(!text.includes(secret), secret);
});

test('device flow - a guessed device code is invalid and leaves no trace, not even a counter [DEV-023]', async () => {
  const flow = startDeviceFlow();
  const { device_code } = await begin(flow);
  const before = flow.journaled.length;
  const last = device_code.at(-1) === '0' ? '1' : '0';
  for (const guess of ['0'.repeat(64), `${device_code.slice(0, -1)}${last}`, device_code.toUpperCase(), 'x', `${device_code} `]) {
    assert.equal(await codeOf(poll(flow, guess)), 'invalid_grant');
  }
  assert.equal(flow.journaled.length, before);
  assert.equal(await codeOf(poll(startDeviceFlow(), device_code)), 'invalid_grant', 'another cluster\'s');
});

test('device flow - what a poll lacks is named: grant type, device code [DEV-021] [DEV-022]', async () => {
  const flow = startDeviceFlow();
  const { device_code } = await begin(flow);
  const refused = (body: unknown): Promise<string> => codeOf(flow.call('deviceToken', { body }));
  assert.equal(await refused({ grant_type: 'authorization_code', device_code }), 'unsupported_grant_type');
  assert.equal(await refused({ grant_type: 'refresh_token', refresh_token: 'a' }), 'unsupported_grant_type');
  assert.equal(await refused({ device_code }), 'unsupported_grant_type');
  assert.equal(await refused({ grant_type: deviceGrant }), 'invalid_request');
  assert.equal(await refused({ grant_type: deviceGrant, device_code: '' }), 'invalid_request');
});

test('device flow - the approver\'s tokens are made once, for the client that began [DEV-031] [DEV-034] [DEV-036]', async () => {
  const flow = startDeviceFlow();
  const { device_code, user_code } = await begin(flow, '192.0.2.1', { client_id: 'tool' });
  const agreedAtMs = flow.cluster.clock.now();
  assert.deepEqual((await decide(flow, user_code, 'approve', 'usr_b')).body, { status: 'approved', client_id: 'tool' });
  await flow.cluster.clock.advance(5_000);
  const polls = await Promise.allSettled(Array.from({ length: 5 }, (_, i) => poll(flow, device_code, { ip: `192.0.2.${i}` })));
  assert.equal(polls.filter(({ status }) => status === 'fulfilled').length, 1);
  assert.deepEqual(flow.issued, [{ userId: 'usr_b', clientId: 'tool', agreedAtMs }]);
  assert.equal(await codeOf(poll(flow, device_code, { ip: '192.0.2.9' })), 'invalid_grant');
});

test('device flow - an approval whose tokens cannot be made is used up all the same, and a person who is gone gets none', async () => {
  for (const [code, seen] of [['unauthorized', 'access_denied'], ['journal_unavailable', 'journal_unavailable']] as const) {
    const flow = startDeviceFlow({ issue: async () => { throw coded(code); } });
    const { device_code, user_code } = await begin(flow);
    await decide(flow, user_code);
    assert.equal(await codeOf(poll(flow, device_code)), seen);
    assert.equal(await codeOf(poll(flow, device_code)), 'invalid_grant');
  }
});

test('device flow - a poll with too little time left uses nothing up: the next one gets the tokens', async () => {
  const flow = startDeviceFlow();
  const { device_code, user_code } = await begin(flow);
  await decide(flow, user_code);
  const body = { grant_type: deviceGrant, device_code };
  assert.equal(await codeOf(flow.call('deviceToken', { body, deadlineAt: performance.now() + limits.deviceRedeemMs - 1 })), 'deadline_exceeded');
  assert.deepEqual(flow.issued, []);
  assert.equal((await poll(flow, device_code)).status, 200);
});

test('device flow - the sixth poll within a minute of the first is slowed down, with when to come again, and stays pending [DEV-026] [DEV-028]', async () => {
  const flow = startDeviceFlow();
  const { device_code, user_code } = await begin(flow);
  for (let i = 0; i < 5; i++) assert.equal(await codeOf(poll(flow, device_code)), 'authorization_pending');
  const refused = await refusalOf(poll(flow, device_code));
  assert.equal(refused.code, 'slow_down');
  assert.deepEqual(refused.details, { limit: 5, remaining: 0, reset: Math.ceil((flow.cluster.clock.now() + 60_000) / 1_000), retry_after: 60 });
  await decide(flow, user_code);
  assert.equal(await codeOf(poll(flow, device_code)), 'slow_down');
  await flow.cluster.clock.advance(60_000);
  assert.equal((await poll(flow, device_code)).status, 200);
});

test('device flow - polls are counted by device code and address [DEV-029]', async () => {
  const flow = startDeviceFlow();
  const [one, two] = [await begin(flow), await begin(flow)];
  for (let i = 0; i < 5; i++) await codeOf(poll(flow, one.device_code));
  assert.equal(await codeOf(poll(flow, one.device_code)), 'slow_down');
  assert.equal(await codeOf(poll(flow, two.device_code)), 'authorization_pending');
  assert.equal(await codeOf(poll(flow, one.device_code, { ip: '192.0.2.2' })), 'authorization_pending');
});

test('device flow - an address begins ten a minute; an IPv6 network counts as one address [DEV-017] [DEV-020]', async () => {
  const flow = startDeviceFlow();
  const addresses = Array.from({ length: 10 }, (_, i) => `2001:db8:1:2:${i}::${i}`);
  for (const ip of addresses) await begin(flow, ip);
  const refused = await refusalOf(begin(flow, '2001:db8:1:2::99'));
  assert.equal(refused.code, 'rate_limit_exceeded');
  assert.deepEqual(refused.details, { limit: 10, remaining: 0, reset: Math.ceil((flow.cluster.clock.now() + 60_000) / 1_000), retry_after: 60 });
  await begin(flow, '2001:db8:1:3::1');
  await begin(flow, '192.0.2.1');
  await flow.cluster.clock.advance(60_000);
  await begin(flow, '2001:db8:1:2::99');
});

test('device flow - spellings of one address are one address', () => {
  for (const ip of ['2001:db8:1:2::1', '2001:0DB8:0001:0002:0:0:0:ffff', '2001:db8:1:2:3:4:5:6', '2001:db8:1:2:3:4:192.0.2.1', '2001:db8:1:2::1%eth0']) assert.equal(addressBlock(ip), '2001:db8:1:2::/64');
  for (const ip of ['192.0.2.200', '::ffff:192.0.2.200', '::FFFF:c000:2c8']) assert.equal(addressBlock(ip), '192.0.2.200');
  assert.equal(addressBlock('::1'), '0:0:0:0::/64');
  assert.equal(addressBlock('fe80::1'), 'fe80:0:0:0::/64');
  assert.equal(addressBlock('1::'), '1:0:0:0::/64');
  assert.equal(addressBlock('not an address'), 'not an address');
  assert.equal(addressBlock(''), '');
});

test('device flow - a user code is taken as people type it; what is none, unknown or decided is not found [DEV-044] [DEV-045] [DEV-046]', async () => {
  const flow = startDeviceFlow();
  const { user_code } = await begin(flow);
  for (const wrong of ['', 'ABCD', `${user_code}X`, user_code.replace('-', '\u2013'), '\u0410BCD-2345']) assert.equal(await codeOf(decide(flow, wrong)), 'not_found');
  assert.equal(await codeOf(decide(flow, user_code === 'ABCD-2345' ? 'ABCD-2346' : 'ABCD-2345')), 'not_found');
  assert.equal((await decide(flow, ` ${user_code.toLowerCase().replace('-', '')} `)).status, 200);
  for (const as of ['usr_a', 'usr_b']) {
    assert.equal(await codeOf(decide(flow, user_code, 'deny', as)), 'not_found');
    assert.equal(await codeOf(flow.call('deviceShow', { as, query: { user_code } })), 'not_found');
  }
});

test('device flow - after 900 seconds a person gets device_expired and a poll expired_token; an hour later both are told nothing [DEV-033] [DEV-047]', async () => {
  const flow = startDeviceFlow();
  const { device_code, user_code } = await begin(flow);
  await flow.cluster.clock.advance(900_000);
  assert.equal(await codeOf(decide(flow, user_code)), 'device_expired');
  assert.equal(await codeOf(flow.call('deviceShow', { as: 'usr_a', query: { user_code } })), 'device_expired');
  assert.equal(await codeOf(poll(flow, device_code)), 'expired_token');
  await flow.cluster.clock.advance(limits.deviceKeptMs + 60_000);
  assert.equal(await codeOf(decide(flow, user_code)), 'not_found');
  assert.equal(await codeOf(poll(flow, device_code)), 'invalid_grant');
  assert.deepEqual(await flow.host.ask(nameAddress('user-code', user_code), 'holder'), { holder: null });
});

test('device flow - approve and deny at once: one word counts and the poll agrees with it', async () => {
  for (const actions of [['approve', 'deny'], ['deny', 'approve']] as const) {
    const flow = startDeviceFlow();
    const { device_code, user_code } = await begin(flow);
    const words = await Promise.allSettled(actions.map((action, i) => decide(flow, user_code, action, `usr_${i}`)));
    const won = words.findIndex(({ status }) => status === 'fulfilled');
    assert.equal(words.filter(({ status }) => status === 'fulfilled').length, 1);
    const seen = await poll(flow, device_code).then(() => 'approve', (error: unknown) => (error instanceof CodedError && error.code === 'access_denied' ? 'deny' : String(error)));
    assert.equal(seen, actions[won]);
  }
});

test('device flow - who guesses user codes is told nothing for a while, not even of one that exists; others are', async () => {
  const flow = startDeviceFlow();
  const { user_code } = await begin(flow);
  const guess = (i: number): string => {
    const code = `ABCD-${['2345', '2346', '2347', '2348', '2349', '2352', '2353'][i % 7]}`;
    return code === user_code ? 'ZZZZ-9999' : code;
  };
  for (let i = 0; i < limits.userCodeMissesPerMinuteMax; i++) assert.equal(await codeOf(decide(flow, guess(i))), 'not_found');
  assert.equal(await codeOf(flow.call('deviceShow', { as: 'usr_a', query: { user_code: guess(0) } })), 'rate_limited');
  assert.equal(await codeOf(decide(flow, user_code)), 'rate_limited');
  assert.equal((await refusalOf(flow.call('deviceShow', { as: 'usr_a', query: { user_code } }))).details?.['retry_after'], 60);
  assert.equal((await flow.call('deviceShow', { as: 'usr_b', query: { user_code } })).status, 200);
  // Another daemon has not seen it, but counts on: it learns it at the next miss.
  const other = startDeviceFlow({ beside: flow });
  assert.equal(await codeOf(decide(other, guess(1))), 'rate_limited');
  assert.equal(await codeOf(decide(other, user_code)), 'rate_limited');
  await flow.cluster.clock.advance(60_000);
  assert.equal((await decide(flow, user_code)).status, 200);
});

test('device flow - the metadata name the endpoints under base_url [DEV-016]', async () => {
  const { body } = await startDeviceFlow().call('metadata');
  assert.deepEqual(body, {
    issuer: baseUrl, device_authorization_endpoint: `${baseUrl}/api/auth/device/code`, token_endpoint: `${baseUrl}/api/auth/device/token`,
    refresh_endpoint: `${baseUrl}/api/auth/refresh`, jwks_uri: `${baseUrl}/api/auth/jwks.json`, grant_types_supported: [deviceGrant],
    token_endpoint_auth_methods_supported: ['none'], response_types_supported: [],
  });
});

test('device flow - an unmodified client polls every 5 s, is slowed down at its sixth poll, waits and gets its token [DEV-026] [DEV-027] [DEV-028]', async (t) => {
  const flow = startDeviceFlow();
  const { clock } = flow.cluster;
  const startMs = clock.now();
  const seen: string[] = [];
  let userCode = '';
  const config = await client.discovery(new URL(baseUrl), 'tool', undefined, client.None(), {
    algorithm: 'oauth2',
    [client.customFetch]: async (url, init) => {
      const answer = await flow.fetch(url, init);
      if (url.endsWith('/token')) {
        const { error } = z.object({ error: z.string().optional() }).parse(await answer.clone().json());
        seen.push(`${(clock.now() - startMs) / 1_000} s: ${error ?? answer.status}`);
        // While it is slowed down.
        if (error === 'slow_down') await decide(flow, userCode);
      }
      return answer;
    },
  });
  const authorization = await client.initiateDeviceAuthorization(config, {});
  userCode = authorization.user_code;
  // The client's waits move the clock that everything here lives by.
  t.mock.method(globalThis, 'setTimeout', (run: () => void, ms: number) => { void clock.advance(ms).then(run); });
  const tokens = await client.pollDeviceAuthorizationGrant(config, authorization, undefined, { signal: new AbortController().signal });
  assert.deepEqual(seen, [
    ...[5, 10, 15, 20, 25].map((at) => `${at} s: authorization_pending`), '30 s: slow_down', '65 s: 200',
  ]);
  assert.equal(tokens.access_token, 'access-of-usr_a');
  assert.deepEqual(flow.issued, [{ userId: 'usr_a', clientId: 'tool', agreedAtMs: startMs + 30_000 }]);
  assert.deepEqual(domainOf(flow.cluster, deviceAddress(deviceId(authorization.device_code))).map((event) => event.split(' ')[0]), ['DeviceStarted', 'DeviceApproved', 'DeviceRedeemed']);
});
