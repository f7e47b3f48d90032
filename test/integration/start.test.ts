/** `npm start` as a user meets it: the real thing in a folder of its own, killed, stopped and started again. */
import assert from 'node:assert/strict';
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { request as plainRequest } from 'node:http';
import { request } from 'node:https';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import test, { type TestContext } from 'node:test';
import { SignJWT } from 'jose';
import { connect, type Msg } from 'nats';
import { parse } from 'smol-toml';
import { z } from 'zod';
import { devFile, gatewayConfig, type DevFile } from '../../contracts/config.ts';
import { chatSession } from '../../contracts/session.ts';
import { commandSubject } from '../../contracts/subjects.ts';
import { integrator } from '../../deploy/start/nats.ts';
import { sharedParents } from '../../deploy/start/postgres.ts';
import { isAlive, markOf } from '../../deploy/start/process-mark.ts';
import { asProcess } from '../harness/admin-client.ts';
import { root } from '../repo/source.ts';

const readyLine = z.looseObject({ baseUrl: z.string(), mailUrl: z.string(), pids: z.record(z.string(), z.int()), devFile: z.string() });

interface Start {
  readonly process: ChildProcess;
  readonly lines: string[];
  /** The next line, already written or to come and not given before, that matches; or a rejection when the process ends. */
  next(pattern: RegExp): Promise<string>;
  ended: Promise<number | null>;
}

const start = (t: TestContext, dir: string, ...options: string[]): Start => {
  const child = spawn(process.execPath, [join(root, 'deploy', 'run.mjs'), 'start', '--dir', dir, '--json', ...options], { stdio: ['ignore', 'pipe', 'pipe'] });
  const lines: string[] = [];
  const waits = new Set<() => void>();
  let seen = 0;
  let over = false;
  for (const stream of [child.stdout, child.stderr]) createInterface({ input: stream }).on('line', (line) => { lines.push(line); for (const look of waits) look(); });
  const ended = once(child, 'close').then(([code]) => { over = true; for (const look of waits) look(); return code as number | null; });
  t.after(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGTERM');
    await ended;
  });
  return {
    process: child, lines, ended,
    next: (pattern) => new Promise((resolve, reject) => {
      const look = (): void => {
        for (; seen < lines.length; seen++) {
          const line = lines[seen] ?? '';
          if (!pattern.test(line)) continue;
          seen++;
          waits.delete(look);
          resolve(line);
          return;
        }
        if (over) reject(new Error(`ended before a line like ${String(pattern)}:\n${lines.join('\n')}`));
      };
      waits.add(look);
      look();
    }),
  };
};

const ask = (dev: DevFile, method: string, path: string, body?: unknown, bearer = dev.user.gatewayToken, url = dev.baseUrl): Promise<{ status: number; text: string }> => new Promise((resolve, reject) => {
  const sent = request(`${url}${path}`, {
    method, ca: readFileSync(dev.caPath), agent: false, timeout: 10_000,
    headers: { authorization: `Bearer ${bearer}`, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
  }, (response) => {
    let text = '';
    response.setEncoding('utf8').on('data', (chunk: string) => { text += chunk; }).on('end', () => resolve({ status: response.statusCode ?? 0, text }));
  });
  sent.on('error', reject).on('timeout', () => sent.destroy(new Error('no answer within 10 s')));
  sent.end(body === undefined ? undefined : JSON.stringify(body));
});

/** A page of this machine, asked by any name. */
const askPage = (url: string, options: { readonly method?: string; readonly host?: string } = {}): Promise<{ status: number; text: string; policy: string }> => new Promise((resolve, reject) => {
  const { host, hostname, port } = new URL(url);
  const sent = plainRequest({ host: hostname, port, path: '/', method: options.method ?? 'GET', agent: false, timeout: 10_000, headers: { host: options.host ?? host } }, (response) => {
    let text = '';
    const policy = String(response.headers['content-security-policy'] ?? '');
    response.setEncoding('utf8').on('data', (chunk: string) => { text += chunk; }).on('end', () => resolve({ status: response.statusCode ?? 0, text, policy }));
  });
  sent.on('error', reject).on('timeout', () => sent.destroy(new Error('no answer within 10 s')));
  sent.end();
});

/** A folder of its own; root's Postgres data, which lies outside it, goes with it. */
const ownFolder = (t: TestContext): string => {
  const dir = mkdtempSync(join(tmpdir(), 'troupe-npm-start-'));
  t.after(() => {
    const idFile = join(dir, '.troupe', 'id');
    if (existsSync(idFile)) for (const shared of sharedParents) rmSync(join(shared, readFileSync(idFile, 'utf8')), { recursive: true, force: true });
    rmSync(dir, { recursive: true, force: true });
  });
  return dir;
};

const readDev = (dir: string): DevFile => devFile.parse(JSON.parse(readFileSync(join(dir, '.troupe', 'dev.json'), 'utf8')));

test('npm start - starts, admits its user to the admin socket, heals after kill -9 of any part, drains, and continues where it stopped [ADM-020]', async (t) => {
  const dir = ownFolder(t);
  const first = start(t, dir);
  const ready = readyLine.parse(JSON.parse(await first.next(/"event":"ready"/)));
  const dev = readDev(dir);
  assert.equal(statSync(ready.devFile).mode & 0o777, 0o600);
  assert.equal((await ask(dev, 'GET', '/healthz')).text, 'OK');
  const made = await ask(dev, 'POST', '/v1/agent/create_session', { user_id: dev.user.id, project_id: 'tour' });
  assert.equal(made.status, 201, made.text);
  const session = chatSession.parse(JSON.parse(made.text));

  // The configuration it wrote names the group of whoever started it, and so it is admitted.
  const { admin } = gatewayConfig.parse(parse(readFileSync(join(dir, '.troupe', 'gateway.toml'), 'utf8')));
  assert.equal(admin?.group, execFileSync('id', ['-gn'], { encoding: 'utf8' }).trim());
  assert.equal(admin.socket_path, dev.adminSocket);
  assert.equal(await asProcess(dev.adminSocket, { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }), true);

  // No secret is on any command line or in any environment, where other processes of the user could read it.
  const secrets = readdirSync(join(dir, '.troupe', 'secrets')).map((name) => readFileSync(join(dir, '.troupe', 'secrets', name), 'utf8').trim());
  secrets.push(dev.user.gatewayToken);
  if (process.platform === 'linux') {
    for (const pid of [first.process.pid, ...Object.values(ready.pids)]) {
      const shown = readFileSync(`/proc/${pid}/cmdline`, 'utf8') + readFileSync(`/proc/${pid}/environ`, 'utf8');
      for (const secret of secrets) assert.ok(!shown.includes(secret));
    }
  }
  for (const line of first.lines) for (const secret of secrets) assert.ok(!line.includes(secret));

  // A NATS client with the integrator's credentials calls an actor, and is told by code when it is refused.
  const call = async (...args: string[]): Promise<{ code: number; text: string }> => {
    const caller = spawn(process.execPath, [join(root, 'deploy', 'run.mjs'), 'call', '--dir', dir, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
    let text = '';
    for (const stream of [caller.stdout, caller.stderr]) stream.setEncoding('utf8').on('data', (chunk: string) => { text += chunk; });
    const [code] = await once(caller, 'close') as [number];
    return { code, text };
  };
  const input = JSON.stringify({ user_id: dev.user.id, project_id: 'tour' });
  const called = await call('session', 'hello', 'create', input);
  assert.equal(called.code, 0, called.text);
  assert.equal(chatSession.parse(JSON.parse(called.text)).sid, 'hello');
  const again = await call('session', 'hello', 'create', input);
  assert.equal(again.code, 1);
  assert.match(again.text, /conflict/);

  // A second start of the same folder is told so, and changes nothing.
  const second = start(t, dir);
  assert.match(await second.next(/runs here already/), new RegExp(`process ${first.process.pid}\\b`));
  assert.equal(await second.ended, 3);

  const marks = Object.values(ready.pids).map((pid) => markOf(pid));
  for (const name of ['gateway', 'daemon', 'nats', 'postgres']) {
    const back = first.next(new RegExp(`${name} serves again`));
    process.kill(ready.pids[name] ?? assert.fail(`${name} has no pid`), 'SIGKILL');
    await back;
  }
  // The gateway dials the restarted daemon again within a second; until then it says 503.
  while ((await ask(dev, 'GET', '/healthz')).status !== 200) t.signal.throwIfAborted();
  const resumed = await ask(dev, 'POST', '/v1/agent/create_session', { user_id: dev.user.id, project_id: 'tour', resume_sid: session.sid });
  assert.equal(resumed.status, 200, resumed.text);
  assert.deepEqual(chatSession.parse(JSON.parse(resumed.text)), session);

  first.process.kill('SIGTERM');
  const steps = [await first.next(/Draining the gateway/), await first.next(/Draining the daemon/), await first.next(/Stopping NATS/), await first.next(/Stopping Postgres/)];
  assert.equal(steps.length, 4);
  assert.equal(await first.ended, 0);
  for (const mark of marks) assert.ok(mark === undefined || !isAlive(mark));
  assert.deepEqual(readdirSync(join(dir, '.troupe', 'run')).filter((name) => name.endsWith('.pid')), []);

  const third = start(t, dir);
  await third.next(/"event":"ready"/);
  const later = readDev(dir);
  assert.equal(readFileSync(later.caPath, 'utf8'), readFileSync(dev.caPath, 'utf8'));
  const kept = await ask(later, 'POST', '/v1/agent/create_session', { user_id: dev.user.id, project_id: 'tour', resume_sid: session.sid });
  assert.deepEqual(chatSession.parse(JSON.parse(kept.text)), session);

  // npm stop from elsewhere.
  const stop = spawn(process.execPath, [join(root, 'deploy', 'run.mjs'), 'stop', '--dir', dir], { stdio: 'ignore' });
  assert.deepEqual(await once(stop, 'close'), [0, null]);
  assert.equal(await third.ended, 0);
});

test('npm start - its account is a real one: token, organization, key and NATS work, mails are shown to this machine only, and the next start has the same', async (t) => {
  const dir = ownFolder(t);
  const first = start(t, dir);
  const { mailUrl, pids } = readyLine.parse(JSON.parse(await first.next(/"event":"ready"/)));
  const dev = readDev(dir);
  // An integrator reaches the account's organization, made after NATS had started, and no other.
  const url = new URL(dev.natsUrl);
  const nc = await connect({ servers: url.host, user: url.username, pass: url.password, inboxPrefix: integrator.inboxPrefix, reconnect: false });
  t.after(() => nc.close());
  const create = (org: string): Promise<Msg> => nc.request(commandSubject({ org, type: 'session', key: 'tour' }, 'create'), JSON.stringify({ user_id: dev.user.id, project_id: 'tour' }), { timeout: 10_000 });
  const made = await create(dev.org.id);
  assert.equal(made.headers?.get('Nats-Service-Error-Code') ?? '', '', made.string());
  assert.equal(chatSession.parse(made.json()).sid, 'tour');
  for (const org of ['org_01jd0000000000000000000000', 'platform', '*']) await assert.rejects(create(org), (error) => /permission|invalid subject/i.test(`${String(error)} ${error instanceof Error ? String(error.cause) : ''}`), org);
  await nc.close();

  const { accessToken } = dev.user;
  const apiKey = dev.org.apiKey ?? assert.fail('no apiKey');
  const me = await ask(dev, 'GET', '/api/auth/me', undefined, accessToken);
  assert.equal(me.status, 200, me.text);
  const { id, email } = z.object({ id: z.string(), email: z.string() }).parse(JSON.parse(me.text));
  assert.deepEqual([id, email], [dev.user.id, dev.user.email]);
  const orgOf = async (bearer: string): Promise<string> => {
    const got = await ask(dev, 'GET', `/api/organization?orgId=${dev.org.id}`, undefined, bearer);
    assert.equal(got.status, 200, got.text);
    return z.object({ slug: z.string() }).parse(JSON.parse(got.text)).slug;
  };
  assert.deepEqual([await orgOf(accessToken), await orgOf(apiKey)], [dev.org.slug, dev.org.slug]);
  // The terms are accepted, so that a chat passes with either.
  const chat = { model: 'mock', messages: [{ role: 'user', content: 'hello' }] };
  for (const bearer of [accessToken, apiKey]) {
    const said = await ask(dev, 'POST', '/api/v1/chat/completions', chat, bearer);
    assert.equal(said.status, 200, said.text);
  }
  assert.equal(statSync(join(dir, '.troupe', 'account.json')).mode & 0o777, 0o600);
  // The deployment has a listener of its own; where a service names none, it is meant.
  const { deployment } = dev;
  assert.ok(deployment !== undefined && dev.deploymentUrl !== dev.baseUrl);
  const unnamed = await new SignJWT({ exp: Math.floor(Date.now() / 1_000) + 60 }).setProtectedHeader({ alg: 'HS256' }).sign(new TextEncoder().encode(deployment.secret));
  const regulation = (bearer: string, url = dev.deploymentUrl): Promise<number> => ask(dev, 'GET', '/v1/regulation/state', undefined, bearer, url).then(({ status }) => status);
  assert.deepEqual([await regulation(deployment.key), await regulation(unnamed), await regulation(deployment.secret), await regulation(deployment.key, dev.baseUrl)], [200, 200, 401, 404]);
  assert.equal(statSync(join(dir, '.troupe', 'deployment.json')).mode & 0o777, 0o600);
  const running = process.platform === 'linux' ? Object.values(pids) : [];
  const shown = [...first.lines, ...running.map((pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8') + readFileSync(`/proc/${pid}/environ`, 'utf8'))];
  for (const secret of [accessToken, apiKey, deployment.key, deployment.secret]) for (const text of shown) assert.ok(!text.includes(secret));

  // A mail is printed and on the page; the page knows this machine's names only.
  assert.equal((await ask(dev, 'POST', '/api/auth/email/start', { email: 'newcomer@example.com' })).status, 202);
  const printed = await first.next(/newcomer@example\.com/);
  const code = /(?<!\d)\d{8}(?!\d)/.exec(printed)?.[0] ?? assert.fail(printed);
  const page = await askPage(mailUrl);
  assert.equal(page.status, 200);
  assert.ok(page.text.includes('newcomer@example.com') && page.text.includes(code));
  assert.match(page.policy, /default-src 'none'/);
  const { port } = new URL(mailUrl);
  for (const host of ['evil.example', `evil.example:${port}`, `127.0.0.1.evil.example:${port}`, '127.0.0.1']) {
    const refused = await askPage(mailUrl, { host });
    assert.deepEqual([refused.status, refused.text], [403, ''], host);
  }
  assert.equal((await askPage(mailUrl, { method: 'POST' })).status, 403);
  const elsewhere = Object.values(networkInterfaces()).flat().find((one) => one?.family === 'IPv4' && !one.internal)?.address;
  if (elsewhere !== undefined) await assert.rejects(askPage(`http://${elsewhere}:${port}/`), /ECONNREFUSED/, 'on 127.0.0.1 only');

  first.process.kill('SIGTERM');
  assert.equal(await first.ended, 0);
  const second = start(t, dir);
  await second.next(/"event":"ready"/);
  const later = readDev(dir);
  assert.deepEqual([later.user.id, later.user.accessToken, later.org, later.deployment], [dev.user.id, accessToken, dev.org, deployment]);
  assert.equal((await ask(later, 'GET', '/api/auth/me', undefined, later.user.accessToken)).status, 200);
  assert.equal((await ask(later, 'GET', '/api/organization', undefined, apiKey)).status, 200);

  // Somebody ended the token: the next start signs the same person in again.
  assert.equal((await ask(later, 'POST', '/api/auth/revoke', { token: accessToken }, accessToken)).status, 200);
  second.process.kill('SIGTERM');
  assert.equal(await second.ended, 0);
  const third = start(t, dir);
  await third.next(/"event":"ready"/);
  const renewed = readDev(dir);
  assert.deepEqual([renewed.user.id, renewed.org.id], [dev.user.id, dev.org.id]);
  assert.equal((await ask(renewed, 'GET', '/api/auth/me', undefined, renewed.user.accessToken)).status, 200);
  assert.equal((await ask(renewed, 'GET', '/api/organization', undefined, renewed.org.apiKey)).status, 200);
  assert.equal((await ask(renewed, 'GET', '/api/organization', undefined, apiKey)).status, 401, 'of several keys whose text is lost none is left');
  third.process.kill('SIGTERM');
  assert.equal(await third.ended, 0);
});

test('npm start - a start that was killed leaves processes; the next ends them and goes on', async (t) => {
  const dir = ownFolder(t);
  const first = start(t, dir);
  const { pids } = readyLine.parse(JSON.parse(await first.next(/"event":"ready"/)));
  const marks = Object.values(pids).map((pid) => markOf(pid));
  first.process.kill('SIGKILL');
  const second = start(t, dir);
  await second.next(/what it left was ended/);
  await second.next(/"event":"ready"/);
  for (const mark of marks) assert.ok(mark === undefined || !isAlive(mark));
  assert.equal((await ask(readDev(dir), 'GET', '/healthz')).text, 'OK');
  second.process.kill('SIGTERM');
  assert.equal(await second.ended, 0);
});

test('npm start - a wrong option is refused with code 2 before anything is made', async (t) => {
  const dir = ownFolder(t);
  for (const options of [['--port', '0'], ['--port', 'http'], ['--model', 'nobody:x'], ['--dance']]) {
    const wrong = start(t, dir, ...options);
    assert.equal(await wrong.ended, 2, options.join(' '));
  }
  assert.deepEqual(readdirSync(dir), []);
});
