/** Custody end to end: client over TLS, gateway, daemons, journal. Keys and signatures, base64, bodies, and that no key leaves. */
import assert from 'node:assert/strict';
import { createDecipheriv, createHash, createPublicKey, generateKeyPairSync, randomBytes, randomInt, verify, type KeyObject } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { secp256k1 } from '@noble/curves/secp256k1.js';
import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from 'nats';
import { audiences, scopes } from '../../contracts/capability.ts';
import { custodyEvents, type CustodyKeys } from '../../contracts/custody.ts';
import { routeList } from '../../contracts/routes.ts';
import { decodeCommit } from '../../actors/runtime/commit.ts';
import { refusalOf, startCustody, textOf, type CustodyEdge } from '../harness/custody.ts';

const standardPadded = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;
const digest = (): Buffer => randomBytes(32);
const bytes = (base64: string): Buffer => Buffer.from(base64, 'base64');
const custodyRoutes = routeList.filter((r) => r.path.startsWith('/custody/'));
/** A body that its route takes, as far as its form goes. */
const bodyOf = (route: string, user_id: string): Record<string, unknown> => ({
  user_id,
  ...(route.startsWith('sign_') ? { digest_b64: Buffer.alloc(32, 1).toString('base64') } : {}),
  ...(route === 'enroll_passkey' ? { attestation_object_b64: 'AAAA', client_data_json_b64: 'AAAA' } : {}),
});

const ed25519 = (raw: Buffer): KeyObject => createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x: raw.toString('base64url') }, format: 'jwk' });
const secp = (raw: Buffer): KeyObject => createPublicKey({
  key: { kty: 'EC', crv: 'secp256k1', x: raw.subarray(1, 33).toString('base64url'), y: raw.subarray(33).toString('base64url') }, format: 'jwk',
});

describe('custody', () => {
  let edge: CustodyEdge;
  before(async () => {
    edge = await startCustody({ daemons: 2, gateways: 2 });
  });
  after(() => edge.stack.stop());

  const authKey = async (sub: string, token: string): Promise<Buffer> => bytes(textOf(await edge.call('get_auth_pubkey', token, { user_id: sub }), 'pubkey_b64'));
  const walletKey = async (sub: string, token: string): Promise<Buffer> => bytes(textOf(await edge.call('get_wallet_pubkey', token, { user_id: sub }), 'pubkey_b64'));

  test('custody - the six routes and challenge are POST under /custody/, and only POST [CUS-001]', async () => {
    assert.deepEqual(custodyRoutes.map((r) => r.id).toSorted(), ['challenge', 'enroll_passkey', 'get_auth_pubkey', 'get_wallet_pubkey', 'mint_session_cap', 'sign_auth', 'sign_wallet']);
    const token = await edge.capability('route');
    for (const { path, id } of custodyRoutes) {
      const reply = await edge.post(path, token, bodyOf(id, 'route'));
      // A passkey cannot be made of noise; every other route answers.
      assert.equal(reply.status, id === 'enroll_passkey' ? 400 : 200, `${id} ${reply.text}`);
      assert.deepEqual(refusalOf(await edge.get(path, token)), [404, 'not_found'], id);
    }
    assert.deepEqual(refusalOf(await edge.call('sign', token, { user_id: 'route' })), [404, 'not_found']);
  });

  test('custody - sign_auth signs as Ed25519 under get_auth_pubkey\'s 32 bytes; base64 out is standard and padded [CUS-002] [CUS-008] [CUS-012]', async () => {
    const token = await edge.capability('ada');
    const key = await authKey('ada', token);
    assert.equal(key.length, 32);
    for (let i = 0; i < 8; i++) {
      const given = digest();
      const text = textOf(await edge.call('sign_auth', token, { user_id: 'ada', digest_b64: given.toString('base64') }), 'signature_b64');
      assert.match(text, standardPadded);
      assert.equal(bytes(text).length, 64);
      assert.ok(verify(null, given, ed25519(key), bytes(text)));
      assert.ok(!verify(null, digest(), ed25519(key), bytes(text)));
    }
  });

  test('custody - sign_wallet signs as low-s secp256k1 under get_wallet_pubkey\'s 65 bytes [CUS-004] [CUS-005] [CUS-009]', async () => {
    const token = await edge.capability('ada');
    const key = await walletKey('ada', token);
    assert.deepEqual([key.length, key[0]], [65, 0x04]);
    const half = secp256k1.Point.Fn.ORDER >> 1n;
    // Half of all plain signatures have a high s: 16 of them pass by chance once in 65,536 runs.
    for (let i = 0; i < 16; i++) {
      const message = digest();
      const given = createHash('sha256').update(message).digest();
      const text = textOf(await edge.call('sign_wallet', token, { user_id: 'ada', digest_b64: given.toString('base64') }), 'signature_b64');
      assert.match(text, standardPadded);
      const signature = bytes(text);
      assert.equal(signature.length, 64);
      // OpenSSL, not the library that signed.
      assert.ok(verify('sha256', message, { key: secp(key), dsaEncoding: 'ieee-p1363' }, signature));
      assert.ok(BigInt(`0x${signature.subarray(32).toString('hex')}`) <= half);
    }
  });

  test('custody - a digest that is not base64 of 32 bytes is 400 bad_digest [CUS-003]', async () => {
    const token = await edge.capability('ada');
    const good = digest().toString('base64');
    const cases = ['', 'x', '!'.repeat(44), `${good} `, `${good}\n`, `=${good.slice(1)}`, good.slice(0, 42), good.replace(/.=$/, '_/'), `${good.slice(0, 42)}//`,
      randomBytes(31).toString('base64'), randomBytes(33).toString('base64'), randomBytes(64).toString('base64url'), randomBytes(20_000).toString('base64'), digest().toString('hex'), `0x${digest().toString('hex')}`];
    for (const route of ['sign_auth', 'sign_wallet']) {
      for (const digest_b64 of cases) assert.deepEqual(refusalOf(await edge.call(route, token, { user_id: 'ada', digest_b64 })), [400, 'bad_digest'], digest_b64.slice(0, 60));
    }
  });

  test('custody - a digest may be standard or URL-safe, padded or not: one value, one signature [CUS-011]', async () => {
    const token = await edge.capability('ada');
    const given = Buffer.from('fb'.repeat(16) + 'ef'.repeat(16), 'hex');
    const standard = given.toString('base64');
    const safe = given.toString('base64url');
    assert.ok(/[+/]/.test(standard) && /[-_]/.test(safe));
    for (const route of ['sign_auth', 'sign_wallet']) {
      const answers = await Promise.all([standard, standard.replace(/=+$/, ''), safe, `${safe}=`].map(async (digest_b64) => textOf(await edge.call(route, token, { user_id: 'ada', digest_b64 }), 'signature_b64')));
      assert.equal(new Set(answers).size, 1);
    }
  });

  test('custody - many first uses at once, over two gateways and two daemons, give one pair', async () => {
    for (let round = 0; round < 4; round++) {
      const sub = `first-${round}-${randomInt(1e9)}`;
      const token = await edge.capability(sub);
      const answers = await Promise.all(Array.from({ length: 12 }, async (_, i) => edge.call(i % 2 === 0 ? 'get_auth_pubkey' : 'get_wallet_pubkey', token, { user_id: sub })));
      const keys = answers.map((reply) => textOf(reply, 'pubkey_b64'));
      assert.equal(new Set(keys).size, 2);
      const given = digest();
      const signature = textOf(await edge.call('sign_auth', token, { user_id: sub, digest_b64: given.toString('base64') }), 'signature_b64');
      assert.ok(verify(null, given, ed25519(bytes(keys[0] ?? '')), bytes(signature)));
    }
  });

  test('custody - keys stay over kills of every daemon; users, and organizations of one user, have their own [CUS-010]', async () => {
    const token = await edge.capability('grace');
    const before = [await authKey('grace', token), await walletKey('grace', token)];
    await Promise.all(edge.stack.daemons.map((daemon) => daemon.restart()));
    await Promise.all(edge.stack.gateways.map((gateway) => gateway.ready()));
    assert.deepEqual([await authKey('grace', token), await walletKey('grace', token)], before);
    const given = digest();
    const signature = textOf(await edge.call('sign_auth', token, { user_id: 'grace', digest_b64: given.toString('base64') }), 'signature_b64');
    assert.ok(verify(null, given, ed25519(before[0] ?? Buffer.alloc(0)), bytes(signature)));
    const all = await Promise.all([
      authKey('grace', token), edge.capability('grace', 'acme').then((other) => authKey('grace', other)), edge.capability('linus').then((other) => authKey('linus', other)),
    ]);
    assert.equal(new Set(all.map((key) => key.toString('hex'))).size, 3);
  });

  test('custody - user_id is 1 to 128 characters without control characters, else 400 bad_user_id [CUS-024] [CUS-025]', async () => {
    const long = 'x'.repeat(128);
    const token = await edge.capability(long);
    assert.equal((await authKey(long, token)).length, 32);
    for (const { id } of custodyRoutes) {
      for (const user_id of ['', 'x'.repeat(129), 'a\u0000b', 'a\nb', 'a\u007f', '\u0085', 'a\u001b']) {
        assert.deepEqual(refusalOf(await edge.call(id, token, bodyOf(id, user_id))), [400, 'bad_user_id'], `${id} ${JSON.stringify(user_id.slice(0, 8))}`);
      }
    }
  });

  test('custody - an unknown, missing or ill-typed field is 422, and nothing is signed or minted [CUS-026]', async () => {
    const token = await edge.capability('ada');
    for (const { id } of custodyRoutes) {
      const good = bodyOf(id, 'ada');
      const bad = [{ ...good, extra: 1 }, { ...good, user_id: 7 }, { ...good, user_id: null }, { ...good, user_id: undefined }, { ...good, UserId: 'ada' }, [], 'text', 7,
        ...Object.keys(good).slice(1).flatMap((field) => [{ ...good, [field]: 1 }, { ...good, [field]: undefined }, { ...good, [field]: [good[field]] }]),
        ...(id === 'mint_session_cap' ? [{ ...good, passkey_assertion_b64: {} }, { ...good, client_data_json_b64: null }] : [])];
      for (const body of bad) {
        const reply = await edge.post(`/custody/${id}`, token, JSON.stringify(body));
        assert.deepEqual(refusalOf(reply), [422, 'validation_error'], `${id} ${JSON.stringify(body)}`);
        assert.ok(!/signature|token/.test(reply.text), reply.text);
      }
      assert.deepEqual(refusalOf(await edge.post(`/custody/${id}`, token, '{"user_id": "ada"')), [400, 'bad_request']);
    }
  });

  test('custody - without a capability it is 401; an identity token is 403 wrong_audience, and neither makes keys [CUS-027] [GWA-022]', async () => {
    const sub = `nobody-${randomInt(1e9)}`;
    const identity = await edge.stack.token(sub);
    for (const { id } of custodyRoutes) {
      assert.deepEqual(refusalOf(await edge.call(id, undefined, bodyOf(id, sub))), [401, 'unauthorized'], id);
      assert.deepEqual(refusalOf(await edge.call(id, identity, bodyOf(id, sub))), [403, 'wrong_audience'], id);
    }
    assert.deepEqual(await sealedKeys(edge, sub), []);
  });

  test('custody - a capability of another audience is 403 on every custody route [GWA-024]', async () => {
    for (const aud of [audiences.agent, 'custody', `${audiences.custody}.x`]) {
      const token = await edge.forge('ada', { aud });
      for (const { id } of custodyRoutes) assert.deepEqual(refusalOf(await edge.call(id, token, bodyOf(id, 'ada'))), [403, 'wrong_audience'], id);
    }
  });

  test('custody - a capability on an agent route or bootstrap is 403 wrong_audience and mints nothing [GWA-023]', async () => {
    const token = await edge.capability('ada');
    for (const [path, body] of [['/v1/agent/create_session', { user_id: 'ada', project_id: 'p' }], ['/troupe/v1/auth/bootstrap', { user_id: 'ada' }]] as const) {
      const reply = await edge.post(path, token, body);
      assert.deepEqual(refusalOf(reply), [403, 'wrong_audience']);
      assert.ok(!/token"/.test(reply.text));
    }
  });

  test('custody - each scope opens its own routes and no other; none opens nothing, with required and present told [GWA-025] [GWA-026] [GWA-027] [CUS-029]', async () => {
    const opens: Record<string, string[]> = {
      [scopes.signAuth]: ['sign_auth'], [scopes.signWallet]: ['sign_wallet'], [scopes.getPubkey]: ['get_auth_pubkey', 'get_wallet_pubkey'],
      [scopes.mintSessionCap]: ['mint_session_cap', 'challenge'], [scopes.enrollPasskey]: ['enroll_passkey', 'challenge'], [scopes.agentSession]: [],
    };
    for (const [scope, opened] of [...Object.entries(opens), [undefined, []], ['', []]] as [string | undefined, string[]][]) {
      const token = await edge.forge('ada', { scope: scope === undefined ? undefined : scope === '' ? [] : [scope] });
      for (const route of custodyRoutes) {
        const reply = await edge.call(route.id, token, bodyOf(route.id, 'ada'));
        if (opened.includes(route.id)) {
          assert.notEqual(reply.status, 403, `${scope} ${route.id}`);
          continue;
        }
        assert.deepEqual(refusalOf(reply), [403, 'scope_insufficient'], `${scope} ${route.id}`);
        assert.ok(route.auth.kind === 'tier2' && typeof reply.json === 'object' && reply.json !== null && 'required' in reply.json && 'present' in reply.json);
        assert.deepEqual([reply.json.required, reply.json.present], [route.auth.scopes, scope === undefined || scope === '' ? [] : [scope]]);
      }
    }
  });

  test('custody - a token of one user signs, reads and mints for no other [GWA-028]', async () => {
    const token = await edge.capability('mallory');
    for (const { id } of custodyRoutes) {
      const reply = await edge.call(id, token, bodyOf(id, 'ada'));
      assert.deepEqual(refusalOf(reply), [403, 'user_id_mismatch'], id);
      assert.ok(!/_b64"|"token"/.test(reply.text), reply.text);
    }
  });

  test('custody - an expired, early, foreign or changed capability is 401 [GWA-030]', async () => {
    const nowSec = Math.floor(Date.now() / 1_000);
    const foreign = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
    const [head, body, tail] = (await edge.forge('ada')).split('.');
    const other = (await edge.forge('mallory')).split('.')[1];
    for (const token of [
      await edge.forge('ada', { exp: nowSec - 1 }), await edge.forge('ada', { nbf: nowSec + 60 }), await edge.forge('ada', {}, foreign),
      `${head}.${other}.${tail}`, `${head}.${body}.${tail?.slice(2)}AA`, `${head}.${body}.`,
    ]) {
      for (const { id } of custodyRoutes) assert.deepEqual(refusalOf(await edge.call(id, token, bodyOf(id, 'ada'))), [401, 'unauthorized'], id);
    }
  });

  test('custody - no private key is in the journal, in any file of NATS, in a log or in an answer [CUS-028]', async () => {
    const sub = `secret-${randomInt(1e9)}`;
    const token = await edge.capability(sub);
    const answers: string[] = [];
    for (const { id } of custodyRoutes) {
      for (const body of [bodyOf(id, sub), { ...bodyOf(id, sub), extra: 1 }, bodyOf(id, 'other')]) answers.push((await edge.call(id, token, body)).text);
    }
    const kept = await sealedKeys(edge, sub);
    assert.equal(kept.length, 1);
    const [keys] = kept;
    assert.ok(keys !== undefined);

    // Opened by code of its own, so that what is looked for is what is there.
    const master = bytes(await readFile(join(edge.stack.folder, 'master.key'), 'utf8'));
    const bound = (purpose: string, pubkey: string): string => ['troupe custody 1', `u-${sub}.custody.${sub}`, purpose, pubkey].join('\n');
    const dataKey = unseal(master, keys.data_key, bound('data', ''));
    const auth = unseal(dataKey, keys.auth_key, bound('auth', keys.auth_pubkey));
    const wallet = unseal(dataKey, keys.wallet_key, bound('wallet', keys.wallet_pubkey));
    assert.equal(Buffer.from(secp256k1.getPublicKey(wallet, false)).toString('base64'), keys.wallet_pubkey, 'the private key is the real one');
    assert.equal(auth.length, 32);

    const files = await Promise.all((await readdir(edge.stack.nats.dir, { recursive: true, withFileTypes: true }))
      .filter((entry) => entry.isFile()).map((entry) => readFile(join(entry.parentPath, entry.name))));
    const logs = Buffer.from([...edge.stack.daemons, ...edge.stack.gateways].flatMap((p) => p.lines()).join('\n'));
    const places = [...files, logs, Buffer.from(answers.join('\n'))];
    assert.ok(files.some((file) => file.includes(keys.auth_key)), 'the files looked at are those of the journal');
    assert.ok(logs.length > 1_000);
    for (const [name, secret] of Object.entries({ master, dataKey, auth, wallet })) {
      for (const form of [secret, secret.toString('hex'), secret.toString('base64').replace(/=+$/, ''), secret.toString('base64url')]) {
        assert.ok(!places.some((place) => place.includes(form)), `${name} as ${typeof form === 'string' ? 'text' : 'bytes'}`);
      }
    }
    for (const place of [logs, ...files]) assert.ok(!place.includes(token), 'a capability is in a log or in the journal');
  });
});

const unseal = (key: Buffer, text: string, bound: string): Buffer => {
  const sealed = bytes(text);
  const opening = createDecipheriv('aes-256-gcm', key, sealed.subarray(0, 12));
  opening.setAAD(Buffer.from(bound));
  opening.setAuthTag(sealed.subarray(-16));
  return Buffer.concat([opening.update(sealed.subarray(12, -16)), opening.final()]);
};

/** The keys in the journal of a user's custody actor: of every KeysAdopted. */
const sealedKeys = async (edge: CustodyEdge, sub: string): Promise<CustodyKeys[]> => {
  const nc = await connect({ servers: edge.stack.nats.url });
  try {
    const manager = await jetstreamManager(nc);
    const found: CustodyKeys[] = [];
    for await (const { config, state } of manager.streams.list()) {
      if (!config.name.startsWith('JOURNAL')) continue;
      for (let seq = state.first_seq; seq <= state.last_seq; seq++) {
        const message = await manager.streams.getMessage(config.name, { seq });
        if (message === null || !message.subject.endsWith(`.u-${sub}.custody.${sub}`)) continue;
        for (const event of decodeCommit(message.data).ev) if (event.k === 'KeysAdopted') found.push(custodyEvents.KeysAdopted.parse(event.d).keys);
      }
    }
    return found;
  } finally {
    await nc.close();
  }
};
