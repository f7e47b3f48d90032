import assert from 'node:assert/strict';
import test from 'node:test';
import { endpointAllowance, planAllowance } from '../../actors/allowance/address.ts';
import { allowance } from '../../actors/allowance/allowance.ts';
import { createAllowances, type Allowances, type AllowancesOptions, type AskAllowance, type Verdict } from '../../actors/daemon/allowances.ts';
import { takeOutput, type TakeInput, type TakeOutput } from '../../contracts/allowance.ts';
import { coded, CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { plans } from '../../contracts/plans.ts';
import { codeOf, createCluster, createHost, type Cluster } from '../harness/memory-host.ts';

const minuteMs = 60_000;
const free = planAllowance('acme', plans.free.limits);
const wide = { org: 'acme', key: 'plan', perMinute: 10_000, perDay: -1 };

/** Allowances over one host whose clock the test moves; `asked` = what the actor was asked. */
const start = (cluster: Cluster = createCluster()) => {
  const host = createHost(cluster, { definitions: [allowance()] });
  const asked: TakeInput[] = [];
  const ask: AskAllowance = async (address, input) => {
    asked.push(input);
    return takeOutput.parse(await host.ask(address, 'take', input));
  };
  const daemon = (more: Partial<AllowancesOptions> = {}): Allowances => createAllowances({ ask, clock: cluster.clock, ...more });
  return { cluster, asked, ask, daemon };
};

const passes = async (allowances: Allowances, count: number, request: Parameters<Allowances['take']>[0]): Promise<number> => {
  const outcomes = await Promise.allSettled(Array.from({ length: count }, () => allowances.take(request)));
  for (const outcome of outcomes) {
    if (outcome.status === 'rejected' && !(outcome.reason instanceof CodedError && outcome.reason.code === 'rate_limited')) throw outcome.reason;
  }
  return outcomes.filter(({ status }) => status === 'fulfilled').length;
};

const refusalOf = async (promise: Promise<Verdict>): Promise<Readonly<Record<string, unknown>> | undefined> => {
  const error: unknown = await promise.then(() => undefined, (thrown: unknown) => thrown);
  assert.ok(error instanceof CodedError);
  assert.equal(error.code, 'rate_limited');
  assert.equal(error.entry.http, 429);
  return error.details;
};

/** Asks that the test answers. */
const asking = () => {
  const open: { readonly input: TakeInput; readonly deadlineMs: number; answer(output?: Partial<TakeOutput>): void; fail(error: Error): void }[] = [];
  const arrivals: (() => void)[] = [];
  const ask: AskAllowance = (_address, input, deadlineMs) => new Promise((resolve, reject) => {
    open.push({
      input, deadlineMs,
      answer: (output = {}) => { resolve({ granted: input.count, ahead: 0, limit: 10, remaining: 5, resetAtMs: 60_000, retryAfterMs: 60_000, goodForMs: 60_000, ...output }); },
      fail: reject,
    });
    arrivals.shift()?.();
  });
  return {
    ask, open,
    /** The next ask, which may have come. */
    next: async () => {
      if (open.length === 0) await new Promise<void>((resolve) => { arrivals.push(resolve); });
      const first = open.shift();
      assert.ok(first !== undefined);
      return first;
    },
  };
};

for (const [rules, plan, perMinute, perDay] of [
  ['[LIM-001] [LIM-002]', 'free', 10, 100], ['[LIM-003]', 'pro', 60, 5_000], ['[LIM-004]', 'team', 120, 20_000],
] as const) {
  test(`allowances - plan ${plan}: ${perMinute} pass in a minute and ${perDay} in a day, the next of each is refused with rate_limited ${rules}`, async () => {
    const { cluster, daemon } = start();
    const allowances = daemon();
    const request = planAllowance('acme', plans[plan].limits);
    let passed = await passes(allowances, perMinute, request);
    assert.equal(passed, perMinute);
    assert.equal((await refusalOf(allowances.take(request)))?.['limit'], perMinute);
    while (passed < perDay) {
      await cluster.clock.advance(minuteMs);
      const more = await passes(allowances, perMinute, request);
      assert.equal(more, Math.min(perMinute, perDay - passed));
      passed += more;
    }
    await cluster.clock.advance(minuteMs);
    assert.equal((await refusalOf(allowances.take(request)))?.['limit'], perDay);
  });
}

test('allowances - an enterprise has the limits of its own record, unlimited ones cost no ask [LIM-005]', async () => {
  const { asked, daemon } = start();
  const allowances = daemon();
  assert.equal(await passes(allowances, 400, planAllowance('big', { perMinute: 333, perDay: -1 })), 333);
  const before = asked.length;
  assert.equal(await passes(allowances, 400, planAllowance('bigger', { perMinute: -1, perDay: -1 })), 400);
  assert.deepEqual(await allowances.take(planAllowance('bigger', { perMinute: -1, perDay: -1 })), { limit: -1, remaining: -1, reset: 0 });
  assert.equal(asked.length, before);
});

test('allowances - two members of an organization share one allowance, on different daemons too; a personal workspace has its own [LIM-006] [LIM-007]', async () => {
  const { daemon } = start();
  const [one, other] = [daemon(), daemon()];
  assert.equal(await passes(one, 6, free) + await passes(other, 6, free), 10);
  const person = (id: string) => planAllowance(`u-${id}`, plans.free.limits);
  assert.equal(await passes(one, 12, person('usr_1')), 10);
  assert.equal(await passes(one, 12, person('usr_2')), 10);
  assert.equal(await passes(other, 1, person('usr_1')), 0);
});

test('allowances - endpoints count by what they are asked by: another address, another device code of one address, another endpoint are not slowed down', async () => {
  const { cluster, daemon } = start();
  const [one, other] = [daemon(), daemon()];
  assert.equal(await passes(one, 6, endpointAllowance('device-code', '10.0.0.1')) + await passes(other, 5, endpointAllowance('device-code', '10.0.0.1')), 10);
  assert.equal(await passes(one, 1, endpointAllowance('device-code', '10.0.0.2')), 1);
  assert.equal(await passes(other, 11, endpointAllowance('refresh', '10.0.0.1')), 10);
  assert.equal(await passes(one, 6, endpointAllowance('device-poll', 'code-a', '10.0.0.1')), 5);
  assert.equal(await passes(one, 5, endpointAllowance('device-poll', 'code-b', '10.0.0.1')), 5);
  assert.equal(await passes(one, 5, endpointAllowance('device-poll', 'code-a', '10.0.0.2')), 5);
  await cluster.clock.advance(minuteMs);
  assert.equal(await passes(other, 11, endpointAllowance('device-code', '10.0.0.1')), 10);
});

test('allowances - a refusal says the limit that was hit, nothing remaining, the reset and whole seconds, after which a request passes', async () => {
  const { cluster, daemon } = start();
  const allowances = daemon();
  await passes(allowances, 10, free);
  await cluster.clock.advance(20_300);
  const resetMs = cluster.clock.now() - 20_300 + minuteMs;
  assert.deepEqual(await refusalOf(allowances.take(free)), { limit: 10, remaining: 0, reset: Math.ceil(resetMs / 1_000), retry_after: 40 });
  await cluster.clock.advance(39_000);
  assert.deepEqual((await refusalOf(allowances.take(free)))?.['retry_after'], 1, 'never 0');
  await cluster.clock.advance(1_000);
  assert.equal((await allowances.take(free)).remaining, 9);
});

test('allowances - the day\'s limit is free again at 00:00 UTC, the minute\'s 60 s after its first request [LIM-011]', async () => {
  const { cluster, daemon } = start();
  const allowances = daemon();
  const request = { org: 'acme', key: 'plan', perMinute: 10, perDay: 15 };
  await cluster.clock.advance(24 * 60 * minuteMs - 70_000);
  assert.equal(await passes(allowances, 10, request), 10);
  await cluster.clock.advance(minuteMs - 1);
  assert.equal(await passes(allowances, 10, request), 0);
  await cluster.clock.advance(1);
  assert.equal(await passes(allowances, 10, request), 5);
  await cluster.clock.advance(9_999);
  assert.equal((await refusalOf(allowances.take(request)))?.['reset'], (cluster.clock.now() + 1) / 1_000);
  await cluster.clock.advance(1);
  assert.equal(await passes(allowances, 10, request), 5, 'the minute\'s other five');
});

test('allowances - a plan change counts from the next request on, though a refusal is remembered [LIM-013]', async () => {
  const { asked, daemon } = start();
  const allowances = daemon();
  assert.equal(await passes(allowances, 12, free), 10);
  const before = asked.length;
  assert.equal(await passes(allowances, 100, planAllowance('acme', plans.pro.limits)), 50, 'ten of the minute\'s sixty had passed');
  assert.equal(asked.length, before + 1);
  assert.equal((await refusalOf(allowances.take(free)))?.['limit'], 10);
});

test('allowances - a plan change reaches what was taken ahead under the old limits', async () => {
  const { daemon } = start();
  const allowances = daemon();
  for (let i = 0; i < 50; i++) await allowances.take(wide);
  const lower = { ...wide, perMinute: 20 };
  assert.equal(await passes(allowances, 5, lower), 0);
});

test('allowances - concurrent requests share one ask in flight, and who comes meanwhile forms the next', async () => {
  const { ask, next, open } = asking();
  const allowances = createAllowances({ ask });
  const first = Array.from({ length: 3 }, () => allowances.take(free));
  const asked = await next();
  assert.equal(asked.input.count, 3);
  const second = Array.from({ length: 5 }, () => allowances.take(free));
  assert.equal(open.length, 0);
  assert.equal(allowances.stats().waiting, 8);
  asked.answer();
  assert.deepEqual((await Promise.all(first)).map(({ remaining }) => remaining), [7, 6, 5]);
  const again = await next();
  assert.deepEqual([again.input.count, again.input.ask], [5, (asked.input.ask) + 1]);
  again.answer();
  await Promise.all(second);
  assert.deepEqual(allowances.stats(), { asks: 2, passed: 8, refused: 0, waiting: 0 });
});

test('allowances - keys do not wait for each other', async () => {
  const { ask, next } = asking();
  const allowances = createAllowances({ ask });
  const stuck = allowances.take({ ...free, org: 'stuck' });
  const slow = await next();
  const quick = allowances.take({ ...free, org: 'quick' });
  (await next()).answer();
  assert.equal((await quick).limit, 10);
  slow.answer();
  await stuck;
});

test('allowances - of a batch with room for some the first pass, the rest are refused, and those behind them without an ask', async () => {
  const { ask, next } = asking();
  const allowances = createAllowances({ ask });
  const order: string[] = [];
  const take = (name: string): Promise<void> => allowances.take(free).then(() => { order.push(`${name} passed`); }, () => { order.push(`${name} refused`); });
  const batch = [take('a'), take('b'), take('c')];
  const asked = await next();
  const late = take('d');
  asked.answer({ granted: 2, remaining: 0 });
  await Promise.all([...batch, late]);
  assert.deepEqual(order.toSorted(), ['a passed', 'b passed', 'c refused', 'd refused']);
  assert.equal(allowances.stats().asks, 1);
});

test('allowances - a flood of refused requests costs no asks until the window ends, then one', async () => {
  const { cluster, asked, daemon } = start();
  const allowances = daemon();
  await passes(allowances, 11, free);
  const before = asked.length;
  for (let i = 0; i < 5; i++) {
    assert.equal(await passes(allowances, 1_000, free), 0);
    await cluster.clock.advance(11_000);
  }
  assert.equal(asked.length, before);
  await cluster.clock.advance(minuteMs - 55_000);
  assert.equal(await passes(allowances, 1_000, free), 10);
  assert.equal(asked.length, before + 1);
});

test('allowances - requests one after the other use what was taken ahead: far fewer asks than requests, and not one more than the limit passes', async () => {
  const { asked, daemon } = start();
  const allowances = daemon();
  const request = { ...wide, perMinute: 2_000 };
  let passed = 0;
  for (let i = 0; i < 2_100; i++) passed += await passes(allowances, 1, request);
  assert.equal(passed, 2_000);
  assert.ok(asked.length < 500, `${asked.length} asks`);
});

test('allowances - what was taken ahead ends with its minute', async () => {
  const { cluster, asked, daemon } = start();
  const allowances = daemon();
  for (let i = 0; i < 10; i++) await allowances.take(wide);
  const { remaining } = await allowances.take(wide);
  const before = asked.length;
  await allowances.take(wide);
  assert.equal(asked.length, before, 'it holds some');
  await cluster.clock.advance(minuteMs);
  assert.equal((await allowances.take(wide)).remaining, 9_999);
  assert.equal(asked.length, before + 1);
  assert.ok(remaining < 9_999);
});

test('allowances - nothing is taken ahead where it is switched off', async () => {
  const { asked, daemon } = start();
  const allowances = daemon({ aheadMax: 0 });
  for (let i = 0; i < 10; i++) await allowances.take(wide);
  assert.deepEqual([asked.length, ...asked.map(({ ahead }) => ahead)], [10, ...Array.from({ length: 10 }, () => 0)]);
});

test('allowances - an ask whose answer was lost is repeated under its number and takes nothing twice', async () => {
  const { asked, ask, daemon } = start();
  let losses = 3;
  const allowances = daemon({
    ask: async (...args) => {
      const output = await ask(...args);
      if (losses-- > 0) throw coded('deadline_exceeded');
      return output;
    },
  });
  assert.equal((await allowances.take(free)).remaining, 9);
  assert.equal(new Set(asked.map((input) => input.ask)).size, 1);
  assert.equal(asked.length, 4);
  assert.equal(await passes(allowances, 20, free), 9);
});

test('allowances - an actor that does not answer lets nobody pass: the fault is told within the wait, the next request asks again', async () => {
  const { cluster, ask: good } = start();
  let failing = true;
  const deadlines: number[] = [];
  const allowances = createAllowances({
    clock: cluster.clock,
    ask: (address, input, deadlineMs) => {
      deadlines.push(deadlineMs);
      if (!failing) return good(address, input, deadlineMs);
      // Each try uses up its deadline.
      cluster.clock.jump(deadlineMs);
      return Promise.reject(coded('no_owner'));
    },
  });
  assert.deepEqual(await Promise.all([codeOf(allowances.take(free)), codeOf(allowances.take(free))]), ['no_owner', 'no_owner']);
  assert.ok(deadlines.reduce((sum, ms) => sum + ms, 0) <= limits.allowanceWaitMs);
  assert.equal(allowances.stats().waiting, 0);
  failing = false;
  assert.equal(await passes(allowances, 12, free), 10);
});

test('allowances - a refusal of the actor is not repeated', async () => {
  const { ask, next, open } = asking();
  const allowances = createAllowances({ ask });
  const taken = codeOf(allowances.take(free));
  (await next()).fail(coded('validation_error'));
  assert.equal(await taken, 'validation_error');
  assert.equal(open.length, 0);
});

test('allowances - waiting is bounded: one too many is refused with overloaded, and a batch is at most what one ask counts', async () => {
  const { ask, next } = asking();
  const allowances = createAllowances({ ask });
  const all = Array.from({ length: limits.allowanceWaitersMax }, () => allowances.take(wide));
  assert.equal(await codeOf(allowances.take(wide)), 'overloaded');
  assert.equal(await codeOf(allowances.take({ ...wide, org: 'other' })), 'overloaded');
  for (let left = limits.allowanceWaitersMax; left > 0; left -= limits.allowanceCountMax) {
    const asked = await next();
    assert.equal(asked.input.count, Math.min(left, limits.allowanceCountMax));
    asked.answer();
  }
  await Promise.all(all);
  assert.equal(allowances.stats().waiting, 0);
});

test('allowances - a request given up while it waits is not counted', async () => {
  const { ask, next } = asking();
  const allowances = createAllowances({ ask });
  const first = allowances.take(free);
  const asked = await next();
  const gone = new AbortController();
  const aborted = codeOf(allowances.take({ ...free, signal: gone.signal }));
  const stays = allowances.take(free);
  gone.abort();
  asked.answer();
  const again = await next();
  assert.equal(again.input.count, 1);
  again.answer();
  assert.equal(await aborted, 'aborted');
  assert.equal(await codeOf(allowances.take({ ...free, signal: gone.signal })), 'aborted');
  await Promise.all([first, stays]);
  assert.equal(allowances.stats().waiting, 0);
});

test('allowances - requests of one key under different limits are asked for apart, one after the other', async () => {
  const { ask, next, open } = asking();
  const allowances = createAllowances({ ask });
  const all = [allowances.take(free), allowances.take({ ...free, perMinute: 60 }), allowances.take(free)];
  const one = await next();
  assert.deepEqual([one.input.count, one.input.perMinute, open.length], [2, 10, 0]);
  one.answer();
  const two = await next();
  assert.deepEqual([two.input.count, two.input.perMinute], [1, 60]);
  two.answer();
  await Promise.all(all);
});

test('allowances - what was used of the grants ahead is told with the next ask, once, even if that ask fails', async () => {
  const { ask, next } = asking();
  const allowances = createAllowances({ ask });
  const first = allowances.take(wide);
  const asked = await next();
  assert.deepEqual([asked.input.ahead, asked.input.used], [0, 0]);
  asked.answer({ ahead: 3, remaining: 20 });
  await first;
  assert.deepEqual((await Promise.all(Array.from({ length: 3 }, () => allowances.take(wide)))).map(({ remaining }) => remaining), [22, 21, 20]);
  const second = codeOf(allowances.take(wide));
  const again = await next();
  assert.deepEqual([again.input.ahead, again.input.used], [4, 3]);
  again.fail(coded('unknown_actor_type'));
  assert.equal(await second, 'unknown_actor_type');
  const third = allowances.take(wide);
  const last = await next();
  assert.deepEqual([last.input.ahead, last.input.used], [4, 0]);
  last.answer();
  await third;
});
