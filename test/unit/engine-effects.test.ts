/** Effects: run after the commit, ended with it, resumed as their `once` says, never by a zombie. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { z } from 'zod';
import { coded, refuse } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { defineActor, type EffectContext, type Once, type Outcome } from '../../actors/runtime/define.ts';
import { codeOf, createCluster, createHost, domainOf, eventsOf, type Cluster, type Host } from '../harness/memory-host.ts';

const address = { org: 'acme', type: 'worker', key: 'w' };

interface Started {
  readonly context: EffectContext<unknown>;
  readonly name: string;
  finish(answer: string): void;
  fail(error: unknown): void;
}

/** The outside world: each run waits here until the test lets it end. */
const createWorld = () => {
  const runs: Started[] = [];
  const lookups: string[] = [];
  let arrivals: (() => void)[] = [];
  const world = {
    runs,
    lookups,
    /** What a lookup finds; undefined = it never happened. */
    found: undefined as Outcome<{ answer: string }> | undefined,
    lookupFails: 0,
    run: (name: string, context: EffectContext<unknown>) => new Promise<{ answer: string }>((resolve, reject) => {
      runs.push({ context, name, finish: (answer) => { resolve({ answer }); }, fail: reject });
      const arrived = arrivals;
      arrivals = [];
      for (const each of arrived) each();
    }),
    async begun(count: number): Promise<void> {
      while (runs.length < count) await new Promise<void>((resolve) => { arrivals.push(resolve); });
    },
    at(index: number): Started {
      const run = runs[index];
      assert.ok(run !== undefined, `effect ${index} has not begun`);
      return run;
    },
  };
  return world;
};
type World = ReturnType<typeof createWorld>;

const defineWorker = (world: World) => {
  const events = { asked: z.object({ name: z.string(), id: z.string() }), ended: z.object({ name: z.string(), outcome: z.string() }), step: z.object({ text: z.string() }) };
  return defineActor({
    type: 'worker',
    events,
    initial: () => ({ ended: 0, ids: {} as Readonly<Record<string, string>> }),
    apply: {
      asked: (state, e) => ({ ...state, ids: { ...state.ids, [e.name]: e.id } }),
      ended: (state) => ({ ...state, ended: state.ended + 1 }),
      step: (state) => state,
    },
    effects: (effect) => {
      const kind = (once: Once) => effect({
        input: z.object({ name: z.string() }), output: z.object({ answer: z.string() }), once, deadlineMs: 1_000,
        run: (context, input) => world.run(input.name, context),
        lookup: async (_, input) => {
          world.lookups.push(input.name);
          if (world.lookupFails-- > 0) throw coded('upstream_unavailable');
          return world.found;
        },
        done: (turn, outcome, input) => {
          if (input.name === 'poison') throw new RangeError('done fails');
          if (input.name === 'declining') throw refuse('no_thanks');
          turn.emit('ended', { name: input.name, outcome: outcome.ok ? outcome.output.answer : outcome.code });
        },
      });
      return { atLeast: kind('at-least'), atMost: kind('at-most'), lookup: kind('lookup') };
    },
    commands: (command) => ({
      start: command({
        input: z.strictObject({ effect: z.enum(['atLeast', 'atMost', 'lookup']), name: z.string() }), output: z.object({ id: z.string() }),
        handle: (turn, { effect, name }) => {
          const id = turn.effect(effect, { name });
          turn.emit('asked', { name, id });
          return { id };
        },
      }),
      startMany: command({
        input: z.strictObject({ count: z.int() }), output: z.object({}),
        handle: (turn, { count }) => {
          for (let i = 0; i < count; i++) turn.effect('atLeast', { name: `m${i}` });
          return {};
        },
      }),
      abort: command({
        input: z.strictObject({ name: z.string() }), output: z.object({}),
        handle: (turn, { name }) => {
          turn.abort(turn.state.ids[name] ?? '');
          return {};
        },
      }),
      step: command({
        input: z.strictObject({ text: z.string() }), output: z.object({}), access: 'self',
        handle: (turn, { text }) => {
          turn.emit('step', { text });
          return {};
        },
      }),
      fail: command({ input: z.strictObject({}), output: z.object({}), handle: () => { throw new RangeError('bug'); } }),
      ended: command({ input: z.strictObject({}), output: z.object({ ended: z.int() }), handle: (turn) => ({ ended: turn.state.ended }) }),
    }),
    idleMs: 400,
  });
};

const ended = (cluster: Cluster): string[] => domainOf(cluster, address).filter((event) => event.startsWith('ended'));
const unfinished = (cluster: Cluster): number => {
  const kinds = eventsOf(cluster, address).map((event) => event.k);
  return kinds.filter((k) => k === '$effect.intended').length - kinds.filter((k) => k === '$effect.ended').length;
};
/** Lets everything that is ready run: the outcome is a message of the actor, so a read after it sees it. */
const quiet = async (cluster: Cluster): Promise<void> => {
  for (let i = 0; i < 4; i++) await cluster.clock.advance(0);
};

const setup = (epoch = 1, cluster = createCluster(), world = createWorld()): { cluster: Cluster; world: World; host: Host } =>
  ({ cluster, world, host: createHost(cluster, { definitions: [defineWorker(world)], epoch }) });

test('[G2] engine effects - an effect begins only when its intent is in the journal', async () => {
  const { cluster, world, host } = setup();
  await host.ask(address, 'ended');
  const { faults } = cluster.stores.journal;
  faults.hold();
  const arrived = faults.appended();
  const started = host.ask(address, 'start', { effect: 'atLeast', name: 'a' });
  await arrived;
  await quiet(cluster);
  assert.equal(world.runs.length, 0);
  faults.release();
  await started;
  await world.begun(1);
  assert.equal(world.at(0).context.attempt, 1);
  host.engine.close();
});

test('engine effects - an effect whose intent could not be journaled does not run', async () => {
  const { cluster, world, host } = setup();
  await host.ask(address, 'ended');
  cluster.stores.journal.faults.failNext('journal_unavailable');
  assert.equal(await codeOf(host.ask(address, 'start', { effect: 'atLeast', name: 'a' })), 'journal_unavailable');
  await quiet(cluster);
  assert.equal(world.runs.length, 0);
  host.engine.close();
});

test('engine effects - the outcome\'s events and the end of the effect are one commit', async () => {
  const { cluster, world, host } = setup();
  await host.ask(address, 'start', { effect: 'atMost', name: 'a' });
  await world.begun(1);
  world.at(0).finish('fine');
  await quiet(cluster);
  assert.deepEqual(ended(cluster), ['ended {"name":"a","outcome":"fine"}']);
  const last = eventsOf(cluster, address).slice(-2).map((event) => event.k);
  assert.deepEqual(last, ['$effect.ended', 'ended']);
  assert.equal(host.engine.stats().effectsRunning, 0);
  host.engine.close();
});

test('engine effects - a coded failure is the outcome, anything else is internal_error and logged', async () => {
  const { cluster, world, host } = setup();
  await host.ask(address, 'start', { effect: 'atMost', name: 'a' });
  await host.ask(address, 'start', { effect: 'atMost', name: 'b' });
  await world.begun(2);
  world.at(0).fail(refuse('card_declined'));
  world.at(1).fail(new RangeError('secret'));
  await quiet(cluster);
  assert.deepEqual(ended(cluster).sort(), ['ended {"name":"a","outcome":"card_declined"}', 'ended {"name":"b","outcome":"internal_error"}']);
  assert.equal(host.log.lines.filter((line) => line.level === 'error').length, 1);
  host.engine.close();
});

test('engine effects - at its deadline an effect is aborted and ends as deadline_exceeded, whatever it still does', async () => {
  const { cluster, world, host } = setup();
  await host.ask(address, 'start', { effect: 'atLeast', name: 'a' });
  await world.begun(1);
  await cluster.clock.advance(1_000);
  assert.equal(world.at(0).context.signal.aborted, true);
  world.at(0).finish('too late');
  assert.equal(await codeOf(world.at(0).context.call('step', { text: 'x' })), 'deadline_exceeded');
  await quiet(cluster);
  assert.deepEqual(domainOf(cluster, address).slice(1), ['ended {"name":"a","outcome":"deadline_exceeded"}']);
  assert.equal(host.engine.stats().effectsRunning, 0);
  host.engine.close();
});

test('engine effects - an actor with a running effect does not idle, and does once it ended', async () => {
  const { cluster, world, host } = setup();
  await host.ask(address, 'start', { effect: 'atMost', name: 'a' });
  await world.begun(1);
  await cluster.clock.advance(900);
  assert.equal(host.engine.stats().activations, 1);
  assert.equal(world.at(0).context.signal.aborted, false);
  world.at(0).finish('fine');
  await quiet(cluster);
  await cluster.clock.advance(400 + 2 * limits.sweepMs);
  assert.equal(host.engine.stats().activations, 0);
  assert.deepEqual(ended(cluster), ['ended {"name":"a","outcome":"fine"}']);
  host.engine.close();
});

test('engine effects - turn.abort ends a running effect as aborted, and a waiting one too', async () => {
  const { cluster, world, host } = setup();
  await host.ask(address, 'startMany', { count: limits.effectsPerActorMax });
  await world.begun(limits.effectsPerActorMax);
  await host.ask(address, 'start', { effect: 'atLeast', name: 'waiting' });
  await host.ask(address, 'abort', { name: 'waiting' });
  await quiet(cluster);
  assert.deepEqual(ended(cluster), ['ended {"name":"waiting","outcome":"aborted"}']);
  world.at(0).finish('x');
  await quiet(cluster);
  await host.ask(address, 'start', { effect: 'atLeast', name: 'running' });
  await world.begun(limits.effectsPerActorMax + 1);
  await host.ask(address, 'abort', { name: 'running' });
  await quiet(cluster);
  assert.equal(world.at(limits.effectsPerActorMax).context.signal.aborted, true);
  assert.equal(ended(cluster).at(-1), 'ended {"name":"running","outcome":"aborted"}');
  host.engine.close();
});

test('engine effects - at most effectsPerActorMax run at once, the rest follow in order', async () => {
  const { cluster, world, host } = setup();
  await host.ask(address, 'startMany', { count: limits.effectsPerActorMax + 2 });
  await quiet(cluster);
  assert.equal(world.runs.length, limits.effectsPerActorMax);
  world.at(5).finish('x');
  await world.begun(limits.effectsPerActorMax + 1);
  assert.equal(world.at(limits.effectsPerActorMax).name, `m${limits.effectsPerActorMax}`);
  assert.equal(host.engine.stats().effectsRunning, limits.effectsPerActorMax);
  host.engine.close();
});

test('engine effects - more unfinished effects than effectsPendingMax are refused', async () => {
  const { host } = setup();
  assert.equal(await codeOf(host.ask(address, 'startMany', { count: limits.effectsPendingMax + 1 })), 'overloaded');
  host.engine.close();
});

test('engine effects - after a crash: at-least runs again as attempt 2 with the same id, at-most ends as interrupted', async () => {
  const { cluster, world, host } = setup();
  await host.ask(address, 'start', { effect: 'atLeast', name: 'again' });
  await host.ask(address, 'start', { effect: 'atMost', name: 'once' });
  await world.begun(2);
  host.engine.close();
  const { host: next } = setup(2, cluster, world);
  assert.equal(world.at(0).context.signal.aborted, true);
  await next.ask(address, 'ended');
  await world.begun(3);
  assert.equal(world.at(2).name, 'again');
  assert.equal(world.at(2).context.attempt, 2);
  assert.equal(world.at(2).context.id, world.at(0).context.id);
  await quiet(cluster);
  assert.deepEqual(ended(cluster), ['ended {"name":"once","outcome":"interrupted"}']);
  world.at(2).finish('done');
  await quiet(cluster);
  assert.equal(unfinished(cluster), 0);
  assert.equal(world.runs.length, 3);
  next.engine.close();
});

test('engine effects - after a crash a lookup that finds the outcome ends the effect without running it', async () => {
  const { cluster, world, host } = setup();
  await host.ask(address, 'start', { effect: 'lookup', name: 'pay' });
  await world.begun(1);
  assert.deepEqual(world.lookups, []);
  host.engine.close();
  world.found = { ok: true, output: { answer: 'was paid' } };
  const { host: next } = setup(2, cluster, world);
  await next.ask(address, 'ended');
  await quiet(cluster);
  assert.deepEqual(ended(cluster), ['ended {"name":"pay","outcome":"was paid"}']);
  assert.equal(world.runs.length, 1);
  next.engine.close();
});

test('engine effects - after a crash a lookup that finds nothing runs the effect; one that fails is repeated and runs nothing meanwhile', async () => {
  const { cluster, world, host } = setup();
  await host.ask(address, 'start', { effect: 'lookup', name: 'pay' });
  await world.begun(1);
  host.engine.close();
  world.lookupFails = 2;
  const { host: next } = setup(2, cluster, world);
  await next.ask(address, 'ended');
  await quiet(cluster);
  assert.deepEqual([world.lookups.length, world.runs.length], [1, 1]);
  await cluster.clock.advance(limits.restartBaseMs);
  await quiet(cluster);
  assert.deepEqual([world.lookups.length, world.runs.length], [2, 1]);
  await cluster.clock.advance(2 * limits.restartBaseMs);
  await world.begun(2);
  assert.equal(world.at(1).context.attempt, 2);
  next.engine.close();
});

test('engine effects - an abort that was committed before a crash is kept by the next activation', async () => {
  const { cluster, world, host } = setup();
  await host.ask(address, 'start', { effect: 'atLeast', name: 'a' });
  await world.begun(1);
  const { faults } = cluster.stores.journal;
  faults.loseNextAck();
  assert.equal(await codeOf(host.ask(address, 'abort', { name: 'a' })), 'journal_unavailable');
  await host.ask(address, 'ended');
  await quiet(cluster);
  assert.equal(world.runs.length, 1);
  assert.deepEqual(ended(cluster), ['ended {"name":"a","outcome":"aborted"}']);
  host.engine.close();
});

test('engine effects - a bug in another handler does not disturb a running effect', async () => {
  const { cluster, world, host } = setup();
  await host.ask(address, 'start', { effect: 'atMost', name: 'a' });
  await world.begun(1);
  assert.equal(await codeOf(host.ask(address, 'fail')), 'internal_error');
  await cluster.clock.advance(limits.restartBaseMs);
  assert.equal(world.at(0).context.signal.aborted, false);
  world.at(0).finish('fine');
  await quiet(cluster);
  assert.deepEqual(ended(cluster), ['ended {"name":"a","outcome":"fine"}']);
  assert.equal(world.runs.length, 1);
  host.engine.close();
});

test('[G1] engine effects - a zombie\'s effects are aborted, its calls fenced, its new effects not begun', async () => {
  const { cluster, world, host: zombie } = setup();
  await zombie.ask(address, 'start', { effect: 'atLeast', name: 'a' });
  await world.begun(1);
  const { host: owner } = setup(2, cluster, world);
  await owner.ask(address, 'ended');
  await world.begun(2);
  assert.equal(await codeOf(zombie.ask(address, 'start', { effect: 'atLeast', name: 'b' })), 'fenced');
  assert.equal(world.at(0).context.signal.aborted, true);
  assert.equal(await codeOf(world.at(0).context.call('step', { text: 'x' })), 'fenced');
  await quiet(cluster);
  assert.deepEqual(world.runs.map((run) => run.name), ['a', 'a']);
  assert.equal(world.at(1).context.signal.aborted, false);
  zombie.engine.close();
  owner.engine.close();
});

test('engine effects - no effect begins past the lease although its intent was acknowledged', async () => {
  const { cluster, world, host } = setup();
  await host.ask(address, 'ended');
  host.engine.leaseUntil(cluster.clock.monotonic() + 100);
  const { faults } = cluster.stores.journal;
  faults.hold();
  const arrived = faults.appended();
  const outcome = host.ask(address, 'start', { effect: 'atLeast', name: 'a' }).then(() => 'answered', (error: unknown) => (error instanceof Error && 'code' in error ? error.code : error));
  await arrived;
  cluster.clock.jump(100);
  faults.release();
  await outcome;
  await quiet(cluster);
  assert.equal(world.runs.length, 0);
  host.engine.close();
});

test('engine effects - an effect\'s calls are turns of its actor, committed before they are answered', async () => {
  const { cluster, world, host } = setup();
  await host.ask(address, 'start', { effect: 'atLeast', name: 'a' });
  await world.begun(1);
  assert.deepEqual(await world.at(0).context.call('step', { text: 'one' }), {});
  assert.equal(domainOf(cluster, address).at(-1), 'step {"text":"one"}');
  assert.equal(await codeOf(world.at(0).context.call('nothing', {})), 'unknown_command');
  assert.equal(await codeOf(host.ask(address, 'step', { text: 'x' })), 'forbidden');
  host.engine.close();
});

test('engine effects - a done that always ends in a bug is given up after poisonTriesMax runs, and the actor lives', async () => {
  const { cluster, world, host } = setup();
  await host.ask(address, 'start', { effect: 'atLeast', name: 'poison' });
  await world.begun(1);
  world.at(0).finish('x');
  for (let i = 0; i < limits.poisonTriesMax + 1; i++) await cluster.clock.advance(limits.restartMaxMs);
  assert.equal(unfinished(cluster), 0);
  assert.equal(host.log.lines.filter((line) => line.text.startsWith('bug in a handler')).length, limits.poisonTriesMax);
  assert.deepEqual(await host.ask(address, 'ended'), { ended: 0 });
  assert.equal(world.runs.length, 1);
  host.engine.close();
});

test('engine effects - a done that refuses loses its events, the effect ends', async () => {
  const { cluster, world, host } = setup();
  await host.ask(address, 'start', { effect: 'atLeast', name: 'declining' });
  await world.begun(1);
  world.at(0).finish('x');
  await quiet(cluster);
  assert.equal(unfinished(cluster), 0);
  assert.deepEqual(ended(cluster), []);
  host.engine.close();
});
