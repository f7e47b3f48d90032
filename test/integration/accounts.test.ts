/** Sign-in by e-mail, browser sessions and legal acceptance over HTTP; what of it is kept. One platform of two daemons and two gateways. */
import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { decodeJwt } from 'jose';
import postgres from 'postgres';
import { z } from 'zod';
import { signedIn, tokenAnswer } from '../../contracts/auth-routes.ts';
import { limits } from '../../contracts/limits.ts';
import { cookieNames } from '../../contracts/platform.ts';
import { answered, cookieOf, startPlatform, type ApiReply, type TestPlatform } from '../harness/platform.ts';

const envelope = z.strictObject({ error: z.object({ code: z.string(), message: z.string(), details: z.record(z.string(), z.unknown()).optional() }) });
const session = z.strictObject({
  user: z.strictObject({ id: z.string(), email: z.string(), name: z.string() }).nullable(), csrf: z.string().nullable(), legalAccepted: z.boolean(), providers: z.array(z.string()),
});
const manifest = z.strictObject({
  version: z.string(), hash: z.string(), documents: z.array(z.strictObject({ id: z.string(), title: z.string(), url: z.string(), sha256: z.string() })),
});
const accepted = z.strictObject({ accepted: z.literal(true), hash: z.string(), version: z.string() });
const madeToken = z.strictObject({ token: z.string(), refresh_token: z.string(), expires_at: z.string() });

const wrong = (code: string): string => String((Number(code) + 1) % 100_000_000).padStart(8, '0');

suite('accounts', { timeout: 240_000 }, () => {
  let platform: TestPlatform;
  const output: string[] = [];
  before(async () => {
    platform = await startPlatform(undefined, { gateways: 2, daemons: 2, onLine: (process, line) => output.push(`${process} ${line}`), daemon: { log_level: 'trace' }, gateway: { log_level: 'trace' } });
  });
  after(async () => platform.stop());

  const verify = (email: string, code: string, gateway = 0): Promise<ApiReply> => platform.api('POST', '/api/auth/email/verify', { json: { email, code }, gateway });
  const codeOf = (reply: ApiReply, status: number): string => answered(reply, status, envelope).error.code;
  const sessionOf = async (cookie: string | undefined, gateway = 0): Promise<z.output<typeof session>> =>
    answered(await platform.api('GET', '/api/auth/session', { ...(cookie === undefined ? {} : { cookie }), gateway }), 200, session);

  test('accounts - a mailed code signs in once; a wrong, a used, a malformed one and another address\'s are refused [TOK-049]', async () => {
    const code = await platform.signInCode('bob@example.com');
    const other = await platform.signInCode('mallory@example.com');
    assert.equal(codeOf(await verify('bob@example.com', wrong(code)), 400), 'bad_code');
    assert.equal(codeOf(await verify('bob@example.com', other), 400), 'bad_code');
    for (const bad of ['1234567', '123456789', 'abcdefgh', '１２３４５６７８', '']) assert.equal(codeOf(await verify('bob@example.com', bad), 422), 'validation_error', bad);
    const first = answered(await verify('bob@example.com', code, 1), 200, signedIn);
    assert.deepEqual({ ...first, user: { ...first.user, id: '' } }, { user: { id: '', email: 'bob@example.com', name: 'bob' }, created: true });
    assert.match(first.user.id, /^usr_[0-9a-z]{26}$/);
    assert.equal(codeOf(await verify('bob@example.com', code), 400), 'bad_code');
  });

  test('accounts - the same address in another spelling is the same account; look-alikes are no addresses [TOK-051]', async () => {
    const first = await platform.signUp('carol@example.com');
    answered(await platform.api('POST', '/api/auth/email/start', { json: { email: '  CAROL@Example.COM ' } }), 202, z.unknown());
    const { text } = await platform.outbox.next('carol@example.com');
    const again = answered(await verify('Carol@EXAMPLE.com', /(?<!\d)\d{8}(?!\d)/.exec(text)?.[0] ?? ''), 200, signedIn);
    assert.deepEqual([again.user.id, again.created], [first.userId, false]);
    for (const email of ['саrol@example.com', 'carol@exаmple.com', 'carol@example.com\r\nbcc: x@y.zz', 'carol@example.com,eve@example.com', 'carol', '@example.com', `${'a'.repeat(250)}@example.com`, 7]) {
      assert.equal(codeOf(await platform.api('POST', '/api/auth/email/start', { json: { email } }), 422), 'validation_error', String(email));
    }
  });

  test('accounts - asking for a code and failing with one answer the same whether there is an account or not', async () => {
    await platform.signUp('known@example.com');
    const shown = ({ status, headers, body }: ApiReply): unknown => {
      const { date: _date, ...rest } = headers;
      return { status, body, headers: Object.fromEntries(Object.entries(rest).filter(([name]) => !name.startsWith('x-correlation'))) };
    };
    const start = (email: string): Promise<ApiReply> => platform.api('POST', '/api/auth/email/start', { json: { email } });
    assert.deepEqual(shown(await start('known@example.com')), shown(await start('nobody@example.com')));
    assert.deepEqual(shown(await verify('known@example.com', '00000000')), shown(await verify('nobody@example.com', '00000000')));
    assert.deepEqual(shown(await verify('known@example.com', '00000000')), shown(await verify('never-asked@example.com', '00000000')));
  });

  test('accounts - codes asked for are limited by address of origin over all gateways, and by address of mail wherever the request comes from', async () => {
    const start = (email: string, localAddress: string, gateway: number): Promise<ApiReply> => platform.api('POST', '/api/auth/email/start', { json: { email }, localAddress, gateway });
    const limited = (reply: ApiReply, limit: number): void => {
      assert.equal(codeOf(reply, 429), 'rate_limited');
      assert.equal(reply.headers['x-ratelimit-limit'], String(limit));
      assert.ok(Number(reply.headers['retry-after']) >= 1);
    };
    for (let i = 0; i < limits.signinStartsPerMinuteMax; i++) assert.equal((await start(`person${i}@example.com`, '127.0.0.70', i % 2)).status, 202);
    limited(await start('one-more@example.com', '127.0.0.70', 0), limits.signinStartsPerMinuteMax);
    assert.equal((await start('one-more@example.com', '127.0.0.71', 0)).status, 202);
    // Who asks for somebody else's address uses up his own codes, and voids none of theirs.
    const theirs = await platform.signInCode('target@example.com');
    for (let i = 0; i < limits.signinMailsPerBlockMax; i++) assert.equal((await start('target@example.com', '127.0.0.79', i % 2)).status, 202);
    limited(await start('target@example.com', '127.0.0.79', 1), limits.signinMailsPerBlockMax);
    assert.equal((await verify('target@example.com', theirs)).status, 200);
    for (let i = limits.signinMailsPerBlockMax + 1; i < limits.signinMailsPerHourMax; i++) assert.equal((await start('target@example.com', `127.0.0.${80 + i}`, i % 2)).status, 202);
    limited(await start('target@example.com', '127.0.0.80', 1), limits.signinMailsPerHourMax);
  });

  test('accounts - the session cookie is bound to the host, hidden from scripts, encrypted in transit and lax [TOK-053]', async () => {
    const reply = await verify('dora@example.com', await platform.signInCode('dora@example.com'));
    const [line = ''] = reply.headers['set-cookie'] ?? [];
    const [pair = '', ...attributes] = line.split('; ');
    assert.match(pair, /^__Host-[^=]+=usr_[0-9a-z]{26}\.[A-Za-z0-9_-]{43}$/);
    assert.deepEqual(attributes.toSorted(), ['HttpOnly', 'Max-Age=604800', 'Path=/', 'SameSite=Lax', 'Secure']);
    const cookie = cookieOf(reply, cookieNames.session) ?? '';
    assert.equal((await sessionOf(cookie, 1)).user?.email, 'dora@example.com');
  });

  test('accounts - a form without JavaScript signs in as well', async () => {
    const code = await platform.signInCode('form@example.com');
    const reply = await platform.api('POST', '/api/auth/email/verify', { form: { email: 'form@example.com', code } });
    assert.ok([200, 303].includes(reply.status), reply.body);
    assert.equal((await sessionOf(cookieOf(reply, cookieNames.session))).user?.email, 'form@example.com');
  });

  test('accounts - a session without a cookie, or with one that was altered or made up, is nobody\'s', async () => {
    const person = await platform.signUp('fred@example.com');
    const other = await platform.signUp('gina@example.com');
    const [, secret = ''] = person.cookie.split('.');
    const nobody = { user: null, csrf: null, legalAccepted: false, providers: ['email'] };
    for (const cookie of [undefined, 'x', `${other.userId}.${secret}`, `${person.userId}.${'A'.repeat(43)}`, `${person.userId}.`, `${person.cookie}x`, person.cookie.slice(0, -1)]) {
      assert.deepEqual(await sessionOf(cookie), nobody, cookie);
    }
    assert.equal((await sessionOf(person.cookie)).user?.id, person.userId);
  });

  test('accounts - every cookie route that changes something needs the CSRF proof of its own session; without it nothing happens', async () => {
    const person = await platform.signUp('hugo@example.com');
    const other = await platform.signUp('ines@example.com');
    const attempts: [path: string, json: unknown][] = [['/api/auth/api-token', {}], ['/api/auth/session/token', {}], ['/api/auth/signout', {}], ['/api/auth/device/authorize', { user_code: 'ABCD-2345', action: 'approve' }]];
    for (const [path, json] of attempts) {
      for (const csrf of [undefined, 'wrong', other.csrf, '', `${person.csrf}A`]) {
        const reply = await platform.api('POST', path, { cookie: person.cookie, json, ...(csrf === undefined ? {} : { csrf }) });
        assert.equal(codeOf(reply, 403), 'forbidden', `${path} ${csrf}`);
        assert.doesNotMatch(reply.body, /eyJ/);
      }
    }
    const evil = await platform.api('POST', '/api/auth/session/token', { cookie: person.cookie, csrf: person.csrf, json: {}, headers: { origin: 'https://evil.example' } });
    assert.equal(codeOf(evil, 403), 'forbidden');
    assert.equal((await sessionOf(person.cookie)).user?.id, person.userId);
    answered(await platform.api('POST', '/api/auth/session/token', { cookie: person.cookie, csrf: person.csrf, json: {} }), 200, tokenAnswer);
  });

  test('accounts - the console\'s token lives 15 minutes and ends with its session', async () => {
    const person = await platform.signUp('jane@example.com');
    const { exp, iat } = z.object({ exp: z.int(), iat: z.int() }).parse(decodeJwt(person.accessToken));
    assert.equal(exp - iat, 900);
    const out = await platform.api('POST', '/api/auth/signout', { cookie: person.cookie, csrf: person.csrf, json: {} });
    answered(out, 200, z.strictObject({ signedOut: z.literal(true) }));
    assert.match(out.headers['set-cookie']?.[0] ?? '', /^__Host-troupe=; Max-Age=0; Path=\/; HttpOnly; Secure; SameSite=Lax$/);
    for (const gateway of [0, 1]) {
      assert.equal((await sessionOf(person.cookie, gateway)).user, null);
      assert.equal((await platform.api('GET', '/api/auth/me', { token: person.accessToken, gateway })).status, 401);
    }
  });

  test('accounts - the manifest names the documents in force and is served to everybody [TOK-055] [TOK-062]', async () => {
    const { documents, hash, version } = answered(await platform.api('GET', '/api/legal/manifest'), 200, manifest);
    assert.match(hash, /^[0-9a-f]{64}$/);
    assert.ok(version.length > 0);
    assert.deepEqual(documents.map(({ id }) => id), ['terms', 'privacy', 'processing']);
    for (const { url } of documents) assert.ok(url.startsWith(`${platform.baseUrl}/legal/`), url);
  });

  test('accounts - an acceptance needs all four and the hash in force; reading and accounts need none; tokens made after it carry it [TOK-010] [TOK-056] [TOK-057] [TOK-058] [TOK-062] [TOK-065]', async () => {
    const person = await platform.signUp('kurt@example.com');
    const token = person.accessToken;
    const { hash, version } = answered(await platform.api('GET', '/api/legal/manifest', { token }), 200, manifest);
    const all = { hash, terms: true, privacy: true, processing: true, age: true };
    const post = (json: unknown): Promise<ApiReply> => platform.api('POST', '/api/legal/acceptance', { token, json });
    for (const path of ['/api/auth/me', '/api/organization']) assert.equal((await platform.api('GET', path, { token })).status, 200);
    for (const name of ['terms', 'privacy', 'processing', 'age'] as const) {
      for (const value of [false, undefined, 'true', 1]) assert.equal(codeOf(await post({ ...all, [name]: value }), 422), 'validation_error', `${name} ${value}`);
    }
    assert.equal(codeOf(await post({ ...all, hash: '0'.repeat(64) }), 409), 'conflict');
    assert.equal(codeOf(await post({ ...all, hash: undefined }), 422), 'validation_error');
    assert.equal((await sessionOf(person.cookie)).legalAccepted, false);
    assert.deepEqual(answered(await post(all), 200, accepted), { accepted: true, hash, version });
    assert.equal((await sessionOf(person.cookie, 1)).legalAccepted, true);
    const fresh = answered(await platform.api('POST', '/api/auth/session/token', { cookie: person.cookie, csrf: person.csrf, json: {} }), 200, tokenAnswer);
    assert.ok(!('refresh_token' in fresh), 'a console token comes alone');
    assert.equal(decodeJwt(fresh.access_token)['policy'], hash);
    assert.equal(decodeJwt(token)['policy'], '');
    // The token from before it still does all that is no chat.
    for (const path of ['/api/auth/me', '/api/organization']) assert.equal((await platform.api('GET', path, { token })).status, 200);
  });

  test('accounts - codes, cookies, proofs and tokens are nowhere in storage or logs: JetStream, Postgres, every process\'s output [TOK-021] [TOK-054]', async () => {
    const email = 'lisa@example.com';
    const code = await platform.signInCode(email);
    await verify(email, wrong(code));
    const cookie = cookieOf(await verify(email, code), cookieNames.session) ?? '';
    const { csrf } = await sessionOf(cookie);
    const pair = answered(await platform.api('GET', '/api/auth/api-token', { cookie, headers: { accept: 'application/json' } }), 200, madeToken);
    const renewed = answered(await platform.api('POST', '/api/auth/refresh', { json: { refresh_token: pair.refresh_token }, localAddress: '127.0.0.60' }), 200, tokenAnswer);
    await platform.api('POST', '/api/auth/revoke', { token: pair.token, json: { token: renewed.refresh_token } });
    await platform.api('POST', '/api/auth/refresh', { json: { refresh_token: pair.refresh_token }, localAddress: '127.0.0.60' });
    const secrets = new Map(Object.entries({
      code, cookie, 'cookie secret': cookie.split('.')[1], csrf: csrf ?? '', 'access token': pair.token, signature: pair.token.split('.')[2],
      'refresh token': pair.refresh_token, 'its random half': pair.refresh_token.slice(32), 'next refresh token': renewed.refresh_token, 'next access token': renewed.access_token,
    }));

    const seen = new Map<string, string>([['output of all processes', output.join('\n')]]);
    const store = join(platform.nats.dir, 'store');
    for (const entry of await readdir(store, { recursive: true, withFileTypes: true })) {
      if (entry.isFile()) seen.set(entry.name, `${seen.get(entry.name) ?? ''}${await readFile(join(entry.parentPath, entry.name), 'latin1')}`);
    }
    const sql = postgres(platform.postgres.url, { max: 1, onnotice: () => undefined });
    const tables = await sql<{ schema: string; name: string }[]>`select table_schema as schema, table_name as name from information_schema.tables where table_schema not in ('pg_catalog', 'information_schema')`;
    for (const { schema, name } of tables) seen.set(`table ${name}`, JSON.stringify(await sql`select t::text from ${sql(schema)}.${sql(name)} t`));
    await sql.end();

    // The search finds what is there: the address in the journal, the ready line, tables.
    const everything = [...seen.values()].join('\n');
    assert.ok(everything.includes(email) && everything.includes('"msg":"ready"') && tables.length >= 3);
    for (const [where, content] of seen) {
      for (const [what, value] of secrets) {
        assert.ok(value !== undefined && value.length >= 8, what);
        // A code's digits may stand by chance in a longer number.
        const at = what === 'code' ? content.search(new RegExp(`(?<!\\d)${value}(?!\\d)`)) : content.indexOf(value);
        assert.equal(at, -1, `${what} is in ${where}: …${content.slice(Math.max(0, at - 200), at)}[here]`);
      }
    }
  });
});
