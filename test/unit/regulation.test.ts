/** Regulation as a fold and on the real engine: modes with their hysteresis in event time, gates, readings, the trust score. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import fc from 'fast-check';
import { gatesOf, gatingOf, judge } from '../../actors/regulation/gates.ts';
import { homeostasisOf, trustOf } from '../../actors/regulation/readings.ts';
import { regulation } from '../../actors/regulation/regulation.ts';
import { fold, initialRegulation, modeDue, type RegulationState } from '../../actors/regulation/state.ts';
import { regulationAddress } from '../../contracts/deployment.ts';
import {
  gating as gatingSchema, homeostasis, operations, regulationCommands, regulationEvents, type Decision, type GateAnswer, type Mode, type Observation, type Operation,
} from '../../contracts/regulation.ts';
import { actorHost, type ActorHost } from '../harness/actor-host.ts';
import { runSeed } from '../harness/seed.ts';

const address = regulationAddress('org_01jd0000000000000000000001', 'dep_01jd0000000000000000000001');
const minute = 60_000;
const day = 86_400_000;
const t0 = Date.UTC(2026, 0, 1);

/** Observations folded as the actor would: the mode follows what is due. */
const folded = (observations: readonly Observation[], from: RegulationState = initialRegulation()): RegulationState => observations.reduce((state, seen) => {
  const next = fold.Observed(state, seen);
  const to = modeDue(next);
  return to === next.mode ? next : fold.ModeChanged(next, { from: next.mode, to, ratio: null, at: next.now });
}, from);

let nth = 0;
const spent = (at: number, cost_cents: number): Observation => ({ kind: 'spent', id: `s${nth++}`, at, cost_cents });
const balance = (at: number, cents: number): Observation => ({ kind: 'balance', id: `b${nth++}`, at, cents });
const turn = (at: number, ok: boolean, more: Partial<Extract<Observation, { kind: 'turn' }>> = {}): Observation =>
  ({ kind: 'turn', id: `t${nth++}`, at, ok, latency_ms: 100, cost_cents: 0, context: 0, counts: true, ...more });
const tool = (at: number, ok: boolean): Observation => ({ kind: 'tool', id: `c${nth++}`, at, ok, latency_ms: 10 });

/** The mode after a balance was there for so long, with 100 cents burned. */
const modeAfter = (cents: number, ms: number): Mode => folded([spent(t0, 100), balance(t0, 1_000), balance(t0, cents), balance(t0 + ms, cents)]).mode;

test('regulation - [REG-006] balance over the burn of 30 days decides: 2 Sovereign, 1 Conserving, above 0 Hustle, nothing Hibernate', () => {
  const settled = [200, 199, 100, 99, 1, 0, -5].map((cents) => modeAfter(cents, 6 * minute));
  assert.deepEqual(settled, ['Sovereign', 'Conserving', 'Conserving', 'Hustle', 'Hustle', 'Hibernate', 'Hibernate']);
  // Spending of more than 30 days ago is none.
  const later = folded([spent(t0, 1_000), balance(t0, 100), balance(t0 + 6 * minute, 100)]);
  assert.equal(later.mode, 'Hustle');
  assert.equal(folded([balance(t0 + 31 * day, 100), balance(t0 + 31 * day + 6 * minute, 100)], later).mode, 'Sovereign');
});

test('regulation - [REG-007] without any burn the ratio is infinite: Sovereign while anything is left', () => {
  assert.equal(folded([balance(t0, 1), balance(t0 + day, 1)]).mode, 'Sovereign');
  assert.equal(folded([balance(t0, 0)]).mode, 'Hibernate');
  assert.equal(initialRegulation().mode, 'Sovereign', 'as long as no balance is known');
});

test('regulation - [REG-008] a mode changes after five minutes of event time past the threshold, not before', () => {
  assert.equal(modeAfter(150, 5 * minute - 1), 'Sovereign');
  assert.equal(modeAfter(150, 5 * minute), 'Conserving');
  // On the way back as well.
  const low = folded([spent(t0, 100), balance(t0, 50), balance(t0 + 10 * minute, 50)]);
  assert.equal(low.mode, 'Hustle');
  assert.equal(folded([balance(t0 + 20 * minute, 500), balance(t0 + 24 * minute, 500)], low).mode, 'Hustle');
  assert.equal(folded([balance(t0 + 20 * minute, 500), balance(t0 + 25 * minute, 500)], low).mode, 'Sovereign');
});

test('regulation - [REG-008] a ratio that moves between two lower modes has still left the upper one', () => {
  const seen = [spent(t0, 100), balance(t0, 150), balance(t0 + 2 * minute, 50), balance(t0 + 4 * minute, 150), balance(t0 + 5 * minute, 150)];
  assert.equal(folded(seen).mode, 'Conserving');
});

test('regulation - [REG-009] a ratio that crosses a threshold and returns within five minutes changes nothing, however often', () => {
  let state = folded([spent(t0, 100), balance(t0, 300)]);
  for (let i = 1; i < 50; i++) {
    state = folded([balance(t0 + i * 6 * minute, 150), balance(t0 + i * 6 * minute + 4 * minute, 250)], state);
    assert.equal(state.mode, 'Sovereign');
  }
  assert.deepEqual(state.modes, []);
});

test('regulation - [REG-010] Hibernate takes effect at once, and is left after five minutes', () => {
  const out = folded([spent(t0, 100), balance(t0, 0)]);
  assert.equal(out.mode, 'Hibernate');
  assert.equal(folded([balance(t0 + minute, 500), balance(t0 + 6 * minute - 1, 500)], out).mode, 'Hibernate');
  assert.equal(folded([balance(t0 + minute, 500), balance(t0 + 6 * minute, 500)], out).mode, 'Sovereign');
});

const arbitrary: fc.Arbitrary<Observation> = fc.oneof(
  fc.record({ kind: fc.constant('turn' as const), id: fc.string({ minLength: 1, maxLength: 4 }), at: fc.integer({ min: t0, max: t0 + 40 * day }), ok: fc.boolean(), latency_ms: fc.nat(60_000), cost_cents: fc.nat(500), context: fc.double({ min: 0, max: 1, noNaN: true }), counts: fc.boolean() }),
  fc.record({ kind: fc.constant('tool' as const), id: fc.string({ minLength: 1, maxLength: 4 }), at: fc.integer({ min: t0, max: t0 + 40 * day }), ok: fc.boolean(), latency_ms: fc.nat(60_000) }),
  fc.record({ kind: fc.constant('spent' as const), id: fc.string({ minLength: 1, maxLength: 4 }), at: fc.integer({ min: t0, max: t0 + 40 * day }), cost_cents: fc.nat(500) }),
  fc.record({ kind: fc.constant('balance' as const), id: fc.string({ minLength: 1, maxLength: 4 }), at: fc.integer({ min: t0, max: t0 + 40 * day }), cents: fc.integer({ min: -100, max: 5_000 }) }),
);

test('regulation - [REG-004] any split of the events into snapshot and tail gives the same state, byte for byte, and readings are finite and of their schema', () => {
  fc.assert(fc.property(fc.array(arbitrary, { maxLength: 80 }), fc.nat(80), (all, at) => {
    const whole = folded(all);
    // A snapshot is JSON.
    const tail = folded(all.slice(at), JSON.parse(JSON.stringify(folded(all.slice(0, at)))) as RegulationState);
    assert.equal(JSON.stringify(tail), JSON.stringify(whole));
    homeostasis.parse(homeostasisOf(whole));
    assert.ok(JSON.stringify(homeostasisOf(whole)).length > 0 && !JSON.stringify(homeostasisOf(whole)).includes('null'));
  }), { seed: runSeed(), numRuns: 300 });
});

test('regulation - [REG-012] memory pressure by the context in use: normal, elevated from 0.60, critical from 0.85', () => {
  const pressure = (context: number): string => homeostasisOf(folded([turn(t0, true, { context })])).cognitive.memory_pressure;
  assert.deepEqual([0, 0.599, 0.6, 0.849, 0.85, 1].map(pressure), ['normal', 'normal', 'elevated', 'elevated', 'critical', 'critical']);
});

test('regulation - [REG-001] [REG-002] [REG-003] [REG-033] readings come from what happened', () => {
  const quiet = homeostasisOf(initialRegulation());
  assert.deepEqual(quiet, {
    operational: { health: 1, uptime_seconds: 0, error_rate: 0, latency_p95_ms: 0 },
    cognitive: { context_utilization: 0, memory_pressure: 'normal', task_completion_rate: 1 },
    economic: { mode: 'Sovereign', budget_remaining: 0, burn_rate_per_hour: 0, runway_hours: 87_600 },
  });
  const seen = [
    balance(t0, 1_000), turn(t0, true, { cost_cents: 10, latency_ms: 200, context: 0.25 }), turn(t0 + minute, false, { latency_ms: 900 }),
    tool(t0 + 2 * minute, true), tool(t0 + 3 * minute, true), turn(t0 + 120 * minute, false, { counts: false, cost_cents: 30, context: 0.5 }),
  ];
  const at3 = homeostasisOf(folded(seen.slice(0, 5)));
  assert.equal(at3.operational.error_rate, 0.25);
  assert.equal(at3.operational.latency_p95_ms, 900);
  assert.equal(at3.operational.uptime_seconds, 180);
  assert.equal(at3.cognitive.task_completion_rate, 0.5);
  assert.equal(at3.economic.budget_remaining, 1_000);
  const later = homeostasisOf(folded(seen));
  assert.equal(later.cognitive.context_utilization, 0.5);
  assert.equal(later.operational.error_rate, 0, 'an hour later the outcomes count no more, and a cancelled turn never did');
  assert.equal(later.economic.burn_rate_per_hour, 20, '40 cents in two hours');
  assert.equal(later.economic.runway_hours, 50);
  assert.equal(homeostasisOf(folded([balance(t0, 1_000_000_000), spent(t0, 1)])).economic.runway_hours, 87_600);
  assert.equal(homeostasisOf(folded([spent(t0, 1), balance(t0, -5)])).economic.runway_hours, 0);
});

const inMode = (mode: Mode): RegulationState => ({ ...initialRegulation(), mode });
const table = (state: RegulationState): Record<Operation, Decision> => ({ ...gatesOf(state) });
const allow = Object.fromEntries(operations.map((name) => [name, 'allow'])) as Record<Operation, Decision>;

test('regulation - [REG-014] [REG-015] [REG-016] Sovereign: all seven gates allow, and there are exactly these seven', () => {
  assert.deepEqual(table(inMode('Sovereign')), allow);
  assert.deepEqual(Object.keys(gatesOf(inMode('Sovereign'))).toSorted(), ['cheap_model', 'expensive_model', 'file_write', 'long_context', 'speculative_research', 'tool_execution', 'web_search']);
});
test('regulation - [REG-017] Conserving: expensive models and long context warn, speculation is blocked', () => {
  assert.deepEqual(table(inMode('Conserving')), { ...allow, expensive_model: 'warn', long_context: 'warn', speculative_research: 'block' });
});
test('regulation - [REG-018] Hustle: expensive models, speculation and long context are blocked, tools and web search warn', () => {
  assert.deepEqual(table(inMode('Hustle')), { ...allow, expensive_model: 'block', speculative_research: 'block', long_context: 'block', tool_execution: 'warn', web_search: 'warn' });
});
test('regulation - [REG-019] Hibernate: everything is blocked', () => {
  assert.deepEqual(table(inMode('Hibernate')), Object.fromEntries(operations.map((name) => [name, 'block'])));
});
test('regulation - [REG-005] [REG-013] the profile is the mode in lower case; the mode has its capital', () => {
  for (const mode of ['Sovereign', 'Conserving', 'Hustle', 'Hibernate'] as const) {
    assert.equal(gatingSchema.parse(gatingOf(inMode(mode))).profile, mode.toLowerCase());
    assert.equal(homeostasisOf(inMode(mode)).economic.mode, mode);
  }
});

const failing = (failed: number, of: number): RegulationState => folded(Array.from({ length: of }, (_, i) => tool(t0 + i, i >= failed)));

test('regulation - [REG-020] more than 30 % errors of at least five events block tools; exactly 30 %, or four events, do not', () => {
  assert.equal(gatesOf(failing(3, 10)).tool_execution, 'allow');
  assert.equal(gatesOf(failing(4, 10)).tool_execution, 'block');
  assert.equal(gatesOf(failing(4, 4)).tool_execution, 'allow');
  assert.equal(gatesOf(failing(2, 5)).tool_execution, 'block');
  assert.deepEqual({ ...gatesOf(failing(5, 5)), tool_execution: 'allow' }, allow, 'nothing else');
});

test('regulation - [REG-021] context use of 0.95 or more blocks long context, of the last turn or of the operation that asks', () => {
  assert.equal(gatesOf(folded([turn(t0, true, { context: 0.949 })])).long_context, 'allow');
  assert.equal(gatesOf(folded([turn(t0, true, { context: 0.95 })])).long_context, 'block');
  assert.equal(gatesOf(initialRegulation(), 0.95).long_context, 'block');
});

test('regulation - [REG-022] the most restrictive decision wins, over rules and over the operations asked for', () => {
  const state = { ...failing(5, 5), mode: 'Hustle' as const };
  assert.equal(gatesOf(state).tool_execution, 'block', 'Hustle alone would warn');
  assert.equal(gatesOf({ ...initialRegulation(), mode: 'Conserving', context: 1 }).long_context, 'block', 'Conserving alone would warn');
  const answer = judge(inMode('Conserving'), ['cheap_model', 'expensive_model', 'speculative_research', 'long_context'], undefined);
  assert.deepEqual([answer.decision, answer.operation], ['block', 'speculative_research']);
  assert.match(answer.explanation ?? '', /^Speculative research is not allowed now \(mode Conserving: .*credits.*\)\.$/);
  assert.match(judge(state, ['tool_execution'], undefined).explanation ?? '', /30 %/);
  assert.deepEqual(judge(inMode('Sovereign'), ['web_search'], undefined), { decision: 'allow', mode: 'Sovereign', operation: null, explanation: null });
});

test('regulation - [REG-029] [REG-030] [REG-031] the score is 0.35, 0.30 and 0.35 of its parts, and names its tier', () => {
  const many = folded([balance(t0, 1_000), ...Array.from({ length: 60 }, (_, i) => turn(t0 + i, true))]);
  const few = folded([balance(t0, 0), spent(t0, 5), ...Array.from({ length: 60 }, (_, i) => turn(t0 + i, false, { latency_ms: 200_000, context: 1 }))]);
  const seen = new Set<string>();
  for (const state of [initialRegulation(), many, few, folded(Array.from({ length: 8 }, (_, i) => turn(t0 + i, true))), folded(Array.from({ length: 20 }, (_, i) => turn(t0 + i, i > 2)))]) {
    const { score, tier, components, assessed_at } = trustOf(state, 'agt_x');
    assert.ok(Math.abs(score - (0.35 * components.operational + 0.3 * components.cognitive + 0.35 * components.economic)) < 1e-6);
    assert.equal(tier, score >= 0.9 ? 'certified' : score >= 0.75 ? 'trusted' : score >= 0.5 ? 'provisional' : 'unverified');
    assert.equal(assessed_at, new Date(state.now).toISOString());
    seen.add(tier);
  }
  assert.deepEqual([...seen].toSorted(), ['certified', 'provisional', 'trusted', 'unverified']);
  assert.equal(trustOf(folded(Array.from({ length: 20 }, (_, i) => turn(t0 + i, i >= 10))), 'a').trajectory, 'improving');
  assert.equal(trustOf(folded(Array.from({ length: 20 }, (_, i) => turn(t0 + i, i < 10))), 'a').trajectory, 'declining');
  assert.equal(trustOf(many, 'a').trajectory, 'stable');
});

interface Regulated {
  readonly host: ActorHost;
  gate(asked: readonly Operation[], cents: number): Promise<GateAnswer>;
  observe(...observations: readonly Observation[]): Promise<unknown>;
  state(): Promise<{ readonly mode: Mode; readonly json: string }>;
  kinds(): Promise<string[]>;
}

const regulated = async (t: TestContext, hold_ms?: number): Promise<Regulated> => {
  const host = actorHost([regulation()]);
  t.after(() => host.stop());
  await host.ask(address, 'begin', { agent_id: 'agt_01jd0000000000000000000001', ...(hold_ms === undefined ? {} : { hold_ms }) });
  return {
    host,
    gate: async (asked, cents) => regulationCommands.gate.output.parse(await host.ask(address, 'gate', { operations: asked, about: 'session s1', balance_cents: cents })),
    observe: (...observations) => host.ask(address, 'observe', { observations }),
    state: async () => {
      const answer = regulationCommands.state.output.parse(await host.ask(address, 'state', {}));
      return { mode: answer.state.economic.mode, json: JSON.stringify(answer) };
    },
    kinds: async () => (await host.events(address)).map(({ k }) => k).filter((kind) => Object.hasOwn(regulationEvents, kind)),
  };
};

test('regulation - [REG-011] [REG-008] a change of mode is journaled, by the reminder when nothing else happens', async (t) => {
  const r = await regulated(t);
  await r.observe(turn(r.host.now(), true, { cost_cents: 100 }));
  assert.equal((await r.gate(['cheap_model'], 150)).mode, 'Sovereign');
  r.host.advance(6 * minute);
  const events = await r.host.until(address, (all) => all.some(({ k }) => k === 'ModeChanged'));
  const changed = events.find(({ k }) => k === 'ModeChanged')?.d;
  assert.deepEqual([changed?.['from'], changed?.['to'], changed?.['ratio']], ['Sovereign', 'Conserving', 1.5]);
  assert.equal((await r.state()).mode, 'Conserving');
});

test('regulation - [REG-026] [REG-024] [REG-025] a gate that warns or blocks is journaled with its explanation, one that allows is not', async (t) => {
  const r = await regulated(t, 0);
  await r.observe(turn(r.host.now(), true, { cost_cents: 100 }));
  assert.equal((await r.gate(['expensive_model'], 500)).decision, 'allow');
  assert.ok(!(await r.kinds()).includes('GateTriggered'));
  const warned = await r.gate(['expensive_model'], 150);
  assert.equal(warned.decision, 'warn');
  const blocked = await r.gate(['cheap_model'], 0);
  assert.deepEqual([blocked.decision, blocked.mode], ['block', 'Hibernate']);
  const gates = (await r.host.events(address)).filter(({ k }) => k === 'GateTriggered').map(({ d }) => [d['operation'], d['decision'], d['about'], d['explanation']]);
  assert.deepEqual(gates, [['expensive_model', 'warn', 'session s1', warned.explanation], ['cheap_model', 'block', 'session s1', blocked.explanation]]);
});

test('regulation - [REG-004] a lost host, and another one, show the same state; what is told twice counts once', async (t) => {
  const r = await regulated(t);
  const at = r.host.now();
  const seen = turn(at, false, { cost_cents: 7 });
  await r.observe(seen, tool(at, true));
  await r.observe(seen);
  await r.gate(['tool_execution'], 900);
  const before = await r.state();
  r.host.crash();
  assert.deepEqual(await r.state(), before);
  r.host.advance(day);
  assert.deepEqual(await r.state(), before, 'a day of nothing changes nothing');
  assert.equal((await r.kinds()).filter((kind) => kind === 'Observed').length, 3);
});

test('regulation - an observation from a clock that runs ahead does not move the deployment\'s time', async (t) => {
  const r = await regulated(t);
  await r.observe(tool(r.host.now() + 30 * day, true));
  const observed = (await r.host.events(address)).find(({ k }) => k === 'Observed');
  assert.ok(regulationEvents.Observed.parse(observed?.d).at <= r.host.now());
});
