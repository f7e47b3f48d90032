/** The actors behind trust on the real engine: certifications and their moves; a person's days, domains and addresses. The look into DNS against a real name server. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { suite, test } from 'node:test';
import { z } from 'zod';
import { certification } from '../../actors/certification/certification.ts';
import { certificationAddress } from '../../actors/certification/address.ts';
import { askBy } from '../../actors/daemon/platform/ask.ts';
import { createHasTxt } from '../../actors/daemon/platform/dns.ts';
import { userHistory } from '../../actors/trust/score.ts';
import { userAddress } from '../../actors/user/address.ts';
import { user } from '../../actors/user/user.ts';
import { limits } from '../../contracts/limits.ts';
import type { By } from '../../contracts/platform.ts';
import { certificationCommands, decision, type CertificationStatus } from '../../contracts/trust.ts';
import { userCommands } from '../../contracts/user.ts';
import { startTxtServer } from '../harness/dns.ts';
import { recorder } from '../harness/log.ts';
import { codeOf, createCluster, createHost, domainOf } from '../harness/memory-host.ts';

const dayMs = 86_400_000;
const by: By = { actor: 'usr_01jd0000000000000000000001', email: 'ann@example.com', name: 'ann', ip: '192.0.2.1', user_agent: 'test' };
const orgId = 'org_01jd0000000000000000000000';
const noted = z.object({ action: z.string(), resource_id: z.string(), by: z.object({ actor: z.string() }) });

const certifications = () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [certification()] });
  const ask = askBy({ ask: (message) => host.engine.deliver(message) }, certificationCommands);
  let made = 0;
  const submit = async (): Promise<ReturnType<typeof certificationAddress>> => {
    const address = certificationAddress(`crt_01jd${String(made++).padStart(22, '0')}`);
    await ask(address, 'submit', { entity_type: 'organization', entity_id: orgId, organization_id: orgId, cert_type: 'platform-partner', evidence: { website: 'https://acme.example', list: [1, null] }, by });
    return address;
  };
  const told = () => cluster.stores.inbox.messages.map((message) => noted.parse(JSON.parse(Buffer.from(message.data).toString('utf8'))));
  return { cluster, ask, submit, told };
};

test('certification - moves only pending to approved or rejected and approved to revoked; every other move is refused and changes nothing [TRU-040]', async () => {
  const { cluster, ask, submit } = certifications();
  const paths: readonly (readonly CertificationStatus[])[] = [[], ['approved'], ['rejected'], ['approved', 'revoked']];
  const allowed = new Set(['pending approved', 'pending rejected', 'approved revoked']);
  for (const path of paths) {
    for (const next of decision.options) {
      const address = await submit();
      for (const step of path) await ask(address, 'decide', { decision: decision.parse(step), by });
      const from = path.at(-1) ?? 'pending';
      const events = domainOf(cluster, address);
      if (allowed.has(`${from} ${next}`)) {
        assert.equal((await ask(address, 'decide', { decision: next, by })).status, next);
      } else {
        assert.equal(await codeOf(ask(address, 'decide', { decision: next, by })), 'conflict', `${from} → ${next}`);
        assert.deepEqual(domainOf(cluster, address), events);
        assert.equal((await ask(address, 'read', {})).status, from);
      }
    }
  }
});

test('certification - of many decisions at once one is made', async () => {
  const { ask, submit } = certifications();
  const address = await submit();
  const outcomes = await Promise.allSettled(Array.from({ length: 20 }, (_, i) => ask(address, 'decide', { decision: i % 2 === 0 ? 'approved' : 'rejected', by })));
  assert.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, 1);
});

test('certification - evidence is kept as it came; each change is told to the organization\'s audit log, the decision without who of the staff made it [TRU-037]', async () => {
  const { ask, submit, told } = certifications();
  const address = await submit();
  assert.deepEqual((await ask(address, 'read', {})).evidence, { website: 'https://acme.example', list: [1, null] });
  await ask(address, 'decide', { decision: 'approved', reason: 'fine', by: { ...by, actor: 'usr_staff' } });
  assert.deepEqual(told().map(({ action, resource_id, by: who }) => [action, resource_id, who.actor]), [
    ['certification.submitted', address.key, by.actor], ['certification.approved', address.key, 'platform-staff'],
  ]);
});

test('certification - one that was never submitted is not found, and an id cannot be used twice [TRU-038]', async () => {
  const { ask, submit } = certifications();
  assert.equal(await codeOf(ask(certificationAddress('crt_01jd0000000000000000000009'), 'decide', { decision: 'approved', by })), 'not_found');
  assert.equal(await codeOf(ask(certificationAddress('crt_01jd0000000000000000000009'), 'read', {})), 'not_found');
  const address = await submit();
  assert.equal(await codeOf(ask(address, 'submit', { entity_type: 'agent', entity_id: 'agent-x', organization_id: orgId, cert_type: 'agent-operator', evidence: {}, by })), 'conflict');
  assert.throws(() => certificationAddress('nothing'), { code: 'not_found' });
});

const person = async (provider: 'email' | 'google' = 'email') => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [user()] });
  const address = userAddress(by.actor);
  const asks = askBy({ ask: (message) => host.engine.deliver(message) }, userCommands);
  const sha = (text: string): string => createHash('sha256').update(text).digest('hex');
  const signIn = (id: string) => asks(address, 'sign_in', {
    email: 'ann@example.com', name: '', provider, provider_id: 'ann',
    grant: { id, kind: 'browser', client_id: '', secret_sha256: sha(id), expires_at: cluster.clock.now() + 400 * dayMs, access_expires_at: cluster.clock.now() + 400 * dayMs, ip: '', user_agent: '' },
  });
  await signIn('grt_0');
  return { cluster, host, address, ask: asks, signIn, cookie: () => asks(address, 'check_cookie', { secret_sha256: sha('grt_0') }), facts: () => asks(address, 'trust_facts', {}) };
};

test('user - an active day is a UTC day with a use, counted once; days without one count nothing [TRU-011]', async () => {
  const { cluster, facts, cookie, signIn } = await person();
  assert.equal((await facts()).active_days, 1);
  await signIn('grt_1');
  assert.equal((await facts()).active_days, 1, 'the same day');
  cluster.clock.jump(dayMs);
  assert.equal((await facts()).active_days, 1, 'to be asked about is no use');
  await cookie();
  assert.equal((await facts()).active_days, 2);
  cluster.clock.jump(5 * dayMs);
  for (let use = 0; use < 5; use++) await cookie();
  assert.equal((await facts()).active_days, 3);
});

test('user - six months of daily use make a history of 0.8 and more [TRU-012]', async () => {
  const { cluster, facts, cookie } = await person();
  for (let day = 1; day < 183; day++) {
    cluster.clock.jump(dayMs);
    await cookie();
  }
  const { active_days: days } = await facts();
  assert.equal(days, 183);
  assert.ok(userHistory(days) >= 0.8);
});

test('user - a verified address or domain counts once, however often it is verified [TRU-010]', async () => {
  const { cluster, address, ask, facts } = await person('google');
  for (let time = 0; time < 3; time++) await ask(address, 'verify_email', {});
  assert.deepEqual((await facts()).identities, ['google', 'email']);
  const { id } = await ask(address, 'challenge_domain', { domain: 'acme.example', id: 'one' });
  assert.deepEqual(await ask(address, 'challenge_domain', { domain: 'acme.example', id: 'two' }), { id }, 'the record that was set stays good');
  assert.equal((await facts()).domains_verified, 0);
  for (let time = 0; time < 3; time++) assert.deepEqual(await ask(address, 'confirm_domain', { domain: 'acme.example', id }), { known: true });
  assert.equal((await facts()).domains_verified, 1);
  const events = domainOf(cluster, address).map((line) => line.split(' ')[0]);
  assert.equal(events.filter((kind) => kind === 'IdentityAdded').length, 2);
  assert.equal(events.filter((kind) => kind === 'DomainVerified').length, 1);
});

test('user - a challenge that is not known verifies nothing; unproved domains are bounded, and verified ones stay', async () => {
  const { address, ask, facts } = await person();
  assert.deepEqual(await ask(address, 'confirm_domain', { domain: 'acme.example', id: 'guess' }), { known: false });
  await ask(address, 'challenge_domain', { domain: 'kept.example', id: 'kept' });
  await ask(address, 'confirm_domain', { domain: 'kept.example', id: 'kept' });
  for (let n = 0; n < limits.trustDomainsMax; n++) await ask(address, 'challenge_domain', { domain: `d${n}.example`, id: `d${n}` });
  assert.deepEqual(await ask(address, 'domain_challenge', { domain: 'd0.example' }), { id: null }, 'the oldest unproved one is forgotten');
  assert.deepEqual(await ask(address, 'domain_challenge', { domain: 'kept.example' }), { id: 'kept' });
  for (let n = 1; n < limits.trustDomainsMax; n++) assert.deepEqual(await ask(address, 'confirm_domain', { domain: `d${n}.example`, id: `d${n}` }), { known: true });
  assert.equal((await facts()).domains_verified, limits.trustDomainsMax);
  assert.equal(await codeOf(ask(address, 'challenge_domain', { domain: 'more.example', id: 'more' })), 'validation_error');
});

test('user - who signs up by a provider is mailed a code to verify the address, at the first time only; by e-mail it was verified already [TRU-026]', async () => {
  const google = await person('google');
  await google.signIn('grt_1');
  const mails = google.cluster.stores.inbox.messages.map((message) => ({ subject: message.subject, input: JSON.parse(Buffer.from(message.data).toString('utf8')) as unknown }));
  assert.equal(mails.length, 1);
  assert.match(mails[0]?.subject ?? '', /\.platform\.signin\..*\.start$/);
  assert.deepEqual(mails[0]?.input, { email: 'ann@example.com', purpose: 'verify' });
  assert.equal((await person('email')).cluster.stores.inbox.messages.length, 0);
});

suite('domain records', { timeout: 60_000 }, () => {
  const value = 'troupe-domain=abc';
  const look = async (answer: Parameters<typeof startTxtServer>[0]) => {
    const server = await startTxtServer(answer);
    const log = recorder();
    try {
      return { found: await createHasTxt({ servers: [server.address], log })('_troupe.acme.example', value), asked: [...new Set(server.asked)] };
    } finally {
      await server.stop();
    }
  };

  test('dns - the configured name server is asked for the TXT record; among others and in pieces it is found, another value is not [TRU-031] [TRU-030]', async () => {
    assert.deepEqual(await look(() => [['v=spf1 -all'], ['troupe-', 'domain=abc']]), { found: true, asked: ['_troupe.acme.example TXT'] });
    for (const records of [[], [['troupe-domain=abcd']], [['troupe-domain=ab']], [['troupe-domain=', 'ABC']], [['troupe-domain=a'], ['bc']], [['x troupe-domain=abc']]]) assert.equal((await look(() => records)).found, false);
  });

  test('dns - a name that is not there, a refusal and silence are no record, and silence ends by itself', async () => {
    for (const answer of ['nxdomain', 'servfail', 'silent'] as const) assert.equal((await look(() => answer)).found, false, answer);
  });

  test('dns - looks are bounded, and beyond the bound nothing is asked', async () => {
    const server = await startTxtServer(() => 'silent');
    const hasTxt = createHasTxt({ servers: [server.address], log: recorder() });
    const looks = Array.from({ length: limits.domainLookupsMax }, () => hasTxt('_troupe.acme.example', value));
    assert.equal(await codeOf(hasTxt('_troupe.acme.example', value)), 'overloaded');
    assert.ok((await Promise.all(looks)).every((found) => !found));
    assert.equal(await hasTxt('_troupe.acme.example', value), false, 'there is room again');
    await server.stop();
  });

  test('dns - a server that is no address is refused at start', () => {
    assert.throws(() => createHasTxt({ servers: ['ns.example'], log: recorder() }), { code: 'bad_request' });
  });
});
