/** Credentials of deployments as the daemon judges them: every kind that is accepted, and whatever is just not one. */
import assert from 'node:assert/strict';
import { createHmac, generateKeyPairSync, sign, type KeyObject } from 'node:crypto';
import { test } from 'node:test';
import { exportSPKI, importJWK, SignJWT } from 'jose';
import { agentTokenHandlers } from '../../actors/daemon/deployment/agent-token.ts';
import type { DeploymentHandler } from '../../actors/daemon/deployment/deps.ts';
import { createDeploymentCallers, deploymentOfAgent } from '../../actors/daemon/deployment/callers.ts';
import { deploymentCommands } from '../../contracts/deployment-actor.ts';
import { deploymentOfKey, readDeploymentJwt } from '../../contracts/deployment-token.ts';
import { limits } from '../../contracts/limits.ts';
import { serviceJwt } from '../harness/deployment.ts';
import { deploymentAt, deploymentWorld, type DeploymentWorld, type Made } from '../harness/deployment-actor.ts';
import { codeOf } from '../harness/memory-host.ts';

const acme = 'org_01jd0000000000000000000a11';
const other = 'org_01jd0000000000000000000b22';
const encoded = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
const soon = (): number => Math.floor(Date.now() / 1_000) + 300;

/** A token with any header and claims, signed as `over` says. */
const forged = (header: object, claims: object, over: (signed: string) => Buffer): string => {
  const signed = `${encoded(header)}.${encoded(claims)}`;
  return `${signed}.${over(signed).toString('base64url')}`;
};
const hs = (secret: string | Buffer, algorithm = 'sha256') => (signed: string): Buffer => createHmac(algorithm, secret).update(signed).digest();

const agentToken = (w: DeploymentWorld, now: () => number = Date.now): DeploymentHandler => {
  const actors = { ask: ({ address, command, input }: { address: ReturnType<typeof deploymentAt>; command: string; input: unknown }) => w.host.ask(address, command, input) };
  const handler = agentTokenHandlers({ actors: actors as never, vault: w.vault, now, newUlid: () => 'X' }).plain?.['agent_token'];
  assert.ok(handler !== undefined);
  return handler;
};
const tokenOf = async (w: DeploymentWorld, made: Made, ttlSec?: number, now?: () => number): Promise<string> => {
  const caller = await w.who(made.key);
  assert.ok(caller !== undefined);
  const { body } = await agentToken(w, now)({ caller, context: { ip: '', user_agent: '' }, query: undefined, body: ttlSec === undefined ? {} : { ttl_sec: ttlSec }, signal: new AbortController().signal });
  return (body as { access_token: string }).access_token;
};

test('credentials - a key, a service JWT and an agent JWT each name their deployment and what they are [RUN-028] [RUN-029] [RUN-031]', async (t) => {
  const w = await deploymentWorld(t);
  await w.found(acme);
  const one = await w.create(acme);
  const shared = { organizationId: acme, deploymentId: one.id, agentId: one.agent.id, subject: one.id, writes: true };
  assert.deepEqual(await w.who(one.key), { ...shared, by: 'key' });
  // By kid, else the first of aud, iss, sub that is a deployment's id.
  for (const [claims, header] of [[{}, { kid: one.id }], [{ aud: one.id }, {}], [{ aud: ['x', one.id] }, {}], [{ iss: one.id }, {}], [{ sub: one.id, iss: 'service', aud: 'troupe' }, {}], [{ aud: 'dep_01jd0000000000000000000000' }, { kid: one.id }]] as const) {
    assert.deepEqual(await w.who(await serviceJwt(one.secret, claims, header)), { ...shared, by: 'service' }, JSON.stringify([claims, header]));
  }
  assert.deepEqual(await w.who(await tokenOf(w, one)), { ...shared, by: 'agent' });
});

test('credentials - a JWT that names no deployment is for the configured default one, and nobody\'s without that [RUN-029] [RUN-030]', async (t) => {
  const plain = await deploymentWorld(t);
  await plain.found(acme);
  const { secret } = await plain.create(acme);
  assert.equal(await codeOf(plain.who(await serviceJwt(secret, {}))), 'unauthorized');
  const before = await deploymentWorld(t);
  await before.found(acme);
  const one = await before.create(acme);
  const two = await before.create(acme, 'Two');
  const callers = createDeploymentCallers({
    actors: { ask: ({ address, command, input }: { address: ReturnType<typeof deploymentAt>; command: string; input: unknown }) => before.host.ask(address, command, input) } as never,
    vault: before.vault, defaultId: one.id, now: Date.now,
  });
  const route = { auth: { kind: 'deployment' } } as never;
  assert.equal((await callers.authorise(route, await serviceJwt(one.secret, { sub: 'a-service' })))?.deploymentId, one.id);
  assert.equal(await codeOf(callers.authorise(route, await serviceJwt(two.secret, { sub: 'a-service' }))), 'unauthorized', 'another deployment\'s secret');
  assert.equal((await callers.authorise(route, await serviceJwt(two.secret, { aud: two.id })))?.deploymentId, two.id);
});

test('credentials - wrong, altered, foreign and ended keys are nobody\'s [RUN-030] [RUN-031]', async (t) => {
  const w = await deploymentWorld(t);
  await w.found(acme);
  await w.found(other);
  const [one, two] = [await w.create(acme), await w.create(acme, 'Two')];
  const foreign = await w.create(other);
  const random = one.key.slice(-43);
  const swapped = (key: string, from: Made, to: Made): string => key.replace(from.id.slice(4), to.id.slice(4));
  const wrong = [
    '', 'trp_dk_', `${one.key}x`, one.key.slice(0, -1), ` ${one.key}`, one.key.toUpperCase(), one.key.replace('trp_dk_', 'trp_sk_'), one.secret, one.id,
    `${one.key.slice(0, -43)}${'A'.repeat(43)}`, `${one.key.slice(0, -43)}${[...random].toReversed().join('')}`,
    swapped(one.key, one, two), one.key.replace(acme.slice(4), other.slice(4)), swapped(one.key.replace(acme.slice(4), other.slice(4)), one, foreign),
    swapped(two.key, two, one), `${one.key.slice(0, -43)}${two.key.slice(-43)}`,
    // The last of 43 characters has two bits to spare: only the spelling that was given out counts.
    `${one.key.slice(0, -1)}${String.fromCharCode(one.key.charCodeAt(one.key.length - 1) ^ 1)}`,
  ];
  for (const key of wrong) assert.equal(await codeOf(w.who(key)), 'unauthorized', key);
  assert.equal((await w.who(one.key))?.deploymentId, one.id);
});

test('credentials - service JWTs with another secret, another algorithm, none, no end, or an end that is over are nobody\'s [RUN-030] [RUN-031]', async (t) => {
  const w = await deploymentWorld(t);
  await w.found(acme);
  const [one, two] = [await w.create(acme), await w.create(acme, 'Two')];
  const claims = { aud: one.id, exp: soon() };
  const head = { alg: 'HS256' };
  const good = forged(head, claims, hs(one.secret));
  assert.equal((await w.who(good))?.by, 'service');
  const none = (): Buffer => Buffer.alloc(0);
  const rsa = generateKeyPairSync('rsa', { modulusLength: 2_048 }).privateKey;
  const { agent } = deploymentCommands.credentials.output.parse(await w.host.ask(deploymentAt(one), 'credentials', {}));
  const publicKey = Buffer.from(agent.keys.auth_pubkey, 'base64');
  const spki = await exportSPKI(await importJWK({ kty: 'OKP', crv: 'Ed25519', x: publicKey.toString('base64url') }, 'EdDSA') as never);
  const wrong: Readonly<Record<string, string>> = {
    'another secret': forged(head, claims, hs('trp_ds_wrong')),
    'another deployment\'s secret': forged(head, claims, hs(two.secret)),
    'this secret for another deployment': forged(head, { ...claims, aud: two.id }, hs(one.secret)),
    'named twice, by kid another': forged({ ...head, kid: two.id }, claims, hs(one.secret)),
    'the key as secret': forged(head, claims, hs(one.key)),
    'an empty secret': forged(head, claims, hs('')),
    'alg none': forged({ alg: 'none' }, claims, none),
    'alg None': forged({ alg: 'None' }, claims, none),
    'no signature': good.split('.').slice(0, 2).join('.'),
    'an empty signature': `${good.split('.').slice(0, 2).join('.')}.`,
    'half a signature': good.slice(0, -20),
    'HS384': forged({ alg: 'HS384' }, claims, hs(one.secret, 'sha384')),
    'HS512': forged({ alg: 'HS512' }, claims, hs(one.secret, 'sha512')),
    'RS256': forged({ alg: 'RS256' }, claims, (signed) => sign('sha256', Buffer.from(signed), rsa)),
    'the public key as secret, raw': forged(head, claims, hs(publicKey)),
    'the public key as secret, base64': forged(head, claims, hs(agent.keys.auth_pubkey)),
    'the public key as secret, PEM': forged(head, claims, hs(spki)),
    'no alg': forged({}, claims, hs(one.secret)),
    'a critical extension': forged({ ...head, crit: ['b64'], b64: false }, claims, hs(one.secret)),
    'no exp': forged(head, { aud: one.id }, hs(one.secret)),
    'exp as text': forged(head, { ...claims, exp: String(soon()) }, hs(one.secret)),
    'just over': forged(head, { ...claims, exp: Math.floor(Date.now() / 1_000) - 1 }, hs(one.secret)),
    'over for a day': forged(head, { ...claims, exp: soon() - 86_400 }, hs(one.secret)),
    'not yet': forged(head, { ...claims, nbf: soon() + 3_600 }, hs(one.secret)),
    'other claims under the signature': `${encoded(head)}.${encoded({ ...claims, exp: soon() + 1 })}.${good.split('.')[2] ?? ''}`,
    'no JSON': `${Buffer.from('{').toString('base64url')}.${encoded(claims)}.AAAA`,
    'four parts': `${good}.AAAA`,
    'a deployment that is not there': forged(head, { ...claims, aud: 'dep_01jd0000000000000000000000' }, hs(one.secret)),
  };
  for (const [what, token] of Object.entries(wrong)) assert.equal(await codeOf(w.who(token)), 'unauthorized', what);
  assert.equal((await w.who(forged(head, { ...claims, nbf: Math.floor(Date.now() / 1_000) + 5 }, hs(one.secret))))?.by, 'service', 'clocks differ a little');
  w.offsetMs = 301_000;
  assert.equal(await codeOf(w.who(good)), 'unauthorized', 'once its time is over');
});

test('credentials - agent JWTs of another agent, for another deployment, by another name or another algorithm are nobody\'s [RUN-030] [RUN-031]', async (t) => {
  const w = await deploymentWorld(t);
  await w.found(acme);
  const [one, two] = [await w.create(acme), await w.create(acme, 'Two')];
  const keysOf = async (made: Made) => deploymentCommands.credentials.output.parse(await w.host.ask(deploymentAt(made), 'credentials', {})).agent.keys;
  const signer = async (made: Made): Promise<(signed: string) => Buffer> => {
    const keys = await keysOf(made);
    return (signed) => Buffer.from(w.vault.signAuth(deploymentAt(made), keys, Buffer.from(signed)));
  };
  const [byOne, byTwo] = [await signer(one), await signer(two)];
  const head = { alg: 'EdDSA', kid: one.agent.did };
  const claims = { iss: one.agent.did, aud: one.id, exp: soon() };
  for (const [header, payload] of [[head, claims], [{ alg: 'EdDSA' }, { ...claims, iss: one.agent.id }], [{ alg: 'EdDSA', kid: one.agent.id }, { aud: one.id, exp: soon() }], [{ ...head, kid: `${one.agent.did}#${one.agent.did.slice(8)}` }, claims]] as const) {
    assert.equal((await w.who(forged(header, payload, byOne)))?.by, 'agent', JSON.stringify([header, payload]));
  }
  const stranger: KeyObject = generateKeyPairSync('ed25519').privateKey;
  const wrong: Readonly<Record<string, string>> = {
    'another agent\'s signature': forged(head, claims, byTwo),
    'another agent as itself': forged({ alg: 'EdDSA', kid: two.agent.did }, { ...claims, iss: two.agent.did }, byTwo),
    'a stranger\'s signature': forged(head, claims, (signed) => sign(null, Buffer.from(signed), stranger)),
    'another deployment': forged(head, { ...claims, aud: two.id }, byOne),
    'the deployment by iss only': forged({ alg: 'EdDSA', kid: one.agent.did }, { iss: one.id, exp: soon() }, byOne),
    'no name': forged({ alg: 'EdDSA' }, { aud: one.id, exp: soon() }, byOne),
    'kid and iss differ': forged(head, { ...claims, iss: two.agent.did }, byOne),
    'over': forged(head, { ...claims, exp: soon() - 301 }, byOne),
    'no exp': forged(head, { iss: one.agent.did, aud: one.id }, byOne),
    'as HS256 with the public key': forged({ ...head, alg: 'HS256' }, claims, hs(Buffer.from((await keysOf(one)).auth_pubkey, 'base64'))),
    'the secret\'s signature as EdDSA': forged(head, claims, hs(one.secret)),
    'Ed448': forged({ ...head, alg: 'Ed448' }, claims, byOne),
    'empty': forged(head, claims, () => Buffer.alloc(0)),
    'zeros': forged(head, claims, () => Buffer.alloc(64)),
  };
  for (const [what, token] of Object.entries(wrong)) assert.equal(await codeOf(w.who(token)), 'unauthorized', what);
});

test('credentials - the agent\'s token lives 15 minutes at most, is asked for with the key only, and ends with the deployment [RUN-028] [RUN-045]', async (t) => {
  const w = await deploymentWorld(t);
  await w.found(acme);
  const one = await w.create(acme);
  const token = await tokenOf(w, one);
  const read = readDeploymentJwt(token);
  assert.ok(read !== undefined);
  assert.deepEqual([read.head.alg, read.head.kid, read.claims.iss, read.claims.sub, read.deploymentId], ['EdDSA', one.agent.did, one.agent.did, one.agent.id, one.id]);
  assert.equal(read.claims.exp - (read.claims.iat ?? 0), limits.agentTokenTtlSec);
  assert.equal(limits.agentTokenTtlSec, 900);
  const short = readDeploymentJwt(await tokenOf(w, one, 60));
  assert.equal((short?.claims.exp ?? 0) - (short?.claims.iat ?? 0), 60);
  for (const by of [token, await serviceJwt(one.secret, { aud: one.id })]) {
    const caller = await w.who(by);
    assert.ok(caller !== undefined);
    assert.equal(await codeOf(agentToken(w)({ caller, context: { ip: '', user_agent: '' }, query: undefined, body: {}, signal: new AbortController().signal })), 'forbidden');
  }
  const [old, service] = [await tokenOf(w, one, undefined, () => Date.now() - 900_000), await serviceJwt(one.secret, { aud: one.id })];
  assert.equal(await codeOf(w.who(old)), 'unauthorized');
  assert.equal((await w.who(service))?.by, 'service');
  await w.call('deleteDeployment', 'owner', { orgId: acme, id: one.id });
  for (const by of [token, service, one.key]) assert.equal(await codeOf(w.who(by)), 'unauthorized');
});

test('credentials - an agent\'s id leads to its deployment, anything else to nobody [REG-028]', async (t) => {
  const w = await deploymentWorld(t);
  await w.found(acme);
  const one = await w.create(acme);
  const actors = { ask: ({ address, command, input }: { address: ReturnType<typeof deploymentAt>; command: string; input: unknown }) => w.host.ask(address, command, input) } as never;
  assert.deepEqual(await deploymentOfAgent(actors, one.agent.id), { organizationId: acme, deploymentId: one.id });
  assert.equal(await deploymentOfAgent(actors, 'agt_01jd0000000000000000000000'), undefined);
  assert.deepEqual(deploymentOfKey(one.key), { organizationId: acme, deploymentId: one.id });
  // jose makes what we read, and reads what we make.
  const jwt = await new SignJWT({ aud: one.id }).setExpirationTime('5m').setProtectedHeader({ alg: 'HS256' }).sign(new TextEncoder().encode(one.secret));
  assert.equal((await w.who(jwt))?.deploymentId, one.id);
});
