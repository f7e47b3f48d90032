/** Plan limits of chat over HTTP: two gateways, two daemons, a real clock. What has passed earlier today is written into the journal beforehand. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { connect } from 'nats';
import { ulid } from 'ulid';
import { encodeCommit } from '../../actors/runtime/commit.ts';
import { createNatsStores } from '../../actors/runtime/nats/stores.ts';
import { allowanceEvents } from '../../contracts/allowance.ts';
import { limits } from '../../contracts/limits.ts';
import { journalSubject, partitionOf } from '../../contracts/subjects.ts';
import { chatWorld, say, type ChatWorld } from '../harness/chat.ts';
import { startPlatform, type ApiReply, type Person, type TestPlatform } from '../harness/platform.ts';

const dayMs = 86_400_000;
const body = { model: 'mock', messages: say('/say x') };

describe('plan limits', () => {
  let platform: TestPlatform;
  let world: ChatWorld;
  let people = 0;
  before(async () => {
    platform = await startPlatform(undefined, { daemons: 2, gateways: 2 });
    world = await chatWorld(platform);
  });
  after(async () => {
    await world.stop();
    await platform.stop();
  });

  const person = (): Promise<Person> => world.person(`p${people++}@example.com`);
  /** So many requests at once, over both gateways in turn; how many passed, and a refusal. */
  const burst = async (count: number, who: readonly Person[], headers: Readonly<Record<string, string>> = {}): Promise<{ passed: number; refused: ApiReply | undefined }> => {
    const replies = await Promise.all(Array.from({ length: count }, (_, i) => world.post(who[(i >> 1) % who.length]?.accessToken ?? '', body, { gateway: i % 2, headers })));
    const passed = replies.filter(({ status }) => status === 200).length;
    const refused = replies.filter(({ status }) => status !== 200);
    for (const reply of refused) assert.deepEqual([reply.status, (reply.json as { error: { code: string } }).error.code], [429, 'rate_limited'], reply.body);
    return { passed, refused: refused[0] };
  };
  /** What an organization's allowance has counted, before anything is asked of it here. */
  const counted = async (org: string, granted: number, minuteStartMs: number): Promise<void> => {
    const nc = await connect({ servers: platform.nats.url });
    const address = { org, type: 'allowance', key: 'plan' };
    const event = allowanceEvents.AllowanceTaken.parse({ by: 'earlier', ask: 1, granted, ahead: 0, used: 0, minute: minuteStartMs, day: Date.now() - (Date.now() % dayMs) });
    const commit = encodeCommit({ v: 1, e: 1, n: 1, f: 1, c: 0, m: 0, p: 0, h: '', t: minuteStartMs, ev: [{ id: ulid(minuteStartMs), k: 'AllowanceTaken', d: event }] });
    await createNatsStores(nc, { partitions: limits.partitions, journalStreams: 1, replicas: 1 }).journal.append(journalSubject(partitionOf(address, limits.partitions), address), commit, 0);
    await nc.close();
  };
  const limited = (reply: ApiReply | undefined, limit: number, untilMs: readonly [number, number]): void => {
    assert.equal(reply?.status, 429, reply?.body);
    assert.deepEqual(reply.json, { error: { message: 'Too many requests. Wait for Retry-After seconds.', type: 'rate_limit_error', code: 'rate_limited', param: null } });
    assert.deepEqual([reply.headers['x-ratelimit-limit'], reply.headers['x-ratelimit-remaining']], [String(limit), '0']);
    const reset = Number(reply.headers['x-ratelimit-reset']);
    const wait = Number(reply.headers['retry-after']);
    assert.ok(Number.isInteger(reset) && Number.isInteger(wait) && wait >= 1);
    assert.ok(reset * 1_000 >= untilMs[0] && reset * 1_000 <= untilMs[1] + 1_000, `${reset} not in ${untilMs.join(' … ')}`);
    assert.ok(wait * 1_000 <= untilMs[1] - Date.now() + 2_000 + 60_000);
  };

  test('plan limits - of an organization on free ten requests a minute pass, whoever of its members sends them to whichever gateway [LIM-001] [LIM-006] [LIM-009] [LIM-010] [LIM-012] [CHAT-025]', async () => {
    const [owner, member] = await Promise.all([person(), person()]);
    const { id } = await world.organizations.create(owner);
    await world.organizations.join(id, owner, member, 'member');
    const begun = Date.now();
    const { passed, refused } = await burst(30, [owner, member], { 'troupe-organization': id });
    assert.equal(passed, 10);
    limited(refused, 10, [begun + 60_000, Date.now() + 60_000]);
    // A refused request asks no model.
    assert.equal((await world.journaled(id)).filter((event) => event.k === 'CompletionStarted').length, 10);
    // Plan by plan, each counted from the next request on.
    await world.setPlan(id, { plan: 'pro' });
    assert.equal((await burst(60, [owner, member], { 'troupe-organization': id })).passed, 50);
    limited((await burst(2, [owner], { 'troupe-organization': id })).refused, 60, [begun, Date.now() + 60_000]);
  });

  test('plan limits - a change of plan counts for the next request, up and down [LIM-003] [LIM-004] [LIM-005] [LIM-013]', async () => {
    const owner = await person();
    const { id } = await world.organizations.create(owner);
    const headers = { 'troupe-organization': id };
    for (const [set, limit, more] of [
      [{ plan: 'pro' }, 60, 60], [{ plan: 'team' }, 120, 60], [{ plan: 'enterprise', limits: { perMinute: 123, perDay: -1, maxApiKeys: -1, maxMembers: -1, credits: 1_000 } }, 123, 3],
    ] as const) {
      await world.setPlan(id, set);
      const { passed, refused } = await burst(more + 10, [owner], headers);
      assert.equal(passed, more, set.plan);
      limited(refused, limit, [Date.now() - 60_000, Date.now() + 60_000]);
    }
    // More than its day.
    await world.setPlan(id, { plan: 'free' });
    const { passed, refused } = await burst(2, [owner], headers);
    assert.deepEqual([passed, refused?.headers['x-ratelimit-limit']], [0, '100']);
  });

  test('plan limits - a personal workspace counts per person, and apart from the person\'s organization [LIM-007]', async () => {
    const [one, other] = await Promise.all([person(), person()]);
    assert.equal((await burst(12, [one])).passed, 10);
    assert.equal((await burst(12, [other])).passed, 10);
    const { id } = await world.organizations.create(one);
    assert.equal(await world.status(one.accessToken, { headers: { 'troupe-organization': id } }), 200);
    assert.equal(await world.status(one.accessToken, { headers: { 'troupe-organization': 'personal' } }), 429);
    assert.equal(await world.status(one.accessToken), 200);
  });

  test('plan limits - on free a hundred requests a day pass, until 00:00 UTC [LIM-002] [LIM-011]', async () => {
    const owner = await person();
    await counted(`u-${owner.userId}`, 99, Date.now() - 120_000);
    const midnight = (Math.floor(Date.now() / dayMs) + 1) * dayMs;
    const { passed, refused } = await burst(3, [owner]);
    assert.equal(passed, 1);
    limited(refused, 100, [midnight, midnight]);
    assert.equal(Number(refused?.headers['x-ratelimit-reset']) * 1_000, midnight);
  });

  test('plan limits - pro and team have their days too [LIM-003] [LIM-004]', async () => {
    for (const [plan, perDay] of [['pro', 5_000], ['team', 20_000]] as const) {
      const owner = await person();
      const { id } = await world.organizations.create(owner);
      await world.setPlan(id, { plan });
      await counted(id, perDay - 2, Date.now() - 120_000);
      const { passed, refused } = await burst(6, [owner], { 'troupe-organization': id });
      assert.equal(passed, 2, plan);
      assert.equal(refused?.headers['x-ratelimit-limit'], String(perDay));
    }
  });

  test('plan limits - after Retry-After a request passes again, and not before [LIM-008]', async () => {
    const owner = await person();
    // A minute that ends in three seconds.
    const minuteStartMs = Date.now() - 57_000;
    await counted(`u-${owner.userId}`, 10, minuteStartMs);
    const first = await world.post(owner.accessToken, body);
    limited(first, 10, [minuteStartMs + 60_000, minuteStartMs + 60_000]);
    const wait = Number(first.headers['retry-after']);
    assert.ok(wait >= 1 && wait <= 3, String(wait));
    let gateway = 0;
    for (;;) {
      const asked = Date.now();
      const { status } = await world.post(owner.accessToken, body, { gateway: gateway = 1 - gateway });
      if (status === 200) break;
      assert.equal(status, 429);
      assert.ok(asked < minuteStartMs + 60_000 + 1_000, 'still refused after Retry-After');
    }
    assert.ok(Date.now() >= minuteStartMs + 60_000, 'passed before its time');
  });
});
