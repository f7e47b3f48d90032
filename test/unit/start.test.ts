/** The parts of `npm start` that need no server: certificate, lock, logs, ports, configuration, supervision. */
import assert from 'node:assert/strict';
import { fork, spawn } from 'node:child_process';
import { generateKeyPairSync, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type TestContext } from 'node:test';
import { jwtVerify } from 'jose';
import { parse } from 'smol-toml';
import { daemonConfig, devFile, gatewayConfig } from '../../contracts/config.ts';
import { limits } from '../../contracts/limits.ts';
import { ensureCertificate } from '../../deploy/start/certificate.ts';
import { Child, endLeftovers, type ChildSpec } from '../../deploy/start/child.ts';
import { modelSections, writeDaemonConfig, writeGatewayConfig } from '../../deploy/start/config-files.ts';
import { writeDevFile } from '../../deploy/start/dev-file.ts';
import { findFolder, loadState, openFolder, saveState } from '../../deploy/start/folder.ts';
import { startFile, takeLock } from '../../deploy/start/lock.ts';
import { LogFile } from '../../deploy/start/log-file.ts';
import { freePort, freePortFrom } from '../../deploy/start/port.ts';
import { isAlive, markOf } from '../../deploy/start/process-mark.ts';
import type { Say } from '../../deploy/start/say.ts';
import { makeSecrets } from '../../deploy/start/secrets.ts';

const temp = (t: TestContext): string => {
  const path = mkdtempSync(join(tmpdir(), 'troupe-start-'));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  return path;
};
const modeOf = (path: string): number => statSync(path).mode & 0o777;
const dayMs = 86_400_000;

/** Everything said, and a wait for a line that matches. */
const listen = (): { say: Say; lines: string[]; heard: (pattern: RegExp) => Promise<string> } => {
  const lines: string[] = [];
  const waits = new Set<() => void>();
  const add = (text: string): void => { lines.push(text); for (const look of waits) look(); };
  return {
    lines, say: { progress: add, warn: add, ready: add, fail: add },
    heard: (pattern) => new Promise((resolve) => {
      const look = (): void => {
        const found = lines.find((line) => pattern.test(line));
        if (found === undefined) return;
        waits.delete(look);
        resolve(found);
      };
      waits.add(look);
      look();
    }),
  };
};

test('start - everything it keeps is private: folders 0700, files 0600', async (t) => {
  const folder = openFolder(temp(t));
  makeSecrets(folder);
  await ensureCertificate(folder.tls);
  const all = readdirSync(folder.path, { recursive: true, encoding: 'utf8' }).map((name) => join(folder.path, name));
  assert.ok(all.length > 15);
  for (const path of [folder.path, ...all]) assert.equal(modeOf(path), statSync(path).isDirectory() ? 0o700 : 0o600, path);
});

test('start - secrets, state and folder id are the same on the next start', (t) => {
  const parent = temp(t);
  const folder = openFolder(parent);
  const first = makeSecrets(folder);
  const initial = { natsPort: 1, postgresPort: 2, opsPort: 3, mailPort: 4, deploymentPort: 7, journalStreams: 1 };
  saveState(folder, { ...loadState(folder, initial), natsPort: 4_444 });
  const again = openFolder(parent);
  assert.deepEqual(makeSecrets(again), first);
  assert.deepEqual(loadState(again, { ...initial, journalStreams: 8 }), { ...loadState(folder, initial), natsPort: 4_444, journalStreams: 1 });
  assert.equal(findFolder(join(parent, '.troupe', 'data')), folder.path);
});

test('start - a socket path too long for the system moves to a private folder in the temporary one', (t) => {
  const deep = join(temp(t), 'x'.repeat(90));
  mkdirSync(deep);
  const folder = openFolder(deep);
  t.after(() => rmSync(folder.sockets, { recursive: true, force: true }));
  assert.ok(Buffer.byteLength(join(folder.sockets, 'daemon', 'd000.sock')) <= 103);
  assert.equal(modeOf(folder.sockets), 0o700);
});

test('certificate - names the loopback addresses, is signed by the CA and kept', async (t) => {
  const path = temp(t);
  const made = await ensureCertificate(path);
  assert.equal(made.renewed, true);
  const [ca, cert] = [new X509Certificate(readFileSync(made.caPath)), new X509Certificate(readFileSync(made.certPath))];
  assert.ok(cert.verify(ca.publicKey));
  assert.ok(cert.checkIssued(ca));
  assert.equal(cert.ca, false);
  assert.equal(cert.checkHost('localhost'), 'localhost');
  assert.equal(cert.checkIP('127.0.0.1'), '127.0.0.1');
  assert.equal(cert.checkIP('::1'), '::1');
  assert.equal(cert.checkHost('example.com'), undefined);
  const kept = await ensureCertificate(path);
  assert.equal(kept.renewed, false);
  assert.equal(new X509Certificate(readFileSync(kept.certPath)).serialNumber, cert.serialNumber);
});

test('certificate - is renewed near its end, with the same CA', async (t) => {
  const path = temp(t);
  const made = await ensureCertificate(path);
  const ca = readFileSync(made.caPath, 'utf8');
  const end = new X509Certificate(readFileSync(made.certPath)).validToDate.getTime();
  assert.equal((await ensureCertificate(path, end - (limits.devCertificateRenewDays + 1) * dayMs)).renewed, false);
  assert.equal((await ensureCertificate(path, end - (limits.devCertificateRenewDays - 1) * dayMs)).renewed, true);
  assert.equal(readFileSync(made.caPath, 'utf8'), ca);
});

test('certificate - a damaged or foreign pair is replaced', async (t) => {
  const path = temp(t);
  const made = await ensureCertificate(path);
  writeFileSync(made.certPath, 'not a certificate');
  assert.equal((await ensureCertificate(path)).renewed, true);
  writeFileSync(made.keyPath, generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ type: 'pkcs8', format: 'pem' }));
  assert.equal((await ensureCertificate(path)).renewed, true);
  const other = await ensureCertificate(temp(t));
  writeFileSync(made.certPath, readFileSync(other.certPath));
  writeFileSync(made.keyPath, readFileSync(other.keyPath));
  assert.equal((await ensureCertificate(path)).renewed, true);
});

test('start - of 8 processes that start in one folder at once, exactly one gets it', async (t) => {
  const parent = temp(t);
  openFolder(parent);
  const script = join(parent, 'taker.mjs');
  const source = (name: string): string => JSON.stringify(new URL(`../../deploy/start/${name}`, import.meta.url).href);
  writeFileSync(script, `
    import { openFolder } from ${source('folder.ts')};
    import { takeLock } from ${source('lock.ts')};
    process.once('message', () => process.send(takeLock(openFolder(${JSON.stringify(parent)})).held));
    // It stays: a holder that ends gives the lock to whoever comes next.
    setInterval(() => undefined, 60_000);
    process.send('here');
  `);
  // A lock left by a process that is gone: its pid now belongs to this one, its start time to nobody.
  writeFileSync(startFile(join(parent, '.troupe')), JSON.stringify({ pid: process.pid, startedAt: '1' }));
  const takers = Array.from({ length: 8 }, () => fork(script));
  t.after(() => { for (const taker of takers) taker.kill('SIGKILL'); });
  await Promise.all(takers.map((taker) => once(taker, 'message')));
  const answers = takers.map(async (taker) => {
    const [held] = await once(taker, 'message') as [boolean];
    return held;
  });
  for (const taker of takers) taker.send('go');
  assert.equal((await Promise.all(answers)).filter(Boolean).length, 1);
});

test('start - the lock names its holder and is given back', (t) => {
  const folder = openFolder(temp(t));
  const first = takeLock(folder);
  assert.ok(first.held);
  const second = takeLock(folder);
  assert.ok(!second.held);
  assert.equal(second.by?.pid, process.pid);
  first.release();
  const third = takeLock(folder);
  assert.ok(third.held);
});

test('start - a mark knows its process from a later one with the same pid', () => {
  const mark = markOf(process.pid);
  assert.ok(mark !== undefined);
  assert.equal(isAlive(mark), true);
  assert.equal(isAlive({ ...mark, startedAt: `${mark.startedAt}0` }), false);
});

test('start - a log file and the one before it never hold more than twice the bound', (t) => {
  const path = join(temp(t), 'x.log');
  const log = new LogFile(path);
  const chunk = Buffer.from(`${'a'.repeat(1_023)}\n`.repeat(1_024));
  for (let written = 0; written < 3.5 * limits.logFileMaxBytes; written += chunk.length) log.write(chunk);
  log.write(Buffer.from('the last line\n'));
  log.close();
  assert.ok(statSync(path).size <= limits.logFileMaxBytes);
  assert.equal(statSync(`${path}.1`).size, limits.logFileMaxBytes);
  assert.deepEqual(readdirSync(join(path, '..')).toSorted(), ['x.log', 'x.log.1']);
  assert.equal(log.tail().at(-1), 'the last line');
  assert.ok(log.tail().length <= 20);
});

test('start - a taken port is passed over', async (t) => {
  const port = await freePort();
  const holder = createServer().listen(port, '127.0.0.1');
  await once(holder, 'listening');
  t.after(() => holder.close());
  const found = await freePortFrom(port);
  assert.ok(found > port);
  assert.notEqual(await freePortFrom(found, '127.0.0.1', new Set([found])), found);
});

test('dev.json - has the contract\'s shape, is private, and its token is what a dev-mode gateway takes', async (t) => {
  const folder = openFolder(temp(t));
  const secret = 'a secret of at least thirty-two bytes';
  const written = await writeDevFile({
    path: folder.devFile, secret, audience: 'gw', baseUrl: 'https://localhost:1', deploymentUrl: 'https://localhost:2', deployment: { id: 'dep_1', key: 'trp_dk_1', secret: 'trp_ds_1' }, natsUrl: 'nats://u:p@127.0.0.1:2', caPath: '/ca', adminSocket: '/s',
    account: { userId: 'usr_1', email: 'dev@troupe.localhost', accessToken: 'access', org: { id: 'org_1', slug: 'dev', apiKey: 'trp_sk_1' } },
  });
  assert.equal(modeOf(folder.devFile), 0o600);
  assert.deepEqual(devFile.parse(JSON.parse(readFileSync(folder.devFile, 'utf8'))), written);
  const { payload, protectedHeader } = await jwtVerify(written.user.gatewayToken, new TextEncoder().encode(secret), { audience: 'gw' });
  assert.equal(protectedHeader.alg, 'HS256');
  assert.equal(payload.sub, 'usr_1');
  assert.equal(payload['org'], 'org_1');
  assert.deepEqual([written.deploymentUrl, written.deployment?.key], ['https://localhost:2', 'trp_dk_1']);
  assert.deepEqual([written.user.accessToken, written.org.apiKey], ['access', 'trp_sk_1']);
  assert.equal((payload.exp ?? 0) - (payload.iat ?? 0), limits.devTokenTtlSec);
});

test('configuration files - read back as what was written; a wrong key is refused before it is written', (t) => {
  const path = temp(t);
  const daemon = {
    host: 'dev-0', socket_path: '/run/d0.sock', master_key_path: '/m', nats: { url: 'nats://127.0.0.1:1' }, capability: { public_key_path: '/p' },
    ...modelSections([{ provider: 'openai', model: 'some "quoted" model', keyPath: '/k', baseUrl: 'http://127.0.0.1:9/v1' }]),
  };
  writeDaemonConfig(join(path, 'd.toml'), daemon);
  const read = daemonConfig.parse(parse(readFileSync(join(path, 'd.toml'), 'utf8')));
  assert.deepEqual(read, daemonConfig.parse(daemon));
  assert.equal(read.models.default, 'some "quoted" model');
  assert.deepEqual(read.models.registry.map((m) => m.id), ['mock', 'some "quoted" model']);
  assert.throws(() => writeDaemonConfig(join(path, 'x.toml'), { ...daemon, hots: 'typo' } as typeof daemon));
  assert.equal(existsSync(join(path, 'x.toml')), false);
  const gateway = {
    listen: { port: 8443 }, tls: { cert_path: '/c', key_path: '/k' }, auth: {}, capability: { key_path: '/k' }, upstream: { socket_path: '/run' },
  };
  writeGatewayConfig(join(path, 'g.toml'), gateway);
  assert.deepEqual(gatewayConfig.parse(parse(readFileSync(join(path, 'g.toml'), 'utf8'))), gatewayConfig.parse(gateway));
});

const childIn = (t: TestContext, script: string, spec: Partial<ChildSpec> = {}): { child: Child; folder: { log: string; run: string }; ear: ReturnType<typeof listen> } => {
  const path = temp(t);
  const folder = { log: join(path, 'log'), run: join(path, 'run') };
  mkdirSync(folder.log);
  mkdirSync(folder.run);
  const ear = listen();
  const child = new Child({
    name: 'sample', file: process.execPath, args: ['-e', script], stopSignal: 'SIGTERM', stopMs: 5_000, probe: () => Promise.resolve(true), ...spec,
  }, folder, ear.say);
  t.after(() => child.kill());
  return { child, folder, ear };
};
const forever = 'setInterval(() => {}, 1000);';

test('supervision - a killed child is started again and a line says so', async (t) => {
  const { child, folder, ear } = childIn(t, forever);
  await child.start();
  const first = child.pid;
  assert.ok(first !== undefined);
  assert.equal(JSON.parse(readFileSync(join(folder.run, 'sample.pid'), 'utf8')).pid, first);
  const back = ear.heard(/sample serves again/);
  process.kill(first, 'SIGKILL');
  await back;
  assert.match(ear.lines.join('\n'), /sample ended \(SIGKILL\); it is started again in 0\.1 s/);
  assert.ok(child.pid !== undefined && child.pid !== first);
  await child.stop();
  assert.equal(child.pid, undefined);
  assert.equal(existsSync(join(folder.run, 'sample.pid')), false);
});

test('supervision - a child that never comes up fails the start with its last words', async (t) => {
  const { child } = childIn(t, 'console.error("no such flute"); process.exit(7)', { probe: () => Promise.resolve(false) });
  await assert.rejects(child.start(), (error: Error) => error.message.includes('sample does not start (code 7)') && error.message.includes('no such flute'));
});

test('supervision - a program that does not exist fails the start', async (t) => {
  const { child } = childIn(t, '', { file: '/nonexistent/flute', probe: () => Promise.resolve(false) });
  await assert.rejects(child.start(), /ENOENT/);
});

test('supervision - a child that ignores the stop signal is killed after its time', async (t) => {
  const { child, folder, ear } = childIn(t, `process.on("SIGTERM", () => {}); ${forever} console.log("armed");`, { stopMs: 50 });
  const armed = (): boolean => readFileSync(join(folder.log, 'sample.log'), 'utf8').includes('armed');
  const waiting = childIn(t, forever, { probe: () => Promise.resolve(armed()) });
  await child.start();
  await waiting.child.start();
  await child.stop();
  assert.match(ear.lines.join('\n'), /sample has not ended after 0\.05 s; it is killed/);
});

test('supervision - a child gets no variable of this environment that could be a secret', async (t) => {
  process.env['SAMPLE_API_KEY'] = 'do-not-pass-on';
  t.after(() => { delete process.env['SAMPLE_API_KEY']; });
  const { child, folder } = childIn(t, `console.log("keys:" + Object.keys(process.env).join(",") + ";"); ${forever}`);
  const log = join(folder.log, 'sample.log');
  const waiting = childIn(t, forever, { probe: () => Promise.resolve(readFileSync(log, 'utf8').includes(';')) });
  await child.start();
  await waiting.child.start();
  assert.doesNotMatch(readFileSync(log, 'utf8'), /SAMPLE_API_KEY/);
  assert.match(readFileSync(log, 'utf8'), /PATH/);
});

test('supervision - what a killed start left running is ended by the next', async (t) => {
  const run = temp(t);
  const orphan = spawn(process.execPath, ['-e', forever], { stdio: 'ignore' });
  const ended = once(orphan, 'exit');
  await once(orphan, 'spawn');
  assert.ok(orphan.pid !== undefined);
  writeFileSync(join(run, 'nats.pid'), JSON.stringify(markOf(orphan.pid)));
  // A pid file whose process is gone, and one whose pid now is another process: this one.
  writeFileSync(join(run, 'daemon.pid'), JSON.stringify({ pid: process.pid, startedAt: '1' }));
  assert.deepEqual(await endLeftovers(run), ['nats']);
  await ended;
  assert.deepEqual(readdirSync(run), []);
});
