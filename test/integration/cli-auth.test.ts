/** `troupe auth`, `troupe org` and `troupe keys` as processes, against a scripted platform over TLS. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, lstat, mkdir, mkdtemp, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test, type TestContext } from 'node:test';
import { FakePlatform, type Said, type Script } from '../harness/fake-platform.ts';
import { troupe, troupeEntry, type Ran } from '../harness/troupe.ts';

let platform: FakePlatform;
let caPath: string;
let folder: string;
before(async () => {
  platform = await FakePlatform.start();
  folder = await mkdtemp(join(tmpdir(), 'troupe-cli-auth-'));
  caPath = join(folder, 'ca.pem');
  await writeFile(caPath, platform.caPem);
});
after(async () => {
  await platform.stop();
  await rm(folder, { recursive: true, force: true });
});

const expiresAt = '2030-01-01T00:00:00.000Z';
const me = (asked: { readonly authorization: string | undefined }): Said => {
  const token = asked.authorization?.replace('Bearer ', '');
  return token === undefined || token.startsWith('bad')
    ? { status: 401, body: { error: { code: 'unauthorized', message: 'A valid bearer token is required.' } } }
    : { status: 200, body: { id: 'usr_1', email: `${token}@example.com`, name: 'Ada', orgs: [], expiresAt } };
};
const basic: Script = { 'GET /api/auth/me': me };

interface Home {
  readonly path: string;
  readonly config: string;
  run(args: readonly string[], options?: { readonly env?: Record<string, string>; readonly input?: string; readonly known?: boolean }): Promise<Ran>;
  write(config: object): Promise<void>;
}
const home = async (t: TestContext, script: Script = basic): Promise<Home> => {
  platform.script = script;
  platform.asked.length = 0;
  const path = await mkdtemp(join(folder, 'home-'));
  t.after(() => rm(path, { recursive: true, force: true }));
  const config = join(path, '.troupe', 'config.json');
  return {
    path, config,
    run: (args, { env = {}, input = '', known = true } = {}) => troupe(args, path, input, { HOME: path, TROUPE_CA: caPath, ...(known ? { TROUPE_API_BASE: platform.url } : {}), ...env }),
    write: async (value) => {
      await mkdir(join(path, '.troupe'), { recursive: true });
      await writeFile(config, JSON.stringify(value));
    },
  };
};
const mode = async (path: string): Promise<number> => (await stat(path)).mode & 0o777;

test('cli - a login by hand makes ~/.troupe (0700) and config.json (0600) with token and apiBase, and exits 0 [CLI-001] [CLI-002] [CLI-003] [CLI-004] [CLI-018]', async (t) => {
  const at = await home(t);
  const ran = await at.run(['auth', 'login', '--manual'], { input: 'ada\n' });
  assert.equal(ran.code, 0, ran.err);
  assert.deepEqual(JSON.parse(await readFile(at.config, 'utf8')), { token: 'ada', apiBase: platform.url });
  assert.equal(await mode(join(at.path, '.troupe')), 0o700);
  assert.equal(await mode(at.config), 0o600);
  assert.ok(!ran.out.includes('"ada"') && ran.out.includes('ada@example.com'));
});

test('cli - a config file and folder that were open to others are closed again by the next write [CLI-003]', async (t) => {
  const at = await home(t);
  await at.write({ token: 'old', apiBase: 'https://elsewhere.example' });
  await chmod(at.config, 0o666);
  await chmod(join(at.path, '.troupe'), 0o777);
  assert.equal((await at.run(['auth', 'login', '--manual'], { input: 'ada\n' })).code, 0);
  assert.equal(await mode(at.config), 0o600);
  assert.equal(await mode(join(at.path, '.troupe')), 0o700);
});

test('cli - later requests go to the stored apiBase [CLI-005]', async (t) => {
  const at = await home(t);
  await at.write({ token: 'ada', apiBase: platform.url });
  const ran = await at.run(['auth', 'status'], { known: false });
  assert.equal(ran.code, 0, ran.err);
  assert.equal(platform.times('GET /api/auth/me'), 1);
});

test('cli - flag before environment before file; an empty one counts for nothing; status names the source [CLI-006] [CLI-007] [CLI-020] [CLI-022] [CLI-023]', async (t) => {
  const at = await home(t);
  await at.write({ token: 'fromfile', apiBase: platform.url });
  const cases: [args: string[], env: Record<string, string>, source: string, token: string][] = [
    [['--token', 'fromflag'], { TROUPE_TOKEN: 'fromenv' }, 'flag', 'fromflag'],
    [[], { TROUPE_TOKEN: 'fromenv' }, 'env', 'fromenv'],
    [['--token', ''], { TROUPE_TOKEN: 'fromenv' }, 'env', 'fromenv'],
    [['--token', ''], { TROUPE_TOKEN: '' }, 'config-file', 'fromfile'],
    [[], {}, 'config-file', 'fromfile'],
  ];
  for (const [args, env, source, token] of cases) {
    platform.asked.length = 0;
    const ran = await at.run(['auth', 'status', '--json', ...args], { env });
    assert.deepEqual(JSON.parse(ran.out), { authenticated: true, source, expiresAt }, JSON.stringify([args, env]));
    assert.deepEqual(platform.asked.map((a) => [a.method, a.path, a.authorization]), [['GET', '/api/auth/me', `Bearer ${token}`]]);
    assert.equal((await at.run(['auth', 'token', ...args], { env })).out, `${token}\n`);
  }
});

test('cli - a token that the server refuses, and no token, are not authenticated; a server that is gone is told apart [CLI-021]', async (t) => {
  const at = await home(t);
  const bad = await at.run(['auth', 'status', '--json', '--token', 'bad']);
  assert.deepEqual([bad.code, JSON.parse(bad.out)], [4, { authenticated: false, source: 'flag', expiresAt: null }]);
  assert.match((await at.run(['auth', 'status', '--token', 'bad'])).out, /invalid: it has expired or was revoked/);
  const none = await at.run(['auth', 'status', '--json']);
  assert.deepEqual([none.code, JSON.parse(none.out)], [4, { authenticated: false, source: null, expiresAt: null }]);
  const gone = await at.run(['auth', 'status', '--json', '--token', 'ada', '--api', 'https://127.0.0.1:1']);
  assert.deepEqual([gone.code, (JSON.parse(gone.out) as { code: string }).code], [3, 'upstream_unavailable']);
});

test('cli - token prints the token alone on stdout; without one it says how to sign in [CLI-024]', async (t) => {
  const at = await home(t);
  await at.write({ token: 'ada', apiBase: platform.url });
  assert.deepEqual(await at.run(['auth', 'token']), { code: 0, out: 'ada\n', err: '' });
  await rm(at.config);
  const none = await at.run(['auth', 'token']);
  assert.deepEqual([none.code, none.out], [4, '']);
  assert.match(none.err, /troupe auth login/);
  assert.equal(platform.asked.length, 0);
});

test('cli - logout removes the token, keeps the address, asks nobody [CLI-025]', async (t) => {
  const at = await home(t);
  await at.write({ token: 'ada', apiBase: platform.url });
  assert.equal((await at.run(['auth', 'logout'])).code, 0);
  assert.deepEqual(JSON.parse(await readFile(at.config, 'utf8')), { apiBase: platform.url });
  assert.equal(await mode(at.config), 0o600);
  assert.equal((await at.run(['auth', 'logout', '--json'])).out, '{"loggedOut":false}\n');
  assert.equal(platform.asked.length, 0);
});

test('cli - the device flow end to end as a process: pending, then approved', async (t) => {
  let polls = 0;
  const at = await home(t, {
    ...basic,
    'POST /api/auth/device/code': () => ({ status: 200, body: {
      device_code: 'd'.repeat(64), user_code: 'ABCD-2345', verification_uri: `${platform.url}/device`, verification_uri_complete: `${platform.url}/device?code=ABCD-2345`, expires_in: 900, interval: 1,
    } }),
    'POST /api/auth/device/token': () => (++polls < 2
      ? { status: 400, body: { error: 'authorization_pending', error_description: 'Not yet.' } }
      : { status: 200, body: { access_token: 'ada', token_type: 'Bearer', expires_in: 86_400, refresh_token: 'f'.repeat(64) } }),
  });
  const ran = await at.run(['auth', 'login']);
  assert.equal(ran.code, 0, ran.err);
  assert.ok(ran.err.includes('ABCD-2345') && ran.err.includes(`${platform.url}/device?code=ABCD-2345`));
  assert.deepEqual(JSON.parse(await readFile(at.config, 'utf8')), { token: 'ada', apiBase: platform.url });
  const [first, second] = platform.asked.filter((a) => a.path === '/api/auth/device/token');
  assert.deepEqual(first?.body, { grant_type: 'urn:ietf:params:oauth:grant-type:device_code', device_code: 'd'.repeat(64), client_id: 'cli' });
  assert.ok((second?.atMs ?? 0) - (first?.atMs ?? 0) >= 1_000);
});

test('cli - denied: exit code other than 0, an error, nothing stored [CLI-012]', async (t) => {
  const at = await home(t, {
    ...basic,
    'POST /api/auth/device/code': () => ({ status: 200, body: {
      device_code: 'd'.repeat(64), user_code: 'ABCD-2345', verification_uri: 'https://x.example/device', verification_uri_complete: 'https://x.example/device?code=ABCD-2345', expires_in: 900, interval: 1,
    } }),
    'POST /api/auth/device/token': () => ({ status: 400, body: { error: 'access_denied', error_description: 'The person refused.' } }),
  });
  const ran = await at.run(['auth', 'login']);
  assert.equal(ran.code, 4);
  assert.match(ran.err, /access_denied/);
  await assert.rejects(stat(at.config));
});

const org = { id: 'org_01jd0000000000000000000000', name: 'Acme \u001b[31m', slug: 'acme', plan: 'free', role: 'owner', memberCount: 2, createdAt: expiresAt };
const member = { userId: 'usr_01jd0000000000000000000001', name: 'Bob', email: 'bob@example.com', role: 'member', joinedAt: expiresAt };

test('cli - org and keys: the only organization is meant, people are named by e-mail, the key is printed alone, --json gives the server\'s objects', async (t) => {
  const key = { id: 'key_01jd0000000000000000000002', name: 'ci', keyPrefix: 'trp_sk_x', scopes: ['*'], createdBy: 'usr_1', lastUsedAt: null, revokedAt: null, createdAt: expiresAt };
  const at = await home(t, {
    ...basic,
    'GET /api/organization': () => ({ status: 200, body: { organizations: [org] } }),
    'GET /api/organization/members': () => ({ status: 200, body: { members: [member] } }),
    'PATCH /api/organization/members': () => ({ status: 200, body: { ...member, role: 'admin' } }),
    'POST /api/organization/api-keys': () => ({ status: 201, body: { ...key, key: 'trp_sk_secret' } }),
    'DELETE /api/organization': () => ({ status: 200, body: {} }),
  });
  const token = { env: { TROUPE_TOKEN: 'ada' } };
  const listed = await at.run(['org', 'list'], token);
  assert.match(listed.out, /^acme {2}org_01jd0+ {2}free {2}owner {2}2 members {2}Acme \[31m\n$/, 'no control character of a name reaches the terminal');
  assert.deepEqual(JSON.parse((await at.run(['org', 'list', '--json'], token)).out), { organizations: [org] });
  assert.equal((await at.run(['org', 'role', 'Bob@example.com', 'admin'], token)).out, 'bob@example.com is now admin.\n');
  assert.deepEqual(platform.asked.at(-1)?.body, { orgId: org.id, userId: member.userId, role: 'admin' });
  const made = await at.run(['keys', 'create', 'ci', '--scope', '*'], token);
  assert.equal(made.out, 'trp_sk_secret\n');
  assert.match(made.err, /shown this once/);
  assert.deepEqual(platform.asked.at(-1)?.body, { orgId: org.id, name: 'ci', scopes: ['*'] });
  assert.equal((await at.run(['org', 'delete', 'acme'], token)).code, 2);
  assert.equal(platform.times('DELETE /api/organization'), 0);
  assert.equal((await at.run(['org', 'delete', 'acme', '--confirm', 'acme'], token)).code, 0);
  assert.equal((await at.run(['org', 'show', '--org', 'other'], token)).code, 4);
  assert.equal((await at.run(['org', 'role', 'bob@example.com', 'king'], token)).code, 2);
});

test('cli - every auth, org and keys command has --help and --json with the exit codes', async (t) => {
  const at = await home(t);
  const help = (await at.run(['--help'])).out;
  for (const group of ['auth', 'org', 'keys']) {
    assert.ok(help.includes(group));
    const own = (await at.run([group, '--help'])).out;
    for (const [, name = ''] of own.matchAll(/^ {2}([a-z]+) \[options\]/gm)) {
      const text = (await at.run([group, name, '--help'])).out;
      assert.ok(text.includes('--json') && text.includes('Exit codes'), `${group} ${name}`);
    }
  }
});

test('cli - a file that is no configuration is named, not overwritten; an address without TLS is refused', async (t) => {
  const at = await home(t);
  await mkdir(join(at.path, '.troupe'));
  await writeFile(at.config, 'not json');
  const broken = await at.run(['auth', 'login', '--manual'], { input: 'ada\n' });
  assert.equal(broken.code, 2);
  assert.ok(broken.err.includes(at.config));
  assert.equal(await readFile(at.config, 'utf8'), 'not json');
  await rm(at.config);
  assert.equal((await at.run(['auth', 'status', '--api', 'http://platform.example', '--token', 'ada'])).code, 2);
});

test('cli - a config.json that is a link stays one: what it leads to is written, and loses its token at logout [CLI-003] [CLI-004]', async (t) => {
  const at = await home(t);
  const kept = join(at.path, 'kept.json');
  await mkdir(join(at.path, '.troupe'));
  await writeFile(kept, '{"token":"old"}', { mode: 0o644 });
  await symlink(kept, at.config);
  assert.equal((await at.run(['auth', 'login', '--manual'], { input: 'ada\n' })).code, 0);
  assert.deepEqual([JSON.parse(await readFile(kept, 'utf8')), await mode(kept)], [{ token: 'ada', apiBase: platform.url }, 0o600]);
  assert.equal((await at.run(['auth', 'logout'])).code, 0);
  assert.deepEqual([JSON.parse(await readFile(kept, 'utf8')), (await lstat(at.config)).isSymbolicLink()], [{ apiBase: platform.url }, true]);
});

test('cli - a login that cannot be stored says where, without a stack [CLI-001]', async (t) => {
  const at = await home(t);
  await writeFile(join(at.path, '.troupe'), 'a file');
  const ran = await at.run(['auth', 'login', '--manual'], { input: 'ada\n' });
  assert.equal(ran.code, 2);
  assert.match(ran.err, /config\.json cannot be written \(E[A-Z]+\)/);
  assert.doesNotMatch(ran.err, /node:|\.ts:/);
});

test('cli - a token that no header can hold is invalid, not a network that is down [CLI-006]', async (t) => {
  const at = await home(t);
  for (const token of ['a\nb', 'é', 'a b']) {
    const ran = await at.run(['org', 'list'], { env: { TROUPE_TOKEN: token } });
    assert.equal(ran.code, 4, ran.err);
    assert.match(ran.err, /unauthorized/);
  }
  assert.equal(platform.asked.length, 0);
});

test('cli - a reader that leaves early ends the command without a complaint', async (t) => {
  const at = await home(t);
  await at.write({ token: 'a'.repeat(4_000_000) });
  const child = spawn(process.execPath, [troupeEntry, 'auth', 'token'], { cwd: at.path, env: { HOME: at.path }, stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => { said += text; });
  child.stdout.once('data', () => child.stdout.destroy());
  const [code] = await once(child, 'close');
  assert.deepEqual([code, said], [0, '']);
});
