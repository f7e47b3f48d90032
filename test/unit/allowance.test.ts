import assert from 'node:assert/strict';
import test from 'node:test';
import { endpointAllowance, planAllowance } from '../../actors/allowance/address.ts';
import { allowance } from '../../actors/allowance/allowance.ts';
import { takeOutput, type TakeInput, type TakeOutput } from '../../contracts/allowance.ts';
import { limits } from '../../contracts/limits.ts';
import { planLimitsOf, plans } from '../../contracts/plans.ts';
import { codeOf, createCluster, createHost, domainOf, type Cluster, type Host } from '../harness/memory-host.ts';

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
const address = { org: 'acme', type: 'allowance', key: 'plan' };

interface Counter {
  readonly cluster: Cluster;
  readonly host: Host;
  readonly take: (input: Partial<TakeInput>) => Promise<TakeOutput>;
}

const start = (cluster: Cluster = createCluster(), epoch = 1): Counter => {
  const host = createHost(cluster, { definitions: [allowance()], epoch });
  let asks = epoch * 1_000;
  return {
    cluster, host,
    take: async (input) => takeOutput.parse(await host.ask(address, 'take', { count: 1, perMinute: 10, perDay: 100, by: 'd0', ask: ++asks, ...input })),
  };
};

test('allowance - ten of a minute pass, the eleventh does not, and the answer says when the window that began with the first ends', async () => {
  const { cluster, take } = start();
  await cluster.clock.advance(hourMs);
  const startMs = cluster.clock.now();
  for (let i = 0; i < 10; i++) {
    const { granted, limit, remaining, resetAtMs } = await take({});
    assert.deepEqual({ granted, limit, remaining, resetAtMs }, { granted: 1, limit: 10, remaining: 9 - i, resetAtMs: startMs + minuteMs });
    await cluster.clock.advance(1_000);
  }
  assert.deepEqual(await take({}), { granted: 0, ahead: 0, limit: 10, remaining: 0, resetAtMs: startMs + minuteMs, retryAfterMs: 50_000, goodForMs: 50_000 });
  await cluster.clock.advance(49_999);
  assert.equal((await take({})).granted, 0);
  await cluster.clock.advance(1);
  const next = await take({});
  assert.deepEqual([next.granted, next.remaining, next.resetAtMs], [1, 9, startMs + 2 * minuteMs]);
});

test('allowance - of a batch as many pass as there is room for', async () => {
  const { take } = start();
  assert.equal((await take({ count: 7 })).granted, 7);
  const rest = await take({ count: 7 });
  assert.deepEqual([rest.granted, rest.remaining], [3, 0]);
});

test('allowance - the day ends at 00:00 UTC, not a millisecond before', async () => {
  const { cluster, take } = start();
  assert.equal(cluster.clock.now() % (24 * hourMs), 0);
  await cluster.clock.advance(23 * hourMs);
  for (let i = 0; i < 10; i++) {
    assert.equal((await take({ count: 10 })).granted, 10);
    await cluster.clock.advance(minuteMs);
  }
  const out = await take({});
  assert.deepEqual([out.granted, out.limit, out.remaining, out.retryAfterMs], [0, 100, 0, 50 * minuteMs]);
  assert.equal(out.resetAtMs % (24 * hourMs), 0);
  await cluster.clock.advance(50 * minuteMs - 1);
  assert.equal((await take({})).granted, 0);
  await cluster.clock.advance(1);
  assert.equal((await take({})).granted, 1);
});

test('allowance - a minute that began before midnight goes on after it, and the new day counts what passes in it', async () => {
  const { cluster, take } = start();
  await cluster.clock.advance(24 * hourMs - 10_000);
  assert.equal((await take({ count: 8, perDay: 12 })).granted, 8);
  await cluster.clock.advance(20_000);
  const after = await take({ count: 8, perDay: 12 });
  assert.deepEqual([after.granted, after.limit, after.retryAfterMs], [2, 10, 40_000]);
  await cluster.clock.advance(40_000);
  assert.equal((await take({ count: 10, perDay: 12 })).granted, 10, 'the day before counts no more');
});

test('allowance - both windows run out: the answer is about the one that ends later', async () => {
  const { take } = start();
  const out = await take({ count: 20, perMinute: 10, perDay: 10 });
  assert.deepEqual([out.granted, out.limit, out.retryAfterMs], [10, 10, 24 * hourMs]);
});

test('allowance - unlimited windows never run out, and the answer is about the one that can', async () => {
  const { cluster, take } = start();
  const out = await take({ count: 4_000, perMinute: -1, perDay: 5_000 });
  assert.deepEqual([out.granted, out.limit, out.remaining], [4_000, 5_000, 1_000]);
  assert.equal((await take({ count: 4_000, perMinute: -1, perDay: 5_000 })).granted, 1_000);
  await cluster.clock.advance(24 * hourMs);
  const none = await take({ count: 4_000, perMinute: -1, perDay: -1 });
  assert.deepEqual([none.granted, none.limit, none.remaining], [4_000, -1, -1]);
});

test('allowance - the limits are those of the ask: a raised one lets more pass at once, a lowered one nothing', async () => {
  const { take } = start();
  assert.equal((await take({ count: 20 })).granted, 10);
  const raised = await take({ count: 100, perMinute: 60, perDay: 5_000 });
  assert.deepEqual([raised.granted, raised.limit], [50, 60]);
  const lowered = await take({});
  assert.deepEqual([lowered.granted, lowered.limit, lowered.remaining], [0, 10, 0]);
  assert.equal((await take({ perMinute: 61 })).granted, 1);
});

test('allowance - refusals journal nothing', async () => {
  const { cluster, take } = start();
  await take({ count: 20 });
  const before = domainOf(cluster, address);
  for (let i = 0; i < 5; i++) assert.equal((await take({})).granted, 0);
  assert.equal((await take({ perMinute: 0 })).granted, 0);
  assert.deepEqual(domainOf(cluster, address), before);
  assert.equal(before.length, 1);
});

test('allowance - the next host counts on from the journal', async () => {
  const { cluster, host, take } = start();
  await take({ count: 9 });
  host.engine.close();
  const next = start(cluster, 2);
  assert.equal((await next.take({ count: 5 })).granted, 1);
});

test('allowance - a repeated ask takes nothing again and gives the first grant, also on the next host; a late copy of an older one gives none', async () => {
  const { cluster, host, take } = start();
  const first = { count: 3, by: 'd1', ask: 1 };
  assert.equal((await take(first)).granted, 3);
  host.engine.close();
  const next = start(cluster, 2);
  const again = await next.take(first);
  assert.deepEqual([again.granted, again.remaining], [3, 7]);
  assert.equal((await next.take({ count: 2, by: 'd1', ask: 2 })).remaining, 5);
  const late = await next.take(first);
  assert.deepEqual([late.granted, late.remaining], [0, 5]);
  assert.equal((await next.take({ count: 3, by: 'd2', ask: 1 })).granted, 3, 'another process has numbers of its own');
});

test('allowance - a clock that went back reopens no window', async () => {
  const { cluster, take } = start();
  await cluster.clock.advance(24 * hourMs + 5_000);
  await take({ count: 10 });
  cluster.clock.jump(-10_000);
  const before = await take({});
  assert.deepEqual([before.granted, before.retryAfterMs], [0, 70_000]);
});

const ahead = { perMinute: 1_000, perDay: -1 };

test('allowance - what is held ahead is at most one in a hundred of the limit, whoever holds it', async () => {
  const { take } = start();
  let held = 0;
  for (let i = 0; i < 40; i++) {
    const out = await take({ ...ahead, by: `d${i % 5}`, ahead: 1_000 });
    held += out.ahead;
    assert.equal(out.remaining, 1_000 - (i + 1) - held);
  }
  assert.equal(held, 10);
  assert.equal((await take({ ...ahead, by: 'd0', ahead: 1_000, used: 3 })).ahead, 1, 'of three used, half');
});

test('allowance - a limit below a hundred gives nothing ahead, and neither does a process too many', async () => {
  const { take } = start();
  assert.equal((await take({ perMinute: 99, perDay: -1, ahead: 10 })).ahead, 0);
  assert.equal((await take({ perMinute: -1, perDay: 99, ahead: 10 })).ahead, 0);
  const other = start();
  for (let i = 0; i < limits.allowanceTakersMax; i++) await other.take({ perMinute: -1, perDay: 1_000_000, by: `d${i}` });
  assert.equal((await other.take({ perMinute: -1, perDay: 1_000_000, by: 'more', ahead: 10 })).ahead, 0);
  assert.equal((await other.take({ perMinute: -1, perDay: 1_000_000, by: 'd0', ahead: 10 })).ahead, 10);
});

test('allowance - what was held ahead when its minute ended is lost to the day, so a day\'s minutes lose no more than one in a hundred of it', async () => {
  const { cluster, take } = start();
  let lost = 0;
  for (let i = 0; i < 30; i++) {
    lost += (await take({ perMinute: 2_000, perDay: 10_000, ahead: 1_000 })).ahead;
    await cluster.clock.advance(minuteMs);
  }
  assert.ok(lost > 50 && lost <= 100, `${lost}`);
});

test('allowance - grants ahead are good until the first of the windows ends', async () => {
  const { cluster, take } = start();
  assert.equal((await take({ ...ahead, ahead: 4 })).goodForMs, minuteMs);
  await cluster.clock.advance(24 * hourMs - 10_000);
  assert.equal((await take({ ...ahead, ahead: 4 })).goodForMs, 10_000);
});

test('allowance - users and integrators cannot take', async () => {
  const { host } = start();
  const input = { count: 1, perMinute: 1, perDay: 1, by: 'x', ask: 1 };
  assert.equal(await codeOf(host.ask(address, 'take', input, { principal: { kind: 'user', sub: 'a', org: 'acme', scopes: [] } })), 'forbidden');
  assert.equal(await codeOf(host.ask(address, 'take', input, { principal: { kind: 'integrator', org: 'acme' } })), 'forbidden');
});

test('allowance - an ask for nothing, for too much or under no limits is refused', async () => {
  const { cluster, take } = start();
  for (const input of [{ count: 0 }, { count: -1 }, { count: 1.5 }, { count: limits.allowanceCountMax + 1 }, { perMinute: -2 }, { ask: 0 }, { by: '' }, { ahead: limits.allowanceAheadMax + 1 }, { used: -1 }]) {
    assert.match(await codeOf(take(input)), /^(bad_request|validation_error)$/, JSON.stringify(input));
  }
  assert.deepEqual(domainOf(cluster, address), []);
});

test('allowance - addresses differ by endpoint and by what it counts, and show no address of a person', () => {
  const all = [
    endpointAllowance('device-code', '10.0.0.1'), endpointAllowance('device-code', '10.0.0.2'), endpointAllowance('refresh', '10.0.0.1'),
    endpointAllowance('device-poll', 'code-a', '10.0.0.1'), endpointAllowance('device-poll', 'code-b', '10.0.0.1'), endpointAllowance('device-poll', 'code-a10', '.0.0.1'),
  ];
  assert.equal(new Set(all.map(({ key }) => key)).size, all.length);
  for (const { org, key } of all) assert.match(`${org} ${key}`, /^platform (device-code|device-poll|refresh):[0-9a-f]{64}$/);
  assert.deepEqual(all.map(({ perMinute }) => perMinute), [10, 10, 10, 5, 5, 5]);
  assert.deepEqual(planAllowance('u-usr_1', plans.free.limits), { org: 'u-usr_1', key: 'plan', perMinute: 10, perDay: 100 });
});

test('plans - an organization\'s own limits count for enterprise only', () => {
  const own = { perMinute: 777, perDay: -1, maxApiKeys: 1, maxMembers: 2, credits: 3 };
  assert.deepEqual(planLimitsOf('enterprise', own), own);
  assert.deepEqual(planLimitsOf('team', own), plans.team.limits);
  const { perMinute, perDay, maxApiKeys, maxMembers, credits } = planLimitsOf('enterprise');
  assert.deepEqual([perMinute, perDay, maxApiKeys, maxMembers, credits], [120, 20_000, -1, -1, 100_000]);
});

test('plans - each plan has the features of the one before it, and more', () => {
  const [free, pro, team, enterprise] = [plans.free, plans.pro, plans.team, plans.enterprise].map(({ features }) => [...features]);
  assert.deepEqual(free, []);
  assert.deepEqual(pro, ['all_models', 'console', 'api_keys', 'deep_research']);
  assert.deepEqual(team, [...pro ?? [], 'priority_models', 'team_workspace', 'managed_deployments']);
  assert.deepEqual(enterprise, [...team ?? [], 'custom_domain', 'sla_guarantee']);
});
