/** Session capabilities and passkeys end to end, with an emulated authenticator that can be told to say wrong things. */
import assert from 'node:assert/strict';
import { createPublicKey, randomInt } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { decodeJwt, jwtVerify } from 'jose';
import { audiences, bootstrapScopes, sessionScopes } from '../../contracts/capability.ts';
import { limits } from '../../contracts/limits.ts';
import { refusalOf, startCustody, textOf, type CustodyEdge } from '../harness/custody.ts';
import type { Reply } from '../harness/gateway.ts';
import { assertionB64, type Assertion, type AttestationBody, type PasskeyHolder, type Statement } from '../harness/passkey.ts';

type Wrong = Omit<Statement, 'challenge'>;

/** A person with a fresh id, a bootstrap capability and an authenticator. */
interface Person {
  readonly sub: string;
  readonly token: string;
  readonly passkey: PasskeyHolder;
  challenge(): Promise<string>;
  enroll(body: AttestationBody): Promise<Reply>;
  mint(fields?: object): Promise<Reply>;
  /** Enrolls the passkey; fails the test if that is refused. */
  enrolled(): Promise<Person>;
}

const changed = (base64: string, change: (bytes: Buffer) => void, to: BufferEncoding = 'base64'): string => {
  const bytes = Buffer.from(base64, to);
  change(bytes);
  return bytes.toString(to);
};

describe('custody passkeys', () => {
  let edge: CustodyEdge;
  before(async () => {
    edge = await startCustody();
  });
  after(() => edge.stack.stop());

  const person = async (name: string): Promise<Person> => {
    const sub = `${name}-${randomInt(1e9)}`;
    const token = await edge.capability(sub);
    const self: Person = {
      sub, token, passkey: edge.passkey(),
      challenge: () => edge.challenge(sub, token),
      enroll: (body) => edge.call('enroll_passkey', token, { user_id: sub, ...body }),
      mint: (fields = {}) => edge.call('mint_session_cap', token, { user_id: sub, ...fields }),
      enrolled: async () => {
        textOf(await self.enroll(self.passkey.attest({ challenge: await self.challenge() })), 'did');
        return self;
      },
    };
    return self;
  };
  const assertion = async (who: Person, wrong: Wrong = {}): Promise<Assertion> => who.passkey.assert({ challenge: await who.challenge(), ...wrong });
  const given = (said: Assertion): { passkey_assertion_b64: string } => ({ passkey_assertion_b64: assertionB64(said) });
  const response = (said: Assertion, more: Partial<Assertion['response']>): Assertion => ({ ...said, response: { ...said.response, ...more } });

  /** A token with session scopes, for the person, of at most 15 minutes. */
  const checkSession = async (reply: Reply, who: Person): Promise<void> => {
    const token = textOf(reply, 'token');
    const { payload } = await jwtVerify(token, createPublicKey(edge.capabilityKey), { audience: audiences.custody, issuer: edge.stack.audience });
    assert.deepEqual([payload.sub, payload['scope']], [who.sub, sessionScopes]);
    assert.ok((payload.exp ?? Infinity) - (payload.iat ?? 0) <= 900);
    assert.ok(typeof reply.json === 'object' && reply.json !== null && 'expires_at_unix' in reply.json);
    assert.equal(reply.json.expires_at_unix, payload.exp);
  };

  test('custody - a bootstrap capability carries the five scopes; a session capability three, of at most 15 minutes, and cannot extend itself [GWA-020] [GWA-021] [GWA-029] [CUS-013] [CUS-014]', async () => {
    const who = await person('plain');
    assert.deepEqual(decodeJwt(who.token)['scope'], bootstrapScopes);
    const reply = await who.mint();
    assert.deepEqual(Object.keys(Object(reply.json)).toSorted(), ['expires_at_unix', 'token']);
    await checkSession(reply, who);
    const session = textOf(reply, 'token');
    for (const route of ['get_auth_pubkey', 'get_wallet_pubkey']) textOf(await edge.call(route, session, { user_id: who.sub }), 'pubkey_b64');
    for (const route of ['sign_auth', 'sign_wallet']) textOf(await edge.call(route, session, { user_id: who.sub, digest_b64: Buffer.alloc(32).toString('base64') }), 'signature_b64');
    for (const [route, more] of [['mint_session_cap', {}], ['challenge', {}], ['enroll_passkey', { attestation_object_b64: 'AAAA', client_data_json_b64: 'AAAA' }]] as const) {
      assert.deepEqual(refusalOf(await edge.call(route, session, { user_id: who.sub, ...more })), [403, 'scope_insufficient'], route);
    }
  });

  test('custody - a challenge is 32 fresh bytes with an end [CUS-017]', async () => {
    const who = await person('challenge');
    const replies = await Promise.all(Array.from({ length: 4 }, () => edge.call('challenge', who.token, { user_id: who.sub })));
    for (const reply of replies) {
      assert.ok(typeof reply.json === 'object' && reply.json !== null && 'expires_at_unix' in reply.json);
      const left = Number(reply.json.expires_at_unix) - Date.now() / 1_000;
      assert.ok(left > 0 && left <= limits.challengeTtlMs / 1_000, `${left} s left`);
      assert.equal(Buffer.from(textOf(reply, 'challenge_b64'), 'base64').length, 32);
    }
    assert.equal(new Set(replies.map((reply) => textOf(reply, 'challenge_b64'))).size, 4);
  });

  test('custody - enrolling answers a session capability and the did:key of the Ed25519 key [CUS-018]', async () => {
    const who = await person('enroll');
    const reply = await who.enroll(who.passkey.attest({ challenge: await who.challenge() }));
    await checkSession(reply, who);
    assert.deepEqual(Object.keys(Object(reply.json)).toSorted(), ['did', 'expires_at_unix', 'token']);
    const key = Buffer.from(textOf(await edge.call('get_auth_pubkey', who.token, { user_id: who.sub }), 'pubkey_b64'), 'base64');
    assert.deepEqual(base58Decode(textOf(reply, 'did').replace('did:key:z', '')), Buffer.concat([Buffer.from([0xed, 0x01]), key]));
  });

  test('custody - once a passkey is enrolled minting wants a valid assertion; client data may be sent again [CUS-015] [CUS-016]', async () => {
    const who = await (await person('mint')).enrolled();
    assert.deepEqual(refusalOf(await who.mint()), [400, 'bad_assertion']);
    await checkSession(await who.mint(given(await assertion(who))), who);
    const said = await assertion(who);
    const clientData = Buffer.from(said.response.clientDataJSON, 'base64url');
    assert.deepEqual(refusalOf(await who.mint({ client_data_json_b64: clientData.toString('base64') })), [400, 'bad_assertion']);
    assert.deepEqual(refusalOf(await who.mint({ ...given(said), client_data_json_b64: Buffer.from('{}').toString('base64') })), [400, 'bad_assertion']);
    await checkSession(await who.mint({ ...given(said), client_data_json_b64: clientData.toString('base64') }), who);
    // URL-safe and without padding as well.
    const again = Buffer.from(JSON.stringify(await assertion(who))).toString('base64url');
    await checkSession(await who.mint({ passkey_assertion_b64: again }), who);
  });

  test('custody - passkeys and used challenges stay over a kill of the daemon', async () => {
    const who = await (await person('kill')).enrolled();
    const used = await assertion(who);
    await checkSession(await who.mint(given(used)), who);
    const waiting = await assertion(who);
    await edge.stack.daemons[0]?.restart();
    await edge.stack.gateways[0]?.ready();
    assert.deepEqual(refusalOf(await who.mint()), [400, 'bad_assertion']);
    assert.deepEqual(refusalOf(await who.mint(given(used))), [400, 'bad_assertion']);
    await checkSession(await who.mint(given(waiting)), who);
  });

  test('custody - a bad attestation is 400 bad_attestation and enrolls nothing [CUS-019]', async () => {
    const who = await person('bad');
    const good = who.passkey.attest({ challenge: await who.challenge() });
    const cbor = (text: string): string => Buffer.from(text, 'hex').toString('base64');
    for (const body of [
      { ...good, attestation_object_b64: '' }, { ...good, attestation_object_b64: '****' }, { ...good, attestation_object_b64: 'AAAA' }, { ...good, attestation_object_b64: cbor('a0') },
      { ...good, attestation_object_b64: Buffer.from(good.attestation_object_b64, 'base64').subarray(0, 100).toString('base64') },
      { ...good, client_data_json_b64: '' }, { ...good, client_data_json_b64: Buffer.from('{}').toString('base64') }, { ...good, client_data_json_b64: Buffer.from('[1]').toString('base64') },
      // A format that is not taken.
      { ...good, attestation_object_b64: changedFormat(good.attestation_object_b64, 'appl') },
      // A statement of use, not of making.
      { ...good, client_data_json_b64: Buffer.from(Buffer.from(good.client_data_json_b64, 'base64').toString().replace('webauthn.create', 'webauthn.get')).toString('base64') },
    ]) assert.deepEqual(refusalOf(await who.enroll(body)), [400, 'bad_attestation'], JSON.stringify(body).slice(0, 90));
    await checkSession(await who.mint(), who);
    textOf(await who.enroll(good), 'did');
    assert.deepEqual(refusalOf(await who.mint()), [400, 'bad_assertion']);
  });

  test('custody - a challenge that is wrong, another user\'s or used is refused, for attestation and assertion [CUS-020]', async () => {
    const who = await (await person('owner')).enrolled();
    const other = await person('other');
    const wrong = Buffer.alloc(32, 7).toString('base64');
    const foreign = await other.challenge();
    const used = await who.challenge();
    await checkSession(await who.mint(given(who.passkey.assert({ challenge: used }))), who);
    for (const challenge of [wrong, foreign, used]) {
      assert.deepEqual(refusalOf(await who.mint(given(who.passkey.assert({ challenge })))), [400, 'bad_assertion']);
      assert.deepEqual(refusalOf(await who.enroll(edge.passkey().attest({ challenge }))), [400, 'bad_attestation']);
    }
    // The same statement twice at once: one is taken.
    const said = given(await assertion(who));
    const answers = await Promise.all([who.mint(said), who.mint(said), who.mint(said)]);
    assert.deepEqual(answers.map((reply) => reply.status).toSorted(), [200, 400, 400]);
    // A challenge that enrolled cannot mint.
    const enrolling = await who.challenge();
    textOf(await who.enroll(edge.passkey().attest({ challenge: enrolling })), 'did');
    assert.deepEqual(refusalOf(await who.mint(given(who.passkey.assert({ challenge: enrolling })))), [400, 'bad_assertion']);
    // More challenges than are kept: the oldest is not valid any more, the newest is.
    const oldest = await who.challenge();
    for (let i = 1; i < limits.challengesMax; i++) await who.challenge();
    const newest = await who.challenge();
    assert.deepEqual(refusalOf(await who.mint(given(who.passkey.assert({ challenge: oldest })))), [400, 'bad_assertion']);
    await checkSession(await who.mint(given(who.passkey.assert({ challenge: newest }))), who);
  });

  test('custody - another origin, another relying party, an absent or unverified user are refused [CUS-021] [CUS-022]', async () => {
    const who = await (await person('where')).enrolled();
    const wrongs: Wrong[] = [
      { origin: 'https://localhost:8444' }, { origin: 'http://localhost:8443' }, { origin: 'https://localhost' }, { rpId: 'example.com' },
      { userPresent: false }, { userVerified: false }, { userPresent: false, userVerified: false },
    ];
    for (const wrong of wrongs) {
      const name = JSON.stringify(wrong);
      assert.deepEqual(refusalOf(await who.enroll(edge.passkey().attest({ challenge: await who.challenge(), ...wrong }))), [400, 'bad_attestation'], name);
      const said = await assertion(who, wrong);
      assert.deepEqual(refusalOf(await who.mint(given(said))), [400, 'bad_assertion'], name);
    }
    await checkSession(await who.mint(given(await assertion(who))), who);
  });

  test('custody - a signature counter that does not grow is refused once it counts; one that never counts is not [CUS-023]', async () => {
    const who = await (await person('count')).enrolled();
    // 0 at first: this authenticator does not count yet.
    for (let i = 0; i < 2; i++) await checkSession(await who.mint(given(await assertion(who, { count: 0 }))), who);
    await checkSession(await who.mint(given(await assertion(who, { count: 5 }))), who);
    assert.deepEqual(refusalOf(await who.mint(given(await assertion(who, { count: 0 })))), [400, 'bad_assertion'], 'same');
    assert.deepEqual(refusalOf(await who.mint(given(await assertion(who, { count: -1 })))), [400, 'bad_assertion'], 'less');
    await checkSession(await who.mint(given(await assertion(who, { count: 2 }))), who);
  });

  test('custody - what is not an assertion of this user\'s passkey is 400 bad_assertion and no token, enrolled or not [CUS-030]', async () => {
    const enrolled = await (await person('noise')).enrolled();
    const stranger = await person('stranger');
    const other = await (await person('holder')).enrolled();
    const said = await assertion(enrolled);
    const json = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64');
    const cases: Record<string, string> = {
      empty: '', 'not base64': '%%%', 'not JSON': 'AAAA', number: json(7), null: json(null), 'empty object': json({}),
      'no response': json({ ...said, response: undefined }), 'no signature': json(response(said, { signature: '' })),
      'other type': json({ ...said, type: 'password' }), 'another\'s credential': assertionB64(await assertion(other)),
      'changed signature': json(response(said, { signature: changed(said.response.signature, (bytes) => { bytes[20] = (bytes[20] ?? 0) ^ 1; }, 'base64url') })),
      'changed client data': json(response(said, { clientDataJSON: changed(said.response.clientDataJSON, (bytes) => { bytes[bytes.length - 2] = 0x20; }, 'base64url') })),
      'short authenticator data': json(response(said, { authenticatorData: said.response.authenticatorData.slice(0, 20) })),
      'unknown credential': json({ ...said, id: 'AAAA', rawId: 'AAAA' }), 'two ids': json({ ...said, rawId: 'AAAA' }),
    };
    for (const [name, passkey_assertion_b64] of Object.entries(cases)) {
      for (const who of [enrolled, stranger]) {
        const reply = await who.mint({ passkey_assertion_b64 });
        assert.deepEqual(refusalOf(reply), [400, 'bad_assertion'], name);
        assert.ok(!reply.text.includes('"token"'));
      }
    }
    await checkSession(await enrolled.mint(given(said)), enrolled);
  });

  test('custody - a known passkey is not enrolled twice, and a user has no more than the limit', async () => {
    const who = await person('many');
    const first = who.passkey.attest({ challenge: await who.challenge() });
    textOf(await who.enroll(first), 'did');
    // The same credential over a new challenge: attestation "none" is not signed, so the client data can be written anew.
    const challenge = Buffer.from(await who.challenge(), 'base64').toString('base64url');
    const data = JSON.parse(Buffer.from(first.client_data_json_b64, 'base64').toString()) as object;
    const again = { ...first, client_data_json_b64: Buffer.from(JSON.stringify({ ...data, challenge })).toString('base64') };
    assert.deepEqual(refusalOf(await who.enroll(again)), [400, 'bad_attestation']);
    for (let i = 1; i < limits.passkeysMax; i++) textOf(await who.enroll(edge.passkey().attest({ challenge: await who.challenge() })), 'did');
    const over = await who.enroll(edge.passkey().attest({ challenge: await who.challenge() }));
    assert.deepEqual(refusalOf(over), [400, 'bad_request']);
    assert.ok(over.text.includes('too_many_passkeys'));
    await checkSession(await who.mint(given(await assertion(who))), who);
  });
});

/** Attestation objects of the emulator begin with the map entry fmt: "none", whose text is four bytes long. */
const changedFormat = (base64: string, format: string): string => changed(base64, (bytes) => {
  const at = bytes.indexOf('none');
  assert.ok(at > 0 && format.length === 4);
  bytes.write(format, at);
});

const base58Decode = (text: string): Buffer => {
  let value = 0n;
  for (const char of text) value = value * 58n + BigInt('123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz'.indexOf(char));
  const hex = value.toString(16);
  return Buffer.from(hex.length % 2 === 0 ? hex : `0${hex}`, 'hex');
};
