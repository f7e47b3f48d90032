/** Deployments on the real engine: who may make and change them, on which plans, what follows and goes on over lost hosts, what is shown once. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { z } from 'zod';
import { nameAddress } from '../../actors/name/address.ts';
import { canonicalJson } from '../../contracts/canonical.ts';
import { deploymentCommands, deploymentEvents } from '../../contracts/deployment-actor.ts';
import { deployment, deploymentStatus, regulationAddress } from '../../contracts/deployment.ts';
import { deploymentsRoutes as routes } from '../../contracts/deployments-routes.ts';
import { limits } from '../../contracts/limits.ts';
import { codeOf } from '../harness/memory-host.ts';
import { person } from '../harness/organization-actor.ts';
import { deploymentAt, deploymentWorld } from '../harness/deployment-actor.ts';

const acme = 'org_01jd0000000000000000000a11';
const other = 'org_01jd0000000000000000000b22';
const listed = z.strictObject({ deployments: z.array(deployment) });

test('deployments - an owner on team or enterprise makes one that runs; key and secret are in that answer only; admin, member and viewer get 403, others 404 [RUN-038] [RUN-039] [RUN-040] [RUN-041] [BIL-018]', async (t) => {
  const w = await deploymentWorld(t);
  await w.found(acme, 'team', { admin: 'admin', member: 'member', viewer: 'viewer' });
  const { key, secret, ...shown } = await w.create(acme);
  assert.deepEqual(Object.keys(shown).toSorted(), ['agent', 'createdAt', 'id', 'name', 'organizationId', 'status', 'updatedAt', 'url']);
  assert.deepEqual([shown.organizationId, shown.name, shown.status, shown.url], [acme, 'One', 'running', 'https://deployments.example']);
  assert.match(key, /^trp_dk_/);
  assert.match(secret, /^trp_ds_/);
  assert.deepEqual(deploymentStatus.options.toSorted(), ['degraded', 'deprovisioning', 'failed', 'provisioning', 'running', 'stopped']);

  const input = { orgId: acme, name: 'Two' };
  for (const who of ['admin', 'member', 'viewer']) assert.equal(await codeOf(w.call('createDeployment', who, input)), 'forbidden', who);
  assert.equal(await codeOf(w.call('createDeployment', 'stranger', input)), 'not_found');
  assert.equal(await codeOf(w.call('createDeployment', 'owner', { ...input, orgId: 'org_none' })), 'not_found');
  const scoped = { kind: 'key', organizationId: acme, keyId: 'key_a', scopes: ['*'], createdBy: 'usr_owner', policy: '' } as const;
  await w.host.ask({ org: acme, type: 'organization', key: acme }, 'create_key', { id: 'key_a', name: 'k', scopes: ['*'], key_prefix: 'p', key_sha256: '0'.repeat(64), by: person('owner') });
  assert.equal(await codeOf(w.call('createDeployment', scoped, input)), 'forbidden', 'an API key never has an owner\'s permission');

  // No later answer has either.
  for (const who of ['owner', 'viewer']) {
    const { body } = await w.call('deployments', who, { orgId: acme });
    assert.deepEqual(listed.parse(body).deployments, [shown]);
    assert.deepEqual((await w.call('deployments', who, { orgId: acme, id: shown.id })).body, shown);
  }
  const later = [await w.call('deployments', 'owner', { orgId: acme }), await w.call('changeDeployment', 'owner', { orgId: acme, id: shown.id, action: 'restart' })];
  for (const text of [JSON.stringify(later), JSON.stringify(await w.host.events(deploymentAt(shown))), JSON.stringify(await w.host.events({ org: acme, type: 'organization', key: acme }))]) {
    for (const hidden of [key, key.slice(-43), secret, secret.slice('trp_ds_'.length)]) assert.ok(!text.includes(hidden));
  }
});

test('deployments - on free and pro an owner gets plan_limit, and who may not at all gets that first; no more than the limit, however many at once [BIL-018] [RUN-038]', async (t) => {
  const w = await deploymentWorld(t);
  await w.found(acme, 'free', { admin: 'admin' });
  for (const plan of ['free', 'pro'] as const) {
    await w.plan(acme, plan);
    assert.equal(await codeOf(w.call('createDeployment', 'owner', { orgId: acme, name: 'One' })), 'plan_limit', plan);
    assert.equal(await codeOf(w.call('createDeployment', 'admin', { orgId: acme, name: 'One' })), 'forbidden', plan);
    assert.equal(await codeOf(w.call('createDeployment', 'stranger', { orgId: acme, name: 'One' })), 'not_found', plan);
  }
  await w.plan(acme, 'enterprise');
  const asked = await Promise.allSettled(Array.from({ length: limits.deploymentsMax + 2 }, (_, i) => w.create(acme, `d${i}`)));
  assert.equal(asked.filter(({ status }) => status === 'fulfilled').length, limits.deploymentsMax);
  const { body } = await w.call('deployments', 'owner', { orgId: acme });
  assert.equal(listed.parse(body).deployments.length, limits.deploymentsMax);
});

test('deployments - one organization\'s are not another\'s: not shown, not changed, not ended [RUN-041]', async (t) => {
  const w = await deploymentWorld(t);
  await w.found(acme);
  await w.found(other);
  const one = await w.create(acme);
  assert.deepEqual(listed.parse((await w.call('deployments', 'owner', { orgId: other })).body).deployments, []);
  // The same person owns both: only the organization that is named counts.
  for (const id of [one.id, 'dep_none', 'dep_01jd0000000000000000000000', '*', '']) {
    if (id !== '') assert.equal(await codeOf(w.call('deployments', 'owner', { orgId: other, id })), 'not_found', id);
    if (id === '') continue;
    assert.equal(await codeOf(w.call('changeDeployment', 'owner', { orgId: other, id, action: 'rotate_key' })), 'not_found', id);
    assert.equal(await codeOf(w.call('deleteDeployment', 'owner', { orgId: other, id })), 'not_found', id);
  }
  assert.equal(await codeOf(w.call('deployments', 'stranger', { orgId: acme })), 'not_found');
  assert.equal((await w.who(one.key))?.deploymentId, one.id);
});

test('deployments - admin and owner restart, a member gets 403; what was active is put down, once, and it runs again [RUN-042]', async (t) => {
  const w = await deploymentWorld(t);
  await w.found(acme, 'team', { admin: 'admin', member: 'member', viewer: 'viewer' });
  const { id } = await w.create(acme);
  const at = deploymentAt({ organizationId: acme, id });
  for (const who of ['member', 'viewer']) assert.equal(await codeOf(w.call('changeDeployment', who, { orgId: acme, id, action: 'restart' })), 'forbidden', who);
  assert.deepEqual(w.work, []);
  for (const [i, who] of ['admin', 'owner'].entries()) {
    const { status, body } = await w.call('changeDeployment', who, { orgId: acme, id, action: 'restart' });
    assert.deepEqual([status, deployment.parse(body).status], [200, 'provisioning']);
    const events = await w.host.until(at, (all) => all.filter(({ k }) => k === 'DeploymentRestarted').length === i + 1);
    assert.deepEqual(events.findLast(({ k }) => k === 'DeploymentRestarted')?.d, { activations: 3 });
    assert.equal(deploymentCommands.read.output.parse(await w.host.ask(at, 'read', {})).status, 'running');
  }
  assert.deepEqual(w.work, [`restart ${id}`, `restart ${id}`]);
  assert.deepEqual(routes.changeDeployment.body?.safeParse({ orgId: acme, id, action: 'explode' }).success, false, 'other actions do not pass the schema [RUN-044]');
});

test('deployments - work that fails is tried on, shows as degraded, and is done in the end; lost hosts lose nothing of it [RUN-039] [RUN-042]', async (t) => {
  const w = await deploymentWorld(t);
  await w.found(acme);
  const { id } = await w.create(acme);
  const at = deploymentAt({ organizationId: acme, id });
  const status = async (): Promise<string> => deploymentCommands.read.output.parse(await w.host.ask(at, 'read', {})).status;
  w.workFails = 'not now';
  await w.call('changeDeployment', 'owner', { orgId: acme, id, action: 'restart' });
  for (let n = 1; n <= limits.deploymentTriesMax; n++) {
    await w.host.until(at, (all) => all.filter(({ k }) => k === 'WorkFailed').length >= n);
    if (n < limits.deploymentTriesMax) w.host.advance(limits.organizationRetryMaxMs);
  }
  assert.equal(await status(), 'degraded');
  assert.equal(await codeOf(w.call('changeDeployment', 'owner', { orgId: acme, id, action: 'restart' })), 'conflict');
  w.workFails = undefined;
  w.host.crash();
  w.host.advance(limits.organizationRetryMaxMs);
  await w.host.until(at, (all) => all.some(({ k }) => k === 'DeploymentRestarted'));
  assert.equal(await status(), 'running');
});

test('deployments - a new key is shown once and the old one ends with the turn that made it; a member gets 403 [RUN-043] [RUN-040]', async (t) => {
  const w = await deploymentWorld(t);
  await w.found(acme, 'team', { admin: 'admin', member: 'member' });
  const { id, key: first } = await w.create(acme);
  assert.equal(await codeOf(w.call('changeDeployment', 'member', { orgId: acme, id, action: 'rotate_key' })), 'forbidden');
  const { body } = await w.call('changeDeployment', 'admin', { orgId: acme, id, action: 'rotate_key' });
  const { key: second } = deployment.extend({ key: z.string() }).parse(body);
  assert.notEqual(second, first);
  assert.equal(await codeOf(w.who(first)), 'unauthorized');
  assert.equal((await w.who(second))?.by, 'key');
  assert.ok(!JSON.stringify((await w.call('deployments', 'admin', { orgId: acme, id })).body).includes('trp_dk_'));
});

test('deployments - only an owner ends one: its credentials end with that turn, its data is erased twice, its place and names are free, and it is shown no more [RUN-045]', async (t) => {
  const w = await deploymentWorld(t);
  await w.found(acme, 'team', { admin: 'admin' });
  const { id, key, agent } = await w.create(acme);
  const at = deploymentAt({ organizationId: acme, id });
  assert.equal(await codeOf(w.call('deleteDeployment', 'admin', { orgId: acme, id })), 'forbidden');
  assert.equal((await w.who(key))?.deploymentId, id);
  const { status, body } = await w.call('deleteDeployment', 'owner', { orgId: acme, id });
  assert.deepEqual([status, deployment.parse(body).status], [200, 'deprovisioning']);
  assert.equal(await codeOf(w.who(key)), 'unauthorized');
  await w.host.until(at, (all) => all.some(({ k }) => k === 'DeploymentErased'));
  await w.host.until({ org: acme, type: 'organization', key: acme }, (all) => all.some(({ k }) => k === 'DeploymentRemoved'));
  assert.deepEqual(listed.parse((await w.call('deployments', 'owner', { orgId: acme })).body).deployments, []);
  assert.equal(await codeOf(w.call('deleteDeployment', 'owner', { orgId: acme, id })), 'not_found');
  // Over a lost host, for what was still being written.
  w.host.crash();
  w.host.advance(limits.eraseAgainMs + limits.organizationWakeMs);
  await w.host.until(at, (all) => all.filter(({ k }) => k === 'DeploymentErased').length === 2);
  assert.deepEqual(w.work, [`erase ${id}`, `erase ${id}`]);
  for (const name of [nameAddress('deployment', id), nameAddress('agent', agent.id)]) await w.host.until(name, (all) => all.some(({ k }) => k === 'NameReleased'));
});

test('deployments - a host that is lost at any append of making one leaves it running, once; regulation begins, its names lead to it [RUN-038]', async (t) => {
  for (const stored of [true, false]) {
    for (let nth = 1; nth <= 6; nth++) {
      const w = await deploymentWorld(t);
      await w.found(acme);
      w.host.crashAt(nth, stored);
      const made = await w.create(acme);
      const at = deploymentAt(made);
      await w.host.until(at, (all) => all.some(({ k }) => k === 'DeploymentSettled'));
      assert.deepEqual((await w.kinds(at)).filter((k) => k === 'DeploymentProvisioned' || k === 'DeploymentSettled'), ['DeploymentProvisioned', 'DeploymentSettled'], `append ${nth}`);
      await w.host.until(regulationAddress(acme, made.id), (all) => all.some(({ k, d }) => k === 'RegulationBegun' && d['agent_id'] === made.agent.id));
      assert.equal((await w.who(made.key))?.agentId, made.agent.id);
    }
  }
});

test('deployments - one whose place lapsed while it was being made fails, and takes no credential [RUN-039]', async (t) => {
  const w = await deploymentWorld(t);
  await w.found(acme);
  const { key, id } = await w.create(acme);
  const provisioned = (await w.host.events(deploymentAt({ organizationId: acme, id }))).find(({ k }) => k === 'DeploymentProvisioned');
  assert.ok(provisioned !== undefined);
  // One for which no place is kept.
  const at = { org: acme, type: 'deployment', key: 'dep_01jd0000000000000000000f00' };
  await w.host.ask(at, 'provision', deploymentEvents.DeploymentProvisioned.parse(provisioned.d));
  await w.host.until(at, (all) => all.some(({ k }) => k === 'DeploymentFailed'));
  assert.equal(deploymentCommands.read.output.parse(await w.host.ask(at, 'read', {})).status, 'failed');
  assert.equal(await codeOf(w.host.ask(at, 'verify_key', { key_sha256: createHash('sha256').update(key).digest('hex') })), 'unauthorized');
});

test('deployments - a plan without deployments stops them, one that has them again starts them; the last word counts whatever overtakes it [RUN-039] [BIL-018]', async (t) => {
  const w = await deploymentWorld(t);
  await w.found(acme);
  const { id, key } = await w.create(acme);
  const at = deploymentAt({ organizationId: acme, id });
  const plans = async (count: number): Promise<void> => { await w.host.until(at, (all) => all.filter(({ k }) => k === 'DeploymentPlan').length === count); };
  await w.plan(acme, 'pro');
  await plans(1);
  assert.equal(await codeOf(w.who(key)), 'plan_limit');
  assert.equal(await codeOf(w.who(`${key.slice(0, -1)}${key.endsWith('A') ? 'B' : 'A'}`)), 'unauthorized', 'only who has the key learns of it');
  const { deployments } = listed.parse((await w.call('deployments', 'owner', { orgId: acme })).body);
  assert.equal(deployments[0]?.status, 'stopped');
  await w.host.ask(at, 'plan', { managed: true, revision: '0' });
  assert.equal(await codeOf(w.who(key)), 'plan_limit', 'an older word');
  await w.plan(acme, 'enterprise');
  await plans(2);
  assert.equal((await w.who(key))?.deploymentId, id);
});

test('deployments - with their organization their credentials end [RUN-045]', async (t) => {
  const w = await deploymentWorld(t);
  await w.found(acme);
  const { id, key } = await w.create(acme);
  await w.host.ask({ org: acme, type: 'organization', key: acme }, 'remove', { by: person('owner') });
  await w.host.until(deploymentAt({ organizationId: acme, id }), (all) => all.some(({ k }) => k === 'DeprovisionRequested'));
  assert.equal(await codeOf(w.who(key)), 'unauthorized');
  assert.deepEqual(w.work, [], 'the organization erases everything itself');
  assert.equal(await codeOf(w.call('deployments', 'owner', { orgId: acme })), 'not_found');
});

test('deployments - the agent\'s soul says who made it for what and when, under its hash, and never changes; its private keys are sealed [RUN-038]', async (t) => {
  const w = await deploymentWorld(t);
  await w.found(acme);
  const one = await w.create(acme);
  const two = await w.create(acme, 'Two');
  const { agent } = deploymentCommands.credentials.output.parse(await w.host.ask(deploymentAt(one), 'credentials', {}));
  const { hash, ...genesis } = agent.soul;
  assert.deepEqual([genesis.name, genesis.purpose, genesis.creator], ['One', 'To be tested', 'usr_owner']);
  assert.equal(createHash('sha256').update(canonicalJson(genesis)).digest('hex'), hash);
  assert.match(agent.did, /^did:key:z6Mk/);
  const again = deploymentCommands.credentials.output.parse(await w.host.ask(deploymentAt(two), 'credentials', {})).agent;
  assert.notEqual(again.did, agent.did);
  assert.deepEqual(Buffer.from(agent.keys.wallet_pubkey, 'base64').length, 65);
  await w.call('changeDeployment', 'owner', { orgId: acme, id: one.id, action: 'rotate_key' });
  assert.deepEqual(deploymentCommands.credentials.output.parse(await w.host.ask(deploymentAt(one), 'credentials', {})).agent, agent);
});

test('deployments - how long an economic mode must be due is the configuration\'s when the deployment is made, journaled there; without one, five minutes', async (t) => {
  for (const [options, held] of [[{ modeHoldMs: 25 }, 25], [{}, limits.regulationHoldMs]] as const) {
    const w = await deploymentWorld(t, options);
    await w.found(acme);
    const made = await w.create(acme);
    const address = regulationAddress(acme, made.id);
    await w.host.until(address, (all) => all.some(({ k }) => k === 'RegulationBegun'));
    assert.deepEqual((await w.host.events(address)).flatMap(({ k, d }) => (k === 'RegulationBegun' ? [d['hold_ms']] : [])), [held]);
  }
});
