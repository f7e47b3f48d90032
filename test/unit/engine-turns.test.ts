/** Turns: what is validated, what is committed, what is rolled back, what is refused when there is too much. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { z } from 'zod';
import { coded, refuse } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { decodeCommit } from '../../actors/runtime/commit.ts';
import { defineActor } from '../../actors/runtime/define.ts';
import { createEngine } from '../../actors/runtime/engine.ts';
import { counter } from '../actors/counter/counter.ts';
import { codeOf, commitsOf, createCluster, createHost, domainOf, eventsOf, subjectOf } from '../harness/memory-host.ts';
import { silent } from '../harness/log.ts';

const address = { org: 'acme', type: 'counter', key: 'a' };

/** An actor whose commands misbehave. */
let kept: (() => void) | undefined;
const odd = defineActor({
  type: 'odd',
  events: { noted: z.object({ text: z.string() }), tagged: z.object({ tag: z.string().max(3) }) },
  initial: () => ({ notes: 0 }),
  apply: {
    noted: (state, e) => {
      if (e.text === 'unfoldable') throw new RangeError('apply failed');
      return { notes: state.notes + 1 };
    },
    tagged: (state) => state,
  },
  commands: (command) => ({
    note: command({
      input: z.strictObject({ text: z.string() }), output: z.object({ notes: z.int() }),
      handle: (turn, { text }) => {
        turn.emit('noted', { text });
        return { notes: turn.state.notes };
      },
    }),
    noteThenThrow: command({
      input: z.strictObject({ bug: z.boolean() }), output: z.object({}),
      handle: (turn, { bug }) => {
        turn.emit('noted', { text: 'x' });
        throw bug ? new RangeError('secret detail') : refuse('not_today', 'Come back.', { day: 2 });
      },
    }),
    badOutput: command({
      input: z.strictObject({}), output: z.object({ n: z.int() }),
      handle: (turn) => {
        turn.emit('noted', { text: 'x' });
        return { n: 1.5 };
      },
    }),
    badEvent: command({
      input: z.strictObject({}), output: z.object({}),
      handle: (turn) => {
        turn.emit('tagged', { tag: 'too long' });
        return {};
      },
    }),
    keepTurn: command({
      input: z.strictObject({}), output: z.object({}),
      handle: (turn) => {
        kept = () => { turn.emit('noted', { text: 'late' }); };
        return {};
      },
    }),
    count: command({ input: z.strictObject({}), output: z.object({ notes: z.int() }), handle: (turn) => ({ notes: turn.state.notes }) }),
    forSystem: command({ input: z.strictObject({}), output: z.object({}), access: 'system', handle: () => ({}) }),
    forSelf: command({ input: z.strictObject({}), output: z.object({}), access: 'self', handle: () => ({}) }),
  }),
  mailboxMax: 4,
});
const oddAddress = { org: 'acme', type: 'odd', key: 'o' };

test('engine turns - a command is answered with its state after the commit, and the journal holds it', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [counter] });
  assert.deepEqual(await host.ask(address, 'add', { by: 2 }), { count: 2 });
  assert.deepEqual(await host.ask(address, 'add', { by: 3 }), { count: 5 });
  assert.deepEqual(await host.ask(address, 'read'), { count: 5 });
  assert.deepEqual(domainOf(cluster, address), ['added {"by":2}', 'added {"by":3}']);
  host.engine.close();
});

test('engine turns - asking after an actor without a journal writes nothing', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [counter] });
  assert.deepEqual(await host.ask(address, 'read'), { count: 0 });
  assert.equal(cluster.stores.journal.counts.appends, 0);
  await host.ask(address, 'add', { by: 1 });
  assert.deepEqual(eventsOf(cluster, address).map((event) => event.k), ['$epoch', 'added']);
  assert.equal(cluster.stores.journal.counts.appends, 1);
  host.engine.close();
});

test('engine turns - a refusal reaches the caller with code and details and commits nothing', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [odd] });
  await assert.rejects(host.ask(oddAddress, 'noteThenThrow', { bug: false }), { code: 'not_today', message: 'Come back.', details: { day: 2 } });
  assert.deepEqual(await host.ask(oddAddress, 'count'), { notes: 0 });
  assert.deepEqual(domainOf(cluster, oddAddress), []);
  assert.equal(host.log.lines.length, 0);
  host.engine.close();
});

test('engine turns - a bug commits nothing, shows nothing of itself, and the actor is served again after the pause', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [odd] });
  await host.ask(oddAddress, 'note', { text: 'first' });
  const error: unknown = await host.ask(oddAddress, 'noteThenThrow', { bug: true }).catch((e: unknown) => e);
  assert.ok(error instanceof Error && !error.message.includes('secret'));
  assert.equal('code' in error && error.code, 'internal_error');
  const line = host.log.lines.find((l) => l.level === 'error');
  const details = 'details' in error ? error.details : undefined;
  assert.ok(line !== undefined && typeof details === 'object' && details !== null && 'correlation_id' in details);
  assert.ok(typeof line.fields === 'object' && line.fields !== null && 'correlation_id' in line.fields && line.fields.correlation_id === details.correlation_id);
  const waiting = host.ask(oddAddress, 'count');
  await cluster.clock.advance(limits.restartBaseMs);
  assert.deepEqual(await waiting, { notes: 1 });
  assert.deepEqual(eventsOf(cluster, oddAddress).map((event) => event.k), ['$epoch', 'noted', '$epoch']);
  host.engine.close();
});

test('engine turns - turns before a bug are committed and answered, those after it wait and are served', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [odd] });
  await host.ask(oddAddress, 'count');
  const before = host.ask(oddAddress, 'note', { text: 'before' });
  const bug = codeOf(host.ask(oddAddress, 'noteThenThrow', { bug: true }));
  const after = host.ask(oddAddress, 'note', { text: 'after' });
  assert.deepEqual(await before, { notes: 1 });
  assert.equal(await bug, 'internal_error');
  await cluster.clock.advance(limits.restartBaseMs);
  assert.deepEqual(await after, { notes: 2 });
  host.engine.close();
});

test('engine turns - the pause before a restart doubles with each bug up to its bound', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [odd] });
  await host.ask(oddAddress, 'note', { text: 'x' });
  const epochs = (): number => eventsOf(cluster, oddAddress).filter((event) => event.k === '$epoch').length;
  for (let n = 0; n < 9; n++) {
    assert.equal(await codeOf(host.ask(oddAddress, 'noteThenThrow', { bug: true })), 'internal_error');
    const pauseMs = Math.min(limits.restartBaseMs * 2 ** n, limits.restartMaxMs);
    const served = host.ask(oddAddress, 'count');
    await cluster.clock.advance(pauseMs - 1);
    assert.equal(epochs(), n + 1);
    await cluster.clock.advance(1);
    await served;
    assert.equal(epochs(), n + 2);
  }
  host.engine.close();
});

for (const command of ['badOutput', 'badEvent']) {
  test(`engine turns - ${command === 'badOutput' ? 'an output' : 'an event'} that does not match its schema is a bug and commits nothing`, async () => {
    const cluster = createCluster();
    const host = createHost(cluster, { definitions: [odd] });
    assert.equal(await codeOf(host.ask(oddAddress, command)), 'internal_error');
    assert.equal(commitsOf(cluster, oddAddress).length, 0);
    host.engine.close();
  });
}

test('engine turns - an event that cannot be applied commits nothing', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [odd] });
  assert.equal(await codeOf(host.ask(oddAddress, 'note', { text: 'unfoldable' })), 'internal_error');
  assert.equal(commitsOf(cluster, oddAddress).length, 0);
  host.engine.close();
});

test('engine turns - a turn kept past its end refuses to emit', async () => {
  const host = createHost(createCluster(), { definitions: [odd] });
  await host.ask(oddAddress, 'keepTurn');
  assert.throws(() => { kept?.(); }, /after its end/);
  host.engine.close();
});

test('engine turns - unknown type, unknown command and names of the prototype are refused', async () => {
  const host = createHost(createCluster(), { definitions: [counter] });
  assert.equal(await codeOf(host.ask({ ...address, type: 'nothing' }, 'read')), 'unknown_actor_type');
  assert.equal(await codeOf(host.ask(address, 'constructor')), 'unknown_command');
  assert.equal(await codeOf(host.ask(address, '__proto__')), 'unknown_command');
  host.engine.close();
});

test('engine turns - an input with an unknown or ill-typed field is refused before the actor is activated', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [counter] });
  assert.equal(await codeOf(host.ask(address, 'add', { by: 1, more: 2 })), 'validation_error');
  assert.equal(await codeOf(host.ask(address, 'add', { by: '1' })), 'validation_error');
  assert.equal(host.engine.stats().activations, 0);
  host.engine.close();
});

test('engine turns - each kind of principal reaches the commands its access allows, and no other', async () => {
  const host = createHost(createCluster(), { definitions: [odd] });
  const kinds = { user: { kind: 'user', sub: 's', org: 'acme', scopes: [] }, integrator: { kind: 'integrator', org: 'acme' }, system: { kind: 'system' }, self: { kind: 'self' } } as const;
  const reached = async (principal: (typeof kinds)[keyof typeof kinds], command: string): Promise<boolean> =>
    host.ask(oddAddress, command, {}, { principal }).then(() => true, (error: unknown) => {
      assert.ok(error instanceof Error && 'code' in error && error.code === 'forbidden');
      return false;
    });
  const table: Record<string, boolean[]> = {};
  for (const [kind, principal] of Object.entries(kinds)) {
    table[kind] = [await reached(principal, 'count'), await reached(principal, 'forSystem'), await reached(principal, 'forSelf')];
  }
  assert.deepEqual(table, { user: [true, false, false], integrator: [true, false, false], system: [true, true, false], self: [true, true, true] });
  host.engine.close();
});

test('[G5] engine turns - a full mailbox refuses the next message and serves those it took', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [odd] });
  const taken = Array.from({ length: 4 }, (_, i) => host.ask(oddAddress, 'note', { text: `${i}` }));
  assert.equal(host.engine.stats().mailbox, 4);
  assert.equal(await codeOf(host.ask(oddAddress, 'note', { text: 'x' })), 'mailbox_full');
  assert.deepEqual(await Promise.all(taken), [1, 2, 3, 4].map((notes) => ({ notes })));
  assert.equal(host.engine.stats().mailbox, 0);
  host.engine.close();
});

test('engine turns - answers that wait for a commit count as waiting too', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [odd] });
  await host.ask(oddAddress, 'count');
  cluster.stores.journal.faults.hold();
  const taken = Array.from({ length: 4 }, (_, i) => host.ask(oddAddress, 'note', { text: `${i}` }));
  assert.equal(await codeOf(host.ask(oddAddress, 'count')), 'mailbox_full');
  cluster.stores.journal.faults.release();
  await Promise.all(taken);
  host.engine.close();
});

test('engine turns - a turn that fits no commit, not even packed, is refused, and the actor goes on', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [odd] });
  assert.equal(await codeOf(host.ask(oddAddress, 'note', { text: 'é'.repeat(limits.turnEventsMaxBytes / 2) })), 'commit_too_large');
  // Random bytes do not get smaller.
  assert.equal(await codeOf(host.ask(oddAddress, 'note', { text: randomBytes(limits.packedMaxBytes).toString('base64').slice(0, limits.turnEventsMaxBytes - 1_024) })), 'commit_too_large');
  assert.deepEqual(await host.ask(oddAddress, 'note', { text: 'small' }), { notes: 1 });
  host.engine.close();
});

test('engine turns - a turn larger than a plain commit is packed, found again by the next activation, and shares its commit with none', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [odd] });
  await host.ask(oddAddress, 'count');
  cluster.stores.journal.faults.hold();
  const text = randomBytes(limits.commitMaxBytes * 0.75).toString('base64');
  assert.ok(text.length >= limits.commitMaxBytes);
  const answers = Promise.all(['a', text, 'b'].map((note) => host.ask(oddAddress, 'note', { text: note })));
  cluster.stores.journal.faults.release();
  await answers;
  const messages = cluster.stores.journal.messages(subjectOf(oddAddress));
  assert.ok(messages.every(({ data }) => data.byteLength <= limits.packedMaxBytes));
  const large = messages.map(({ data }) => decodeCommit(data)).find(({ ev }) => ev.some(({ d }) => d['text'] === text));
  assert.equal(large?.ev.filter(({ k }) => !k.startsWith('$')).length, 1);
  host.engine.close();
  const next = createHost(cluster, { definitions: [odd] });
  assert.deepEqual(await next.ask(oddAddress, 'note', { text: 'c' }), { notes: 4 });
  next.engine.close();
});

test('engine turns - large turns are spread over commits that each stay below the bound', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [odd] });
  await host.ask(oddAddress, 'count');
  cluster.stores.journal.faults.hold();
  const text = 'x'.repeat(Math.floor(limits.commitMaxBytes * 0.6));
  const answers = Promise.all(Array.from({ length: 4 }, () => host.ask(oddAddress, 'note', { text })));
  cluster.stores.journal.faults.release();
  assert.deepEqual(await answers, [1, 2, 3, 4].map((notes) => ({ notes })));
  const messages = cluster.stores.journal.messages(subjectOf(oddAddress));
  assert.equal(messages.length, 4);
  for (const message of messages) assert.ok(message.data.byteLength <= limits.commitMaxBytes);
  host.engine.close();
});

test('engine turns - a message past its deadline or given up by its caller gets no turn', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [counter] });
  assert.equal(await codeOf(host.ask(address, 'add', { by: 1 }, { deadlineAt: cluster.clock.monotonic() })), 'deadline_exceeded');
  assert.equal(await codeOf(host.ask(address, 'add', { by: 1 }, { signal: AbortSignal.abort() })), 'aborted');
  assert.equal(host.engine.stats().activations, 0);
  const controller = new AbortController();
  const queued = [
    codeOf(host.ask(address, 'add', { by: 1 }, { signal: controller.signal })),
    host.ask(address, 'add', { by: 2 }),
  ];
  controller.abort();
  assert.deepEqual(await Promise.all(queued), ['aborted', { count: 2 }]);
  assert.deepEqual(domainOf(cluster, address), ['added {"by":2}']);
  host.engine.close();
});

test('engine turns - those who wait for a commit past their deadline are told so by the sweep', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [counter] });
  await host.ask(address, 'read');
  cluster.stores.journal.faults.hold();
  const late = codeOf(host.ask(address, 'add', { by: 1 }, { deadlineAt: cluster.clock.monotonic() + 10 }));
  const patient = host.ask(address, 'add', { by: 1 });
  await cluster.clock.advance(limits.sweepMs);
  assert.equal(await late, 'deadline_exceeded');
  cluster.stores.journal.faults.release();
  assert.deepEqual(await patient, { count: 2 });
  host.engine.close();
});

test('engine turns - two definitions of one type, or an event JSON cannot hold, are refused at start', () => {
  const cluster = createCluster();
  const make = (...definitions: Parameters<typeof createHost>[1]['definitions'][number][]): void => {
    createEngine({
      definitions, partitions: 1, stores: cluster.stores, clock: cluster.clock, arm: cluster.clock.arm, log: silent, host: 'h',
      sender: { ask: () => Promise.reject(coded('no_owner')), tell: () => Promise.reject(coded('no_owner')) },
    }).close();
  };
  make(counter);
  assert.throws(() => { make(counter, counter); }, /two actors of type counter/);
  const dated = defineActor({
    type: 'dated', events: { on: z.object({ list: z.array(z.object({ at: z.date() })) }) }, initial: () => 0, apply: { on: (state) => state },
    commands: () => ({}),
  });
  assert.throws(() => { make(dated); }, /event on: a date cannot be journaled/);
});
