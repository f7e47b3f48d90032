/** Putting an actor down from outside: only the system may, nothing that was said is lost, and what comes next begins anew from the journal. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { z } from 'zod';
import { defineActor } from '../../actors/runtime/define.ts';
import { passivateCommand } from '../../actors/runtime/passivate.ts';
import { codeOf, createCluster, createHost, domainOf, eventsOf, partitions } from '../harness/memory-host.ts';
import { partitionOf } from '../../contracts/subjects.ts';

const at = { org: 'o', type: 'sum', key: 'k' };
const sum = (run: (signal: AbortSignal) => Promise<number>) => defineActor({
  type: 'sum', events: { Added: z.strictObject({ n: z.int() }) }, initial: () => ({ sum: 0 }), apply: { Added: (state, { n }) => ({ sum: state.sum + n }) },
  effects: (effect) => ({
    later: effect({
      input: z.strictObject({}), output: z.strictObject({ n: z.int() }), once: 'at-least', run: async ({ signal }) => ({ n: await run(signal) }),
      done: (turn, outcome) => { if (outcome.ok) turn.emit('Added', outcome.output); },
    }),
  }),
  commands: (command) => ({
    add: command({
      input: z.strictObject({ n: z.int() }), output: z.strictObject({ sum: z.int() }),
      handle: (turn, { n }) => {
        turn.emit('Added', { n });
        return { sum: turn.state.sum };
      },
    }),
    begin: command({ input: z.strictObject({}), output: z.strictObject({}), handle: (turn) => { turn.effect('later', {}); return {}; } }),
  }),
});

test('passivate - an activation is put down after what has run, and the next message finds all of it', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [sum(async () => 0)] });
  assert.deepEqual(await host.ask(at, passivateCommand), { active: false }, 'nobody is made active for it');
  assert.deepEqual(eventsOf(cluster, at), []);
  const added = [1, 2, 3].map((n) => host.ask(at, 'add', { n }));
  const down = host.ask(at, passivateCommand);
  const outcomes = await Promise.allSettled(added);
  assert.deepEqual(await down, { active: true });
  assert.equal(host.engine.stats().activations, 0);
  const said = outcomes.filter(({ status }) => status === 'fulfilled').length;
  // What was not taken any more may be asked again at once.
  for (const outcome of outcomes) if (outcome.status === 'rejected') assert.equal(Object(outcome.reason).entry.retry, 'safe');
  assert.equal(domainOf(cluster, at).length, said);
  const before = domainOf(cluster, at).map((line) => Number(/"n":(\d+)/.exec(line)?.[1])).reduce((all, n) => all + n, 0);
  assert.deepEqual(await host.ask(at, 'add', { n: 10 }), { sum: before + 10 });
  host.engine.close();
});

test('passivate - an effect that runs is aborted and taken up again by the next activation', async () => {
  const cluster = createCluster();
  const begun: AbortSignal[] = [];
  let finish: ((n: number) => void) | undefined;
  let started = Promise.withResolvers<void>();
  const host = createHost(cluster, {
    definitions: [sum((signal) => new Promise((resolve) => {
      begun.push(signal);
      finish = resolve;
      started.resolve();
    }))],
  });
  await host.ask(at, 'begin');
  await started.promise;
  assert.deepEqual(await host.ask(at, passivateCommand), { active: true });
  assert.equal(begun[0]?.aborted, true);
  started = Promise.withResolvers<void>();
  await host.ask(at, 'add', { n: 1 });
  await started.promise;
  finish?.(5);
  while (domainOf(cluster, at).length < 2) await new Promise((resolve) => { setImmediate(resolve); });
  assert.deepEqual(domainOf(cluster, at), ['Added {"n":1}', 'Added {"n":5}']);
  assert.equal(begun.length, 2);
  host.engine.close();
});

test('passivate - nobody but the system may, and only where the actor is', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [sum(async () => 0)] });
  await host.ask(at, 'add', { n: 1 });
  for (const principal of [{ kind: 'integrator', org: 'o' }, { kind: 'user', sub: 'u', org: 'o', scopes: [] }, { kind: 'self' }] as const) {
    assert.equal(await codeOf(host.ask(at, passivateCommand, {}, { principal })), 'unknown_command');
  }
  assert.equal(host.engine.stats().activations, 1);
  const elsewhere = createHost(createCluster(), { definitions: [sum(async () => 0)], hold: Array.from({ length: partitions }, (_, n) => n).filter((n) => n !== partitionOf(at, partitions)) });
  assert.equal(await codeOf(elsewhere.ask(at, passivateCommand)), 'not_owner');
  for (const one of [host, elsewhere]) one.engine.close();
});
