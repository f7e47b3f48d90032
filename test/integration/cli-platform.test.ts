/** `troupe auth` and `troupe chat` as processes against a whole Troupe: what the scripted platform of cli-auth cannot show. */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { z } from 'zod';
import { authRoutes, deviceGrant } from '../../contracts/auth-routes.ts';
import { startForwarder, type Passed } from '../harness/forwarder.ts';
import { commandLine, shownCode, type CommandLine, type TestEnd } from '../harness/newcomer.ts';
import { answered, startPlatform, type ApiReply, type Person, type TestPlatform } from '../harness/platform.ts';

const oauthError = z.object({ error: z.string() });
const errorOf = (reply: ApiReply): string => oauthError.parse(reply.json).error;
const status = z.strictObject({ authenticated: z.boolean(), source: z.string().nullable(), expiresAt: z.iso.datetime().nullable() });
const stored = z.strictObject({ token: z.string(), apiBase: z.string() });
const dayMs = 86_400_000;

suite('cli on a platform', { timeout: 240_000 }, () => {
  let platform: TestPlatform;
  let person: Person;
  before(async () => {
    platform = await startPlatform(undefined, { gateway: { auth: { platform: true } } });
    person = await platform.signUp('ada@example.com');
  });
  after(() => platform.stop());

  const apiToken = async (of = person): Promise<string> =>
    answered(await platform.api('POST', authRoutes.makeApiToken.path, { cookie: of.cookie, csrf: of.csrf, json: {} }), 200, z.object({ token: z.string() })).token;
  const meOf = async (token: string): Promise<number> => (await platform.api('GET', authRoutes.me.path, { token })).status;
  /** Signed in by hand with a token of 90 days. */
  const signedIn = async (t: TestEnd): Promise<{ readonly command: CommandLine; readonly token: string }> => {
    const command = await commandLine(t, platform);
    const token = await apiToken();
    const ran = await command.run(['auth', 'login', '--manual'], { input: `${token}\n` });
    assert.equal(ran.code, 0, ran.err);
    return { command, token };
  };

  test('cli on a platform - the device flow waits while it is pending, 5 seconds longer after the server\'s slow_down, and stores the token of the approval [CLI-008] [CLI-009] [CLI-010] [CLI-011] [CLI-014] [DEV-025]', async (t) => {
    const way = await startForwarder(platform, '127.0.4.1');
    t.after(() => way.stop());
    const caPath = join(platform.folder, 'forwarder.pem');
    await writeFile(caPath, way.caPem);
    const command = await commandLine(t, { baseUrl: way.url, caPath });
    const login = command.start(['auth', 'login']);
    const { userCode } = await shownCode(login);
    const { device_code: deviceCode } = answered((await way.next(authRoutes.deviceCode.path)).reply, 200, z.object({ device_code: z.string() }));
    const poll = (): Promise<Passed> => Promise.race([
      way.next(authRoutes.deviceToken.path), login.ended.then(({ code, err }) => assert.fail(`the command ended with ${code} and polls no more: ${err}`)),
    ]);
    const first = await poll();
    assert.equal(errorOf(first.reply), 'authorization_pending');

    // A second program with the same code and address uses up the minute's polls just before the command's next.
    way.before = async () => {
      for (;;) {
        const json = { grant_type: deviceGrant, device_code: deviceCode };
        if (errorOf(await platform.api('POST', authRoutes.deviceToken.path, { json, localAddress: way.from })) === 'slow_down') return;
      }
    };
    const second = await poll();
    assert.equal(errorOf(second.reply), 'slow_down');
    way.before = () => Promise.resolve();
    // From here on the command comes from another address, which has polls left.
    way.from = '127.0.4.2';
    const { cookie, csrf } = person;
    assert.equal((await platform.api('POST', authRoutes.deviceAuthorize.path, { cookie, csrf, json: { user_code: userCode, action: 'approve' } })).status, 200);
    const third = await poll();
    assert.equal(third.reply.status, 200, third.reply.body);
    assert.ok(second.atMs - first.atMs >= 5_000 && third.atMs - second.atMs >= 10_000, 'the waits are those of the interval');
    const ended = await login.ended;
    assert.equal(ended.code, 0, ended.err);
    assert.match(ended.out, /Signed in as ada@example\.com/);
    const { token, apiBase } = stored.parse(await command.config());
    assert.equal(apiBase, way.url);
    assert.equal(await meOf(token), 200);
    assert.ok(!`${ended.out}${ended.err}`.includes(token) && !ended.err.includes(deviceCode), 'neither token nor device code is shown');
  });

  test('cli on a platform - where no more device codes are given, login says why and goes on by hand [CLI-016]', async (t) => {
    const way = await startForwarder(platform, '127.0.5.1');
    t.after(() => way.stop());
    const caPath = join(platform.folder, 'second-forwarder.pem');
    await writeFile(caPath, way.caPem);
    const command = await commandLine(t, { baseUrl: way.url, caPath });
    const asked = (): Promise<ApiReply> => platform.api('POST', authRoutes.deviceCode.path, { json: {}, localAddress: way.from });
    let last = await asked();
    while (last.status === 200) last = await asked();
    assert.equal(errorOf(last), 'rate_limit_exceeded');
    const token = await apiToken();
    const ran = await command.run(['auth', 'login'], { input: `${token}\n` });
    assert.equal(ran.code, 0, ran.err);
    assert.match(ran.err, /not available \(rate_limit_exceeded\)[^]*\/api\/auth\/api-token/);
    assert.deepEqual(await command.config(), { token, apiBase: way.url });
  });

  test('cli on a platform - a login by hand with a token of 90 days; status says until when [CLI-017] [CLI-018] [CLI-020] [CLI-022]', async (t) => {
    const { command, token } = await signedIn(t);
    assert.deepEqual(await command.config(), { token, apiBase: platform.baseUrl });
    const { authenticated, source, expiresAt } = await command.json(['auth', 'status'], status);
    assert.deepEqual([authenticated, source], [true, 'config-file']);
    const days = (Date.parse(expiresAt ?? '') - Date.now()) / dayMs;
    assert.ok(days > 89.9 && days <= 90, `${days} days`);
    // The stored address serves without being named again.
    assert.equal((await command.run(['auth', 'status'], { env: { TROUPE_API_BASE: '' } })).code, 0);
  });

  test('cli on a platform - a revoked token is invalid: status says so, and a login by hand with it stores nothing [CLI-019] [CLI-021]', async (t) => {
    const { command, token } = await signedIn(t);
    assert.equal((await platform.api('POST', authRoutes.revoke.path, { token: person.accessToken, json: { token } })).status, 200);
    const seen = await command.run(['auth', 'status', '--json']);
    assert.deepEqual([seen.code, JSON.parse(seen.out)], [4, { authenticated: false, source: 'config-file', expiresAt: null }]);
    const fresh = await commandLine(t, platform);
    for (const bad of [token, 'no-token', person.cookie]) {
      const refused = await fresh.run(['auth', 'login', '--manual'], { input: `${bad}\n` });
      assert.equal(refused.code, 4, refused.err);
      assert.match(refused.err, /troupe: unauthorized: .*\n.*`troupe auth login` gets a new one/);
    }
    assert.equal(await fresh.config(), undefined);
  });

  test('cli on a platform - after logout the same token still works [CLI-025] [CLI-026]', async (t) => {
    const { command, token } = await signedIn(t);
    assert.equal((await command.run(['auth', 'logout'])).code, 0);
    assert.deepEqual(await command.config(), { apiBase: platform.baseUrl });
    assert.equal((await command.run(['auth', 'status'])).code, 4);
    assert.equal(await meOf(token), 200);
    assert.equal((await command.run(['auth', 'status'], { env: { TROUPE_TOKEN: token } })).code, 0);
  });

  test('cli on a platform - chat, sessions and replay with the stored login, whose token is exchanged for a gateway token [CLI-005] [TOK-045]', async (t) => {
    const { command, token } = await signedIn(t);
    const env = { TROUPE_API_BASE: '' };
    const said = await command.run(['chat', '--json', '/say hello there'], { env });
    assert.equal(said.code, 0, said.out + said.err);
    const { sid } = z.object({ kind: z.literal('session'), sid: z.string() }).parse(JSON.parse(said.out.split('\n')[0] ?? ''));
    assert.match((await command.run(['chat', '--sid', sid, '/say and again'], { env })).out, /^and again\n$/);
    const replayed = await command.run(['replay', sid, '--json'], { env });
    assert.match(replayed.err, /"lost":0,"repeated":0/);
    // In a script: address and token in the environment, no home.
    const scripted = await command.run(['chat', '/say from a script'], { env: { TROUPE_API_BASE: platform.baseUrl, TROUPE_TOKEN: token, HOME: join(command.home, 'nobody') } });
    assert.match(scripted.out, /^from a script\n$/, scripted.err);
    assert.equal((await platform.api('POST', authRoutes.revoke.path, { token: person.accessToken, json: { token } })).status, 200);
    const after_ = await command.run(['chat', '--sid', sid, '/say no more'], { env });
    assert.equal(after_.code, 4, after_.err);
    assert.match(after_.err, /unauthorized[^]*troupe auth login/);
  });
});
