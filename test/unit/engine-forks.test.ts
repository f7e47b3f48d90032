/** Forks on the real engine: they begin with the state of an event of their origin, copy nothing, and are folded again by any host. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { z } from 'zod';
import { compile } from '../../actors/runtime/compile.ts';
import { decodeCommit } from '../../actors/runtime/commit.ts';
import { defineActor } from '../../actors/runtime/define.ts';
import { coreAt } from '../../actors/runtime/fork.ts';
import { replay } from '../../actors/runtime/replay.ts';
import { refuse } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { codeOf, createCluster, createHost, domainOf, eventsOf, partitions, subjectOf } from '../harness/memory-host.ts';

/** Keeps a list of notes; each waits for an effect that never ends, so that a fork could inherit one. */
const diary = defineActor({
  type: 'diary',
  events: { noted: z.object({ text: z.string() }), branched: z.object({ name: z.string() }) },
  initial: () => ({ notes: [] as string[], branch: 'main' }),
  apply: { noted: (state, { text }) => ({ ...state, notes: [...state.notes, text] }), branched: (state, { name }) => ({ ...state, branch: name }) },
  effects: (effect) => ({
    wait: effect({
      input: z.strictObject({}), output: z.strictObject({}), once: 'at-least',
      run: ({ signal }) => new Promise((_resolve, reject) => { signal.addEventListener('abort', () => { reject(new Error('aborted')); }); }), done: () => undefined,
    }),
  }),
  commands: (command) => ({
    note: command({
      input: z.strictObject({ text: z.string(), wait: z.boolean().optional() }), output: z.object({ notes: z.int() }),
      handle: (turn, { text, wait }) => {
        turn.emit('noted', { text });
        if (wait === true) turn.effect('wait', {});
        return { notes: turn.state.notes.length };
      },
    }),
    read: command({ input: z.strictObject({}), output: z.object({ notes: z.array(z.string()), branch: z.string() }), handle: ({ state }) => state }),
    branch: command({
      input: z.strictObject({ from: z.string(), at: z.int(), name: z.string() }), output: z.object({ notes: z.int() }),
      fork: ({ from, at }) => ({ key: from, number: at }),
      handle: (turn, { name }) => {
        if (turn.state.branch !== 'main' && turn.state.branch === name) throw refuse('exists');
        if (name === 'refused') throw refuse('no');
        turn.emit('branched', { name });
        return { notes: turn.state.notes.length };
      },
    }),
  }),
});
const at = (key: string) => ({ org: 'acme', type: 'diary', key });
const source = (cluster: ReturnType<typeof createCluster>) => ({ journal: cluster.stores.journal, partitions });

const begun = async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [diary] });
  // Numbers: 1 the epoch, 2-4 a note with its effect's intent between.
  await host.ask(at('a'), 'note', { text: 'one' });
  await host.ask(at('a'), 'note', { text: 'two', wait: true });
  await host.ask(at('a'), 'note', { text: 'three' });
  return { cluster, host };
};
const numberOf = (cluster: ReturnType<typeof createCluster>, text: string): number => eventsOf(cluster, at('a')).findIndex((event) => event.d['text'] === text) + 1;

test('forks - one begins with the state of the event it names, then the two go their own ways', async () => {
  const { cluster, host } = await begun();
  assert.deepEqual(await host.ask(at('b'), 'branch', { from: 'a', at: numberOf(cluster, 'two'), name: 'b' }), { notes: 2 });
  await host.ask(at('b'), 'note', { text: 'other' });
  await host.ask(at('a'), 'note', { text: 'four' });
  assert.deepEqual(await host.ask(at('b'), 'read', {}), { notes: ['one', 'two', 'other'], branch: 'b' });
  assert.deepEqual(await host.ask(at('a'), 'read', {}), { notes: ['one', 'two', 'three', 'four'], branch: 'main' });
  // Nothing of the past is copied, and no effect came along.
  assert.deepEqual(eventsOf(cluster, at('b')).map(({ k }) => k), ['$epoch', '$forked', 'branched', 'noted']);
  const ids = [...eventsOf(cluster, at('a')).slice(0, numberOf(cluster, 'two')), ...eventsOf(cluster, at('b'))].map(({ id }) => id);
  assert.deepEqual(ids.slice(numberOf(cluster, 'two') + 1), ids.slice(numberOf(cluster, 'two') + 1).toSorted());
  host.engine.close();
});

test('forks - another host folds a fork, and a fork of a fork, through their origins, from zero and from a snapshot', async () => {
  const { cluster, host } = await begun();
  await host.ask(at('b'), 'branch', { from: 'a', at: numberOf(cluster, 'one'), name: 'b' });
  await host.ask(at('b'), 'note', { text: 'bb' });
  await host.ask(at('c'), 'branch', { from: 'b', at: eventsOf(cluster, at('b')).length, name: 'c' });
  await host.ask(at('c'), 'note', { text: 'cc' });
  host.engine.close();
  const next = createHost(cluster, { definitions: [diary], epoch: 2 });
  assert.deepEqual(await next.ask(at('c'), 'read', {}), { notes: ['one', 'bb', 'cc'], branch: 'c' });
  for (let i = 0; i < limits.snapshotEvery; i++) await next.ask(at('c'), 'note', { text: `${i}` });
  next.engine.close();
  const third = createHost(cluster, { definitions: [diary], epoch: 3 });
  const { notes } = await third.ask(at('c'), 'read', {}) as { notes: string[] };
  assert.deepEqual(notes.slice(0, 4), ['one', 'bb', 'cc', '0']);
  third.engine.close();
  const core = await coreAt(source(cluster), compile(diary), at('c'), 3);
  assert.deepEqual(core.state, { notes: ['one', 'bb'], branch: 'c' });
  assert.equal(core.effects, undefined);
  assert.throws(() => replay(diary, at('c'), cluster.stores.journal.messages(subjectOf(at('c')))), { code: 'journal_unreadable' });
});

test('forks - a refusal leaves nothing, an actor with a past is not forked over, an event that is not there is none to fork at', async () => {
  const { cluster, host } = await begun();
  assert.equal(await codeOf(host.ask(at('b'), 'branch', { from: 'a', at: 3, name: 'refused' })), 'no');
  assert.deepEqual(eventsOf(cluster, at('b')), []);
  assert.deepEqual(await host.ask(at('b'), 'read', {}), { notes: [], branch: 'main' });
  await host.ask(at('b'), 'branch', { from: 'a', at: 3, name: 'b' });
  assert.equal(await codeOf(host.ask(at('b'), 'branch', { from: 'a', at: 2, name: 'b' })), 'exists');
  assert.equal(await codeOf(host.ask(at('d'), 'branch', { from: 'a', at: 1_000, name: 'd' })), 'sequence_retired');
  assert.equal(await codeOf(host.ask(at('d'), 'branch', { from: 'nobody', at: 1, name: 'd' })), 'sequence_retired');
  assert.deepEqual(domainOf(cluster, at('b')), ['branched {"name":"b"}']);
  host.engine.close();
});

test('forks - many at once make one', async () => {
  const { cluster, host } = await begun();
  const outcomes = await Promise.allSettled(Array.from({ length: 8 }, () => host.ask(at('b'), 'branch', { from: 'a', at: 3, name: 'b' })));
  assert.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, 1);
  assert.equal(eventsOf(cluster, at('b')).filter(({ k }) => k === '$forked').length, 1);
  const first = decodeCommit(cluster.stores.journal.messages(subjectOf(at('b')))[0]?.data ?? new Uint8Array());
  assert.equal(first.n, 1);
  host.engine.close();
});

test('forks - of forks have an end', async () => {
  const { cluster, host } = await begun();
  let from = 'a';
  for (let depth = 0; depth < limits.forkDepthMax; depth++) {
    await host.ask(at(`f${depth}`), 'branch', { from, at: 3, name: `f${depth}` });
    from = `f${depth}`;
  }
  // The origin that is needed is one deeper each time.
  const last = await Promise.allSettled([host.ask(at('g'), 'branch', { from, at: 3, name: 'g' }), host.ask(at('h'), 'branch', { from: 'g', at: 3, name: 'h' })]);
  assert.ok(last.some((outcome) => outcome.status === 'rejected'));
  assert.ok(cluster.stores.journal.messages(subjectOf(at('h'))).length === 0);
  host.engine.close();
});
