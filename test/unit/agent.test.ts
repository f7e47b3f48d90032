// The agent actor: provisioning, a bounded memory, recall that is the same on every host.
import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import fc from 'fast-check';
import { agent } from '../../actors/agent/agent.ts';
import { rank, wordsOf } from '../../actors/agent/recall.ts';
import { agentCommands, type MemoryFact } from '../../contracts/agent.ts';
import { limits } from '../../contracts/limits.ts';
import { actorHost, type ActorHost } from '../harness/actor-host.ts';

const address = { org: 'o', type: 'agent', key: 'agent-x' };
const start = (t: TestContext): ActorHost => {
  const host = actorHost([agent()]);
  t.after(() => { host.stop(); });
  return host;
};
const remember = async (host: ActorHost, fact: string, relevance?: number): Promise<MemoryFact> =>
  agentCommands.remember.output.parse(await host.ask(address, 'remember', { fact, source: 'test', ...(relevance === undefined ? {} : { relevance }) }));
const recall = async (host: ActorHost, query: string, limit?: number): Promise<string[]> =>
  agentCommands.recall.output.parse(await host.ask(address, 'recall', { query, ...(limit === undefined ? {} : { limit }) })).facts.map((f) => f.fact);

describe('agent - owner', () => {
  it('is provisioned once and refuses another owner', async (t) => {
    const host = start(t);
    const owner = { user_id: 'ann', project_id: 'p', name: 'Ann' };
    assert.deepEqual(await host.ask(address, 'provision', owner), { agent_id: 'agent-x' });
    await host.ask(address, 'provision', { ...owner, name: 'Other' });
    await assert.rejects(host.ask(address, 'provision', { ...owner, user_id: 'eve' }), { code: 'conflict' });
    assert.equal((await host.events(address)).filter((e) => e.k === 'AgentProvisioned').length, 1);
  });

  it('answers the system only', async (t) => {
    const host = start(t);
    const user = { kind: 'user', sub: 'ann', org: 'o', scopes: [] } as const;
    for (const [command, input] of [['recall', { query: '' }], ['reports', {}], ['remember', { fact: 'x', source: 'y' }]] as const) {
      await assert.rejects(host.ask(address, command, input, user), { code: 'forbidden' });
    }
  });
});

describe('agent - memory', () => {
  it('finds what shares most with the query, across case, accents and crashes', async (t) => {
    const host = start(t);
    for (const fact of ['Ann likes green tea', 'Ann lives in Zürich', 'The tea shop closes at six', 'Bob likes coffee']) await remember(host, fact);
    host.crash();
    assert.deepEqual(await recall(host, 'green TEA?'), ['Ann likes green tea', 'The tea shop closes at six']);
    assert.deepEqual(await recall(host, 'zurich'), ['Ann lives in Zürich']);
    assert.deepEqual(await recall(host, 'nothing of it'), []);
    assert.deepEqual(await recall(host, '', 2), ['Bob likes coffee', 'The tea shop closes at six']);
  });

  it('stores a known fact once', async (t) => {
    const host = start(t);
    assert.deepEqual(await remember(host, 'same'), await remember(host, 'same'));
    assert.equal((await host.events(address)).filter((e) => e.k === 'MemoryStored').length, 1);
  });

  it('forgets the least relevant, then the oldest, never the newest', () => {
    const { apply, initial } = agent().spec;
    const store = apply['MemoryStored'] ?? assert.fail();
    const fact = (n: number, relevance: number): MemoryFact => ({ id: String(n), fact: `fact ${n}`, source: 's', relevance, at: n });
    let state: unknown = initial(address);
    const facts = (): string[] => (state as { facts: MemoryFact[] }).facts.map((f) => f.id);
    for (let n = 0; n < limits.memoryFactsMax; n++) state = store(state, fact(n, n === 7 || n === 9 ? 0.1 : 0.5), { id: 'e', at: n, number: n });
    for (const [n, relevance, gone] of [[1_000, 0, '7'], [1_001, 0.5, '1000'], [1_002, 0.5, '9'], [1_003, 0.5, '0']] as const) {
      state = store(state, fact(n, relevance), { id: 'e', at: n, number: n });
      assert.ok(!facts().includes(gone), `${gone} is still there`);
      assert.equal(facts().at(-1), String(n));
      assert.equal(facts().length, limits.memoryFactsMax);
    }
    const long = { ...fact(2_000, 0.9), fact: 'x'.repeat(limits.memoryMaxChars) };
    state = store(state, long, { id: 'e', at: 1, number: 1 });
    assert.deepEqual(facts(), ['2000']);
  });

  it('ranks the same whatever the order of equal work, and only what matches', () => {
    const arbitrary = fc.array(fc.record({ fact: fc.array(fc.constantFrom('tea', 'ann', 'red', 'sky', 'is'), { minLength: 1, maxLength: 5 }), relevance: fc.double({ min: 0, max: 1, noNaN: true }) }), { maxLength: 12 });
    fc.assert(fc.property(arbitrary, fc.constantFrom('tea', 'red sky', 'ann is'), (drawn, query) => {
      const facts = drawn.map((d, n): MemoryFact => ({ id: String(n), fact: d.fact.join(' '), source: 's', relevance: d.relevance, at: n }));
      const ranked = rank(facts, query);
      assert.deepEqual(ranked, rank(structuredClone(facts), query));
      const asked = wordsOf(query);
      assert.deepEqual(new Set(ranked.map((f) => f.id)), new Set(facts.filter((f) => [...wordsOf(f.fact)].some((w) => asked.has(w))).map((f) => f.id)));
    }));
  });
});

describe('agent - reports', () => {
  it('keeps the latest, newest first', async (t) => {
    const host = start(t);
    for (let n = 0; n < limits.reportsMax + 2; n++) await host.ask(address, 'report', { title: `R${n}`, body: 'b' });
    const { reports } = agentCommands.reports.output.parse(await host.ask(address, 'reports', {}));
    assert.deepEqual(reports.map((r) => r.title), Array.from({ length: limits.reportsMax }, (_, n) => `R${limits.reportsMax + 1 - n}`));
  });
});
