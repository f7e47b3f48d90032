/** Trust scores as pure functions: curves with their written values, weights, levels, boundaries; domain names. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  agentFactors, agentHistory, agentIdentity, agentReputation, agentWeights, economic, levelOf, scoreOf, userFactors, userHistory, userIdentity, userReputation, userWeights,
  type AgentFacts, type UserFacts,
} from '../../actors/trust/score.ts';
import { domainName, trustBodies, trustFactors, type TrustFactors } from '../../contracts/trust.ts';
import { runSeed } from '../harness/seed.ts';

const nobody: UserFacts = { email: false, oauth: false, domain: false, activeDays: 0, endorsements: 0, published: 0, payments: 0, creditsUsed: 0, wallet: false };
const fresh: AgentFacts = { deployedBy: 'unverified', serviceDays: 0, sessions: 0, ended: 0, completed: 0, errored: 0, evaluations: [], payments: 0, creditsUsed: 0 };
const factors = (identity: number, history: number, reputation: number, economy: number): TrustFactors => ({ identity, history, reputation, economic: economy });

test('trust - identity starts at 0.2, e-mail gives 0.5, OAuth 0.7, a domain 0.9, and two of them with a domain 1.0 [TRU-006] [TRU-007] [TRU-008] [TRU-009]', () => {
  const of = (email: boolean, oauth: boolean, domain: boolean): number => userIdentity({ email, oauth, domain });
  assert.deepEqual([of(false, false, false), of(true, false, false), of(false, true, false), of(false, false, true)], [0.2, 0.5, 0.7, 0.9]);
  assert.deepEqual([of(true, true, false), of(true, false, true), of(false, true, true), of(true, true, true)], [1, 1, 1, 1]);
});

test('trust - history is min(1, log(1 + days) / log(241)), with the written values; half a year of days is above 0.8 [TRU-011] [TRU-012]', () => {
  assert.deepEqual([0, 1, 30, 80, 180, 240, 10_000].map(userHistory), [0, 0.1264, 0.6261, 0.8012, 0.9478, 1, 1]);
  for (let days = 0; days <= 240; days++) assert.ok(Math.abs(userHistory(days) - Math.min(1, Math.log(1 + days) / Math.log(241))) < 0.00005 + 1e-9);
});

test('trust - reputation is 0.5 of an unknown and grows with endorsements and with publications, to 1 [TRU-013]', () => {
  const of = (endorsements: number, published: number): number => userReputation({ endorsements, published });
  assert.deepEqual([of(0, 0), of(1, 0), of(0, 1), of(10, 0), of(25, 25), of(500, 0)], [0.5, 0.5881, 0.5881, 0.8049, 1, 1]);
});

test('trust - the economic factor grows with payments and with credit use, and a wallet raises it [TRU-014]', () => {
  const of = (payments: number, creditsUsed: number, wallet: boolean): number => economic({ payments, creditsUsed, wallet });
  assert.deepEqual([of(0, 0, false), of(1, 0, false), of(0, 100, false), of(0, 0, true), of(12, 10_000, true)], [0, 0.1081, 0.2004, 0.2, 1]);
  assert.ok(of(2, 0, false) > of(1, 0, false) && of(0, 101, false) >= of(0, 100, false) && of(3, 50, true) > of(3, 50, false));
});

test('trust - a user\'s score is 0.25 times the sum of the factors [TRU-005]', () => {
  const facts = { ...nobody, email: true, activeDays: 30, payments: 1 };
  assert.ok(Math.abs(scoreOf(userFactors(facts), userWeights) - 0.25 * (0.5 + 0.6261 + 0.5 + 0.1081)) < 1e-9);
  assert.equal(scoreOf(factors(1, 0, 0, 0), userWeights), 0.25);
});

test('trust - an agent\'s score is 0.20 identity + 0.30 history + 0.30 reputation + 0.20 economic [TRU-019]', () => {
  assert.deepEqual([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 1, 1, 1]].map(([a = 0, b = 0, c = 0, d = 0]) => scoreOf(factors(a, b, c, d), agentWeights)), [0.2, 0.3, 0.3, 0.2, 1]);
});

test('trust - levels by score, a boundary belonging to the higher one, also where floating point misses it [TRU-003] [TRU-004]', () => {
  assert.deepEqual([0, 0.299999, 0.3, 0.599999, 0.6, 0.799999, 0.8, 1].map(levelOf), ['unverified', 'unverified', 'basic', 'basic', 'verified', 'verified', 'trusted', 'trusted']);
  // 0.25 * (0.7 + 0.1 + 0.3 + 0.1) and 0.2 * 0.1 + 0.3 * 0.4 + 0.3 * 0.2 + 0.2 * 0.5 are 0.3 on paper.
  assert.equal(levelOf(scoreOf(factors(0.7, 0.1, 0.3, 0.1), userWeights)), 'basic');
  assert.equal(levelOf(scoreOf(factors(0.1, 0.4, 0.2, 0.5), agentWeights)), 'basic');
  for (const [floor, level] of [[0.6, 'verified'], [0.8, 'trusted']] as const) assert.equal(levelOf(scoreOf(factors(floor, floor, floor, floor), agentWeights)), level);
});

test('trust - an agent\'s identity rises with the level of who deployed it [TRU-020]', () => {
  assert.deepEqual(agentIdentity, { unverified: 0.2, basic: 0.5, verified: 0.8, trusted: 1 });
  assert.equal(agentFactors({ ...fresh, deployedBy: 'verified' }).identity, 0.8);
});

test('trust - an agent\'s history grows with service days and sessions and falls with errors [TRU-021]', () => {
  const of = (facts: Partial<AgentFacts>): number => agentHistory({ ...fresh, ...facts });
  assert.deepEqual([of({}), of({ serviceDays: 90, sessions: 100 }), of({ serviceDays: 90, sessions: 100, ended: 4, errored: 2 }), of({ serviceDays: 9, sessions: 9, ended: 1, errored: 1 })], [0, 1, 0.5, 0]);
  assert.ok(of({ serviceDays: 1 }) > 0 && of({ sessions: 1 }) > 0 && of({ serviceDays: 2, sessions: 1 }) > of({ serviceDays: 1, sessions: 1 }));
});

test('trust - an agent\'s reputation follows completed turns and evaluations, with doubt where little is known [TRU-022]', () => {
  const of = (ended: number, completed: number, evaluations: readonly number[] = []): number => agentReputation({ ended, completed, evaluations });
  assert.deepEqual([of(0, 0), of(4, 4), of(96, 96), of(4, 0), of(0, 0, [1, 1, 1, 1]), of(0, 0, [0])], [0.5, 0.75, 0.98, 0.25, 0.75, 0.4]);
});

test('trust - an agent\'s economic factor derives from its payments [TRU-023]', () => {
  const of = (payments: number): number => agentFactors({ ...fresh, payments }).economic;
  assert.deepEqual([of(0), of(1), of(12)], [0, 0.1081, 0.4]);
});

test('trust - whatever the facts: every factor and score is from 0 to 1, and no good fact lowers one [TRU-002]', (t) => {
  const count = fc.nat({ max: 1_000_000 });
  const seed = runSeed();
  t.diagnostic(`seed ${seed}`);
  fc.assert(fc.property(fc.record({ email: fc.boolean(), oauth: fc.boolean(), domain: fc.boolean(), activeDays: count, endorsements: count, published: count, payments: count, creditsUsed: count, wallet: fc.boolean() }), (facts) => {
    const of = userFactors(facts);
    trustFactors.parse(of);
    const score = scoreOf(of, userWeights);
    assert.ok(score >= 0 && score <= 1);
    for (const better of [{ email: true }, { domain: true }, { wallet: true }, { activeDays: facts.activeDays + 1 }, { payments: facts.payments + 1 }]) {
      assert.ok(scoreOf(userFactors({ ...facts, ...better }), userWeights) >= score);
    }
  }), { seed });
  fc.assert(fc.property(count, count, fc.nat({ max: 1_000 }), fc.nat({ max: 1_000 }), fc.nat({ max: 1_000 }), fc.array(fc.double({ min: -5, max: 5, noNaN: true }), { maxLength: 9 }), (serviceDays, sessions, completed, errored, cut, evaluations) => {
    const of = agentFactors({ ...fresh, serviceDays, sessions, completed, errored, ended: completed + errored + cut, evaluations });
    trustFactors.parse(of);
    assert.ok(scoreOf(of, agentWeights) <= 1);
  }), { seed });
});

test('trust - a domain is a name of several ASCII labels, never an address or one label [TRU-032]', () => {
  for (const [text, as] of [['Example.COM', 'example.com'], [' a.b.example.co.uk ', 'a.b.example.co.uk'], ['xn--bcher-kva.example', 'xn--bcher-kva.example'], ['1.example', '1.example']] as const) assert.equal(domainName.parse(text), as);
  const longLabel = `${'a'.repeat(64)}.example`;
  const longName = `${`${'a'.repeat(60)}.`.repeat(4)}example`;
  for (const text of ['', 'localhost', 'example.com.', '.example.com', 'a..example', '192.0.2.1', '::1', '[::1]', '1.2.3.4.5', 'bücher.example', 'a b.example', 'a_b.example', '-a.example', 'a-.example', 'example.c', 'example.1a', 'https://example.com', 'example.com/x', 'example.com\u0000', longLabel, longName]) {
    assert.equal(domainName.safeParse(text).success, false, text);
  }
});

test('trust - a verification is one of the four with its own fields [TRU-032]', () => {
  for (const body of [{ type: 'email', token: '12345678' }, { type: 'oauth' }, { type: 'oauth', token: 'x' }, { type: 'domain', domain: 'example.com' }, { type: 'domain_confirm', domain: 'example.com' }]) assert.ok(trustBodies.verify.safeParse(body).success);
  for (const body of [{}, { type: 'phone' }, { type: 'email' }, { type: 'email', token: '' }, { type: 'email', token: 7 }, { type: 'domain' }, { type: 'domain_confirm' }, { type: 'domain', domain: 'example.com', x: 1 }, { type: ['email'], token: 'x' }]) assert.ok(!trustBodies.verify.safeParse(body).success);
});
