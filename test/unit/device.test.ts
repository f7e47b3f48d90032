import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import test from 'node:test';
import { deviceAddress, deviceId, isDeviceCode, newDeviceCode, newUserCode } from '../../actors/device/codes.ts';
import { device } from '../../actors/device/device.ts';
import { deviceCommands, typedUserCode } from '../../contracts/device.ts';
import { limits } from '../../contracts/limits.ts';
import type { By } from '../../contracts/platform.ts';
import { codeOf, createCluster, createHost, domainOf, reminderKey, type Cluster, type Host } from '../harness/memory-host.ts';

const key = randomBytes(32);
const address = deviceAddress(deviceId(newDeviceCode(key)));
const started = { user_code: 'ABCD-2345', client_id: 'cli' };
const by = (actor: string): By => ({ actor, email: `${actor}@example.com`, ip: '192.0.2.7', user_agent: 'test' });
const ttlMs = limits.deviceTtlSec * 1_000;

interface Setup {
  readonly cluster: Cluster;
  readonly host: Host;
}
const setup = async (begun = true): Promise<Setup> => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [device()] });
  if (begun) await host.ask(address, 'start', started);
  return { cluster, host };
};
const redeem = async (host: Host, client_id?: string): Promise<string> =>
  deviceCommands.redeem.output.parse(await host.ask(address, 'redeem', client_id === undefined ? {} : { client_id })).state;
const poll = async (host: Host, client_id?: string): Promise<string> =>
  deviceCommands.poll.output.parse(await host.ask(address, 'poll', client_id === undefined ? {} : { client_id })).state;
const decide = (host: Host, action: 'approve' | 'deny', actor = 'usr_a'): Promise<unknown> => host.ask(address, 'decide', { action, by: by(actor) });

test('device - a code nobody started is unknown, cannot be decided, and asking leaves no trace', async () => {
  const { cluster, host } = await setup(false);
  assert.equal(await redeem(host), 'unknown');
  assert.equal(await codeOf(host.ask(address, 'describe')), 'not_found');
  assert.equal(await codeOf(decide(host, 'approve')), 'not_found');
  assert.deepEqual(domainOf(cluster, address), []);
});

test('device - it is pending until a person decides, however often it is polled [DEV-025]', async () => {
  const { cluster, host } = await setup();
  for (let i = 0; i < 3; i++) {
    assert.equal(await poll(host, 'cli'), 'pending');
    assert.equal(await redeem(host, 'cli'), 'pending');
  }
  assert.deepEqual(await host.ask(address, 'describe'), { ...started, expires_in: limits.deviceTtlSec });
  assert.equal(domainOf(cluster, address).length, 1);
});

test('device - an approved one names who approved, once [DEV-031] [DEV-034]', async () => {
  const { cluster, host } = await setup();
  await cluster.clock.advance(5_000);
  const approved_at = cluster.clock.now();
  assert.deepEqual(await decide(host, 'approve', 'usr_b'), { status: 'approved', client_id: 'cli' });
  await cluster.clock.advance(5_000);
  assert.deepEqual(await host.ask(address, 'redeem', {}), { state: 'approved', user_id: 'usr_b', client_id: 'cli', approved_at });
  assert.equal(await redeem(host), 'unknown');
  assert.deepEqual(domainOf(cluster, address).slice(1), ['DeviceApproved {"user_id":"usr_b","ip":"192.0.2.7","user_agent":"test"}', 'DeviceRedeemed {}']);
  assert.equal(await cluster.stores.reminders.get(reminderKey(address)), undefined, 'nothing will wake it');
});

test('device - a denied one is told once and cannot be approved afterwards [DEV-035] [DEV-046]', async () => {
  const { host } = await setup();
  assert.deepEqual(await decide(host, 'deny'), { status: 'denied', client_id: 'cli' });
  assert.equal(await codeOf(decide(host, 'approve')), 'not_found');
  assert.equal(await redeem(host), 'denied');
  assert.equal(await redeem(host), 'unknown');
  assert.equal(await codeOf(decide(host, 'approve')), 'not_found');
});

test('device - of many polls at once exactly one is approved [DEV-036]', async () => {
  const { host } = await setup();
  await decide(host, 'approve');
  const states = await Promise.all(Array.from({ length: 40 }, () => redeem(host, 'cli')));
  assert.equal(states.filter((state) => state === 'approved').length, 1);
  assert.equal(states.filter((state) => state === 'unknown').length, 39);
});

test('device - of approvals and denials at once by several people the first alone counts', async () => {
  const { host } = await setup();
  const words = [decide(host, 'deny', 'usr_a'), decide(host, 'approve', 'usr_b'), decide(host, 'approve', 'usr_c'), decide(host, 'deny', 'usr_d')];
  const outcomes = await Promise.allSettled(words);
  assert.deepEqual(outcomes.map(({ status }) => status), ['fulfilled', 'rejected', 'rejected', 'rejected']);
  assert.equal(await redeem(host), 'denied');
});

test('device - looking uses nothing up and journals nothing', async () => {
  const { cluster, host } = await setup();
  for (const [action, state] of [['approve', 'approved'], ['deny', 'denied']] as const) {
    const fresh = await setup();
    await decide(fresh.host, action);
    assert.equal(await poll(fresh.host), state);
    assert.equal(await poll(fresh.host, 'other'), 'other_client');
    assert.equal(await poll(fresh.host), state);
    assert.equal(domainOf(fresh.cluster, address).length, 2);
  }
  await cluster.clock.advance(ttlMs);
  assert.equal(await poll(host), 'expired');
  assert.equal(await redeem(host), 'expired');
});

test('device - another client learns nothing and uses nothing up [DEV-024]', async () => {
  const { host } = await setup();
  assert.equal(await redeem(host, 'other'), 'other_client');
  await decide(host, 'approve');
  assert.equal(await redeem(host, 'other'), 'other_client');
  assert.equal(await redeem(host, 'cli'), 'approved');
});

test('device - after 900 seconds, not a millisecond before, it has expired for both sides [DEV-033] [DEV-047]', async () => {
  const { cluster, host } = await setup();
  await cluster.clock.advance(ttlMs - 1);
  assert.equal(await redeem(host), 'pending');
  assert.deepEqual(await host.ask(address, 'describe'), { ...started, expires_in: 1 });
  // Time passes, and the reminder has not run.
  cluster.clock.jump(1);
  assert.equal(await redeem(host), 'expired');
  assert.equal(await codeOf(decide(host, 'approve')), 'device_expired');
  await cluster.clock.advance(1_000);
  assert.equal(await redeem(host), 'expired');
  assert.equal(await codeOf(host.ask(address, 'describe')), 'device_expired');
  assert.equal(await codeOf(decide(host, 'deny')), 'device_expired');
  assert.equal(await redeem(host), 'expired', 'expiry is told as often as it is asked');
});

test('device - what was approved in time is there for a poll that comes a little late, and has expired for one that comes later [DEV-030]', async () => {
  const { cluster, host } = await setup();
  await cluster.clock.advance(ttlMs - 1);
  await decide(host, 'approve');
  await cluster.clock.advance(limits.deviceLateMs);
  assert.equal(await poll(host), 'approved');
  await cluster.clock.advance(1);
  assert.equal(await poll(host), 'expired');
  assert.equal(await redeem(host), 'expired');
  assert.equal(await codeOf(decide(host, 'deny')), 'not_found');
});

test('device - it forgets itself an hour after its end, whatever became of it, and cannot begin again', async () => {
  for (const end of ['none', 'approve', 'deny'] as const) {
    const { cluster, host } = await setup();
    if (end !== 'none') await decide(host, end);
    await cluster.clock.advance(ttlMs + limits.deviceKeptMs - 1);
    assert.notEqual(domainOf(cluster, address).at(-1), 'DeviceForgotten {}', end);
    await cluster.clock.advance(1_000);
    assert.equal(domainOf(cluster, address).at(-1), 'DeviceForgotten {}', end);
    assert.equal(await redeem(host), 'unknown');
    assert.equal(await codeOf(host.ask(address, 'describe')), 'not_found');
    assert.equal(await codeOf(host.ask(address, 'start', started)), 'conflict');
    assert.equal(await cluster.stores.reminders.get(reminderKey(address)), undefined);
  }
});

test('device - a new owner goes on with it: nothing of its state is in memory only', async () => {
  const { cluster, host } = await setup();
  await decide(host, 'approve', 'usr_b');
  host.engine.close();
  const next = createHost(cluster, { definitions: [device()], epoch: 2 });
  assert.deepEqual(await next.ask(address, 'redeem', {}), { state: 'approved', user_id: 'usr_b', client_id: 'cli', approved_at: cluster.clock.now() });
  assert.equal(await redeem(next), 'unknown');
});

test('device - only the daemon may ask it', async () => {
  const { host } = await setup();
  const user = { kind: 'user', sub: 'usr_a', org: 'platform', scopes: [] } as const;
  for (const [command, input] of [['start', started], ['describe', {}], ['decide', { action: 'approve', by: by('usr_a') }], ['poll', {}], ['redeem', {}]] as const) {
    assert.equal(await codeOf(host.ask(address, command, input, { principal: user })), 'forbidden', command);
  }
});

test('device - a device code is 64 hexadecimal characters, never twice the same [DEV-002] [DEV-003]', () => {
  const codes = Array.from({ length: 100 }, () => newDeviceCode(key));
  for (const code of codes) assert.match(code, /^[0-9a-f]{64}$/);
  assert.equal(new Set(codes).size, 100);
  assert.equal(new Set(codes.map((code) => code.slice(0, 32))).size, 100);
  assert.equal(new Set(codes.map((code) => code.slice(32))).size, 100);
});

test('device - a device code that was not made here is told from one that was, at every changed character', () => {
  const code = newDeviceCode(key);
  assert.ok(isDeviceCode(key, code));
  assert.ok(!isDeviceCode(randomBytes(32), code), 'another cluster\'s');
  for (let i = 0; i < 64; i++) {
    const other = code[i] === '0' ? '1' : '0';
    assert.ok(!isDeviceCode(key, `${code.slice(0, i)}${other}${code.slice(i + 1)}`), `at ${i}`);
  }
  for (const text of ['', code.toUpperCase().replace(/\d/g, 'A'), `${code}0`, code.slice(1), ` ${code}`, `${code}\n`, 'g'.repeat(64)]) assert.ok(!isDeviceCode(key, text));
});

test('device - a user code is four letters and four digits of the alphabets without look-alikes, each drawn evenly [DEV-004] [DEV-005] [DEV-006]', () => {
  const codes = Array.from({ length: 20_000 }, newUserCode);
  const seen = new Map<string, number>();
  for (const code of codes) {
    assert.match(code, /^[ABCDEFGHJKMNPQRSTUVWXYZ]{4}-[23456789]{4}$/);
    for (const char of code.replace('-', '')) seen.set(char, (seen.get(char) ?? 0) + 1);
  }
  // 80,000 letters over 23 and 80,000 digits over 8: six standard deviations of each count.
  for (const [alphabet, share] of [['ABCDEFGHJKMNPQRSTUVWXYZ', 80_000 / 23], ['23456789', 10_000]] as const) {
    for (const char of alphabet) assert.ok(Math.abs((seen.get(char) ?? 0) - share) < 6 * Math.sqrt(share), `${char}: ${seen.get(char)} of about ${share}`);
  }
});

test('device - a typed user code is trimmed, upper-cased, its hyphen optional; look-alikes of other scripts stay strangers [DEV-044]', () => {
  for (const typed of ['ABCD-2345', 'abcd-2345', 'ABCD2345', ' aBcD2345\t', '\u00a0abcd-2345\n']) assert.equal(typedUserCode.parse(typed), 'ABCD-2345');
  // Cyrillic, Greek, full width, the long s that upper-cases to S, a dash that is no hyphen.
  for (const typed of ['АBCD-2345', 'ΑBCD-2345', 'ＡBCD-2345', '\u017fBCD-2345', 'ABCD\u20132345', 'ABCD-234٥', 'ABCD--2345', 'ABC-D2345', 'AB CD-2345']) {
    assert.notEqual(typedUserCode.parse(typed), 'ABCD-2345');
    assert.doesNotMatch(typedUserCode.parse(typed), /^[A-Z]{4}-[0-9]{4}$/);
  }
  assert.ok(!typedUserCode.safeParse('A'.repeat(65)).success);
});
