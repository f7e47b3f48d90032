/** Custody's parts: base64, did:key, the vault's seals, the actor's rules over time and crashes, the daemon's handlers. */
import assert from 'node:assert/strict';
import { createPublicKey, randomBytes, verify } from 'node:crypto';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { decodeBase64 } from '../../actors/custody/base64.ts';
import { custody } from '../../actors/custody/custody.ts';
import { didKey } from '../../actors/custody/did.ts';
import { createVault, readMasterKey } from '../../actors/custody/vault.ts';
import { challengeHash, createWebauthn } from '../../actors/custody/webauthn.ts';
import { custodyHandlers } from '../../actors/daemon/custody.ts';
import type { Principal } from '../../contracts/capability.ts';
import { custodyAnswers, custodyCommands, type Passkey } from '../../contracts/custody.ts';
import { CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { routeList } from '../../contracts/routes.ts';
import { actorHost, type ActorHost } from '../harness/actor-host.ts';
import { assertionB64, passkeyHolder } from '../harness/passkey.ts';

const master = (): ReturnType<typeof readMasterKey> => readMasterKey(randomBytes(32).toString('base64'));
const ada = { org: 'acme', type: 'custody', key: 'ada' };
const at = { origin: 'https://chat.example.com', rpId: 'example.com' };
const codeOf = async (work: Promise<unknown>): Promise<string> => {
  const error = await work.then(() => undefined, (e: unknown) => e);
  return error instanceof CodedError ? error.code : `not refused: ${String(error)}`;
};

describe('custody base64', () => {
  test('base64 - both alphabets, padded or not, are the same bytes [CUS-011]', () => {
    fc.assert(fc.property(fc.uint8Array({ maxLength: 80 }), (bytes) => {
      const standard = Buffer.from(bytes).toString('base64');
      const pad = '='.repeat(standard.length - standard.replace(/=+$/, '').length);
      const safe = Buffer.from(bytes).toString('base64url');
      for (const text of [standard, standard.replace(/=+$/, ''), safe, safe + pad]) assert.deepEqual(decodeBase64(text), Buffer.from(bytes));
    }));
  });

  test('base64 - mixed alphabets, wrong padding, stray bits, white space and other characters are no base64', () => {
    for (const text of ['+_8=', 'A', 'AAAAA', 'AA=', 'AA===', 'AAA==', 'A===', '=', '==', 'AB', 'AAB', 'AA==AA==', 'AA AA', 'AAAA\n', ' AAAA', 'AA.A', 'AAAÄ', 'AAAA=']) {
      assert.equal(decodeBase64(text), undefined, JSON.stringify(text));
    }
    assert.deepEqual(decodeBase64(''), Buffer.alloc(0));
  });
});

test('did - an Ed25519 key is z, base58btc of 0xed01 and the key: the example of the did:key method', () => {
  // W3C CCG did:key, example of an Ed25519 document: publicKeyBase58 B12NYF8RrR3h41TDCTJojY59usg3mbtbjnFs7Eud1Y6u.
  let value = 0n;
  for (const char of 'B12NYF8RrR3h41TDCTJojY59usg3mbtbjnFs7Eud1Y6u') value = value * 58n + BigInt('123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz'.indexOf(char));
  assert.equal(didKey(Buffer.from(value.toString(16).padStart(64, '0'), 'hex')), 'did:key:z6MkpTHR8VNsBxYAAWHut2Geadd9jSwuBV8xRoAnwWsdvktH');
});

describe('custody vault', () => {
  test('vault - a master key is 32 bytes in base64, of either alphabet; anything else is refused without saying it', () => {
    const key = randomBytes(32);
    readMasterKey(`${key.toString('base64')}\n`);
    readMasterKey(key.toString('base64url'));
    for (const text of ['', 'secret-words', randomBytes(31).toString('base64'), randomBytes(33).toString('base64'), key.toString('hex')]) {
      assert.throws(() => readMasterKey(text), (error) => error instanceof CodedError && error.code === 'bad_request' && (text === '' || !error.message.includes(text)));
    }
  });

  test('vault - sealed keys open only for their actor, their purpose, beside their public key, unchanged, under their master key', () => {
    const key = master();
    const vault = createVault(key);
    const keys = vault.make(ada);
    const digest = randomBytes(32);
    assert.deepEqual(createVault(key).signAuth(ada, keys, digest), vault.signAuth(ada, keys, digest), 'another daemon with the same master key');
    const other = vault.make(ada);
    const changed = (text: string): string => {
      const bytes = Buffer.from(text, 'base64');
      bytes[20] = (bytes[20] ?? 0) ^ 1;
      return bytes.toString('base64');
    };
    const signs = (self = ada, given = keys, by = vault): void => {
      assert.throws(() => by.signAuth(self, given, digest));
      assert.throws(() => by.signWallet(self, given, digest));
    };
    signs({ ...ada, key: 'eve' });
    signs({ ...ada, org: 'evil' });
    signs(ada, { ...keys, auth_key: keys.wallet_key, wallet_key: keys.auth_key });
    signs(ada, { ...keys, auth_pubkey: other.auth_pubkey, wallet_pubkey: other.wallet_pubkey });
    signs(ada, { ...keys, data_key: other.data_key });
    signs(ada, { ...keys, data_key: changed(keys.data_key) });
    signs(ada, { ...keys, auth_key: changed(keys.auth_key), wallet_key: changed(keys.wallet_key) });
    signs(ada, { ...keys, auth_key: 'AAAA', wallet_key: 'AAAA' });
    signs(ada, keys, createVault(master()));
    assert.throws(() => createVault(master()).signAuth(ada, keys, digest), /sealed by master key [\w-]{11}; this daemon has [\w-]{11}$/);
  });

  test('vault - two pairs share nothing, not even a sealed byte string', () => {
    const vault = createVault(master());
    const [one, two] = [vault.make(ada), vault.make(ada)];
    for (const field of ['data_key', 'auth_key', 'wallet_key', 'auth_pubkey', 'wallet_pubkey'] as const) assert.notEqual(one[field], two[field]);
  });
});

describe('custody actor', () => {
  const withHost = async (work: (host: ActorHost, ask: (command: keyof typeof custodyCommands, input: unknown, principal?: Principal) => Promise<unknown>) => Promise<void>): Promise<void> => {
    const host = actorHost([custody()]);
    try {
      await work(host, (command, input, principal) => host.ask(ada, command, input, principal));
    } finally {
      host.stop();
    }
  };
  const hash = (): string => challengeHash(randomBytes(32));
  const passkey = (credential_id: string, counter = 0): Passkey => ({ credential_id, public_key: 'AAAA', counter, device: 'single' });

  test('custody actor - the first keys hold, over crashes at every append', async () => {
    const vault = createVault(master());
    for (const stored of [false, true]) {
      for (const n of [1, 2]) {
        await withHost(async (host, ask) => {
          host.crashAt(n, stored);
          const [one, two] = [vault.make(ada), vault.make(ada)];
          const answers = await Promise.all([ask('adopt', { keys: one }), ask('adopt', { keys: two })]);
          assert.deepEqual(answers[0], answers[1]);
          assert.deepEqual(await ask('adopt', { keys: vault.make(ada) }), answers[0]);
          host.crash();
          assert.deepEqual(await ask('keys', {}), answers[0]);
          assert.equal((await host.events(ada)).filter((event) => event.k === 'KeysAdopted').length, 1);
        });
      }
    }
  });

  test('custody actor - only the daemon may ask: users and integrators are forbidden every command', async () => {
    await withHost(async (_host, ask) => {
      const inputs: Record<keyof typeof custodyCommands, unknown> = {
        keys: {}, adopt: { keys: createVault(master()).make(ada) }, challenge: { challenge_sha256: hash() }, passkeys: {},
        enroll: { challenge_sha256: hash(), passkey: passkey('p') }, assert: { challenge_sha256: hash(), credential_id: 'p', counter: 1 },
      };
      for (const principal of [{ kind: 'user', sub: 'ada', org: 'acme', scopes: [] }, { kind: 'integrator', org: 'acme' }] as const) {
        for (const [command, input] of Object.entries(inputs)) {
          assert.equal(await codeOf(ask(command as keyof typeof custodyCommands, input, principal)), 'forbidden', command);
        }
      }
    });
  });

  test('custody actor - a challenge ends with its time, and is used up once', async () => {
    await withHost(async (host, ask) => {
      const [late, used] = [hash(), hash()];
      await ask('challenge', { challenge_sha256: late });
      host.advance(limits.challengeTtlMs);
      assert.equal(await codeOf(ask('enroll', { challenge_sha256: late, passkey: passkey('p') })), 'bad_attestation');
      assert.equal(await codeOf(ask('assert', { challenge_sha256: late, credential_id: 'p', counter: 1 })), 'bad_assertion');
      await ask('challenge', { challenge_sha256: used });
      await ask('enroll', { challenge_sha256: used, passkey: passkey('p') });
      assert.equal(await codeOf(ask('enroll', { challenge_sha256: used, passkey: passkey('q') })), 'bad_attestation');
      host.crash();
      assert.equal(await codeOf(ask('enroll', { challenge_sha256: used, passkey: passkey('q') })), 'bad_attestation');
      assert.deepEqual(await ask('passkeys', {}), { passkeys: [passkey('p')] });
    });
  });

  test('custody actor - two assertions checked against one old counter: only the growing one is taken [CUS-023]', async () => {
    await withHost(async (_host, ask) => {
      const fresh = async (): Promise<string> => {
        const challenge_sha256 = hash();
        await ask('challenge', { challenge_sha256 });
        return challenge_sha256;
      };
      await ask('enroll', { challenge_sha256: await fresh(), passkey: passkey('p') });
      const assertAt = async (counter: number): Promise<unknown> => ask('assert', { challenge_sha256: await fresh(), credential_id: 'p', counter });
      await assertAt(0);
      await assertAt(0);
      await assertAt(3);
      for (const counter of [0, 2, 3]) assert.equal(await codeOf(assertAt(counter)), 'bad_assertion', String(counter));
      await assertAt(4);
      assert.equal(await codeOf(ask('assert', { challenge_sha256: await fresh(), credential_id: 'unknown', counter: 9 })), 'bad_assertion');
    });
  });
});

describe('custody handlers', () => {
  const setUp = (webauthn: typeof at | 'off' = at): { host: ActorHost; call: (route: string, body: object) => Promise<unknown> } => {
    const host = actorHost([custody()]);
    const handlers = custodyHandlers({
      actors: { ask: (message) => host.ask(message.address, message.command, message.input, message.principal) },
      vault: createVault(master()), webauthn: createWebauthn(webauthn === 'off' ? undefined : { rpId: webauthn.rpId, origins: [webauthn.origin] }),
    });
    return {
      host,
      call: async (id, body) => {
        const route = routeList.find((r) => r.id === id);
        const handler = handlers[id];
        assert.ok(route !== undefined && handler !== undefined);
        const { status, body: answer } = await handler({
          principal: { kind: 'user', sub: 'ada', org: 'acme', scopes: [] }, body: { user_id: 'ada', ...body },
          call: { route, token: '', body: Buffer.alloc(0), deadlineAt: performance.now() + 10_000, signal: new AbortController().signal },
        });
        assert.equal(status, 200);
        return answer;
      },
    };
  };

  test('custody handlers - a statement over a challenge that has expired is refused [CUS-020]', async () => {
    const { host, call } = setUp();
    try {
      const holder = passkeyHolder(at);
      const challenge = async (): Promise<string> => custodyAnswers.challenge.parse(await call('challenge', {})).challenge_b64;
      const late = holder.attest({ challenge: await challenge() });
      host.advance(limits.challengeTtlMs);
      assert.equal(await codeOf(call('enroll_passkey', late)), 'bad_attestation');
      await call('enroll_passkey', holder.attest({ challenge: await challenge() }));
      const waited = holder.assert({ challenge: await challenge() });
      host.advance(limits.challengeTtlMs - 1_000);
      await call('mint_session_cap', { passkey_assertion_b64: assertionB64(waited) });
      const tooLong = holder.assert({ challenge: await challenge() });
      host.advance(limits.challengeTtlMs);
      assert.equal(await codeOf(call('mint_session_cap', { passkey_assertion_b64: assertionB64(tooLong) })), 'bad_assertion');
    } finally {
      host.stop();
    }
  });

  test('custody handlers - without configuration no passkey is enrolled, and the rest works', async () => {
    const { host, call } = setUp('off');
    try {
      const webauthn = createWebauthn(undefined);
      const body = passkeyHolder(at).attest({ challenge: 'AAAA' });
      assert.equal(await codeOf(webauthn.attestation({ attestationObjectB64: body.attestation_object_b64, clientDataB64: body.client_data_json_b64 })), 'passkeys_off');
      const digest = randomBytes(32);
      const key = Buffer.from(custodyAnswers.pubkey.parse(await call('get_auth_pubkey', {})).pubkey_b64, 'base64');
      const { signature_b64 } = custodyAnswers.signature.parse(await call('sign_auth', { digest_b64: digest.toString('base64') }));
      assert.ok(verify(null, digest, createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x: key.toString('base64url') }, format: 'jwk' }), Buffer.from(signature_b64, 'base64')));
      assert.deepEqual(await call('mint_session_cap', {}), {});
    } finally {
      host.stop();
    }
  });

  test('webauthn - a format whose certificates could name an address to call is not even looked at; a foreign frame may not speak', async () => {
    const webauthn = createWebauthn({ rpId: at.rpId, origins: [at.origin] });
    const good = passkeyHolder(at).attest({ challenge: 'AAAA' });
    const attest = (object: Buffer, client = good.client_data_json_b64): Promise<unknown> =>
      webauthn.attestation({ attestationObjectB64: object.toString('base64'), clientDataB64: client });
    const object = Buffer.from(good.attestation_object_b64, 'base64');
    await attest(object);
    const from = object.indexOf(Buffer.from('dnone', 'latin1'));
    assert.ok(from > 0);
    for (const format of ['apple', 'android-key', 'android-safetynet', 'compound']) {
      // CBOR: a text of less than 24 bytes has its length in the first byte.
      const text = Buffer.concat([Buffer.from([0x60 + format.length]), Buffer.from(format)]);
      const error = await attest(Buffer.concat([object.subarray(0, from), text, object.subarray(from + 5)])).then(() => undefined, (e: unknown) => e);
      assert.ok(error instanceof CodedError && error.code === 'bad_attestation' && error.cause instanceof Error);
      assert.equal(error.cause.message, `attestation format ${format} is not taken`);
    }
    const framed = { ...JSON.parse(Buffer.from(good.client_data_json_b64, 'base64').toString()) as object, crossOrigin: true };
    assert.equal(await codeOf(attest(object, Buffer.from(JSON.stringify(framed)).toString('base64'))), 'bad_attestation');
  });
});
