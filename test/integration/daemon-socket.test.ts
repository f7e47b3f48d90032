/** The daemon's socket: one owner, clean start after a crash, only admitted processes (socket.ts K1-K4, peer.ts). */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, copyFile, mkdir, mkdtemp, readdir, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { test, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { admits, createPeerLookup } from '../../actors/daemon/peer.ts';
import { claimSocket, type SocketOptions } from '../../actors/daemon/socket.ts';
import { CodedError } from '../../contracts/errors.ts';
import { frameType } from '../../contracts/link.ts';
import { recorder, silent } from '../harness/log.ts';
import { rawGateway } from '../harness/raw-gateway.ts';

const harness = join(dirname(fileURLToPath(import.meta.url)), '..', 'harness');
const nobody = 65_534;
const isRoot = process.geteuid?.() === 0;

const folder = async (t: TestContext): Promise<string> => {
  const path = await mkdtemp(join(tmpdir(), 'troupe-socket-'));
  t.after(() => rm(path, { recursive: true, force: true }));
  return path;
};

interface Child {
  readonly pid: number;
  /** The next line of output; undefined at the end. */
  line(): Promise<string | undefined>;
  kill(): Promise<void>;
}

const child = (t: TestContext, script: string, args: readonly string[], as: { uid?: number; gid?: number } = {}): Child => {
  const started = spawn(process.execPath, ['--no-warnings', script, ...args], { stdio: ['ignore', 'pipe', 'inherit'], ...as });
  const lines = createInterface({ input: started.stdout })[Symbol.asyncIterator]();
  const exited = once(started, 'exit');
  t.after(async () => {
    if (started.exitCode === null && started.signalCode === null) {
      started.kill('SIGKILL');
      await exited;
    }
  });
  assert.ok(started.pid !== undefined);
  return {
    pid: started.pid,
    line: async () => {
      const { value, done } = await lines.next();
      return done === true ? undefined : value;
    },
    kill: async () => {
      started.kill('SIGKILL');
      await exited;
    },
  };
};
const claimer = (t: TestContext, path: string, gids = ''): Child => child(t, join(harness, 'claim-socket.ts'), [path, gids]);

const options = (path: string, more: Partial<SocketOptions> = {}): SocketOptions =>
  ({ path, rule: { uids: [], gids: [] }, lookup: createPeerLookup(), log: silent, release: 'test', helloMs: 300, ...more });
const refusal = async (work: Promise<unknown>): Promise<CodedError> => {
  const error = await work.then(() => undefined, (e: unknown) => e);
  assert.ok(error instanceof CodedError, `not refused: ${String(error)}`);
  return error;
};

test('daemon socket - the folder is made 0700, the socket 0600, and both are gone or free after close', async (t) => {
  const path = join(await folder(t), 'run', 'd0.sock');
  const claimed = await claimSocket(options(path));
  await assert.rejects(stat(path), 'not there before it is listened on');
  await claimed.listen((socket) => socket.destroy());
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  assert.equal((await stat(dirname(path))).mode & 0o777, 0o700);
  await claimed.close();
  assert.deepEqual(await readdir(dirname(path)), ['d0.sock.lock']);
  const again = await claimSocket(options(path));
  await again.listen((socket) => socket.destroy());
  await again.close();
});

test('daemon socket - a second daemon is refused with a sentence that names the path and the pid of the first', async (t) => {
  const path = join(await folder(t), 'd0.sock');
  const first = claimer(t, path);
  assert.equal(await first.line(), 'bound');
  const error = await refusal(claimSocket(options(path)));
  assert.equal(error.code, 'socket_in_use');
  assert.ok(error.message.includes(path) && error.message.includes(`pid ${first.pid}`), error.message);
  // The first goes on as if nothing had been.
  const raw = await rawGateway(path);
  raw.hello();
  await raw.until(frameType.hello);
  raw.socket.destroy();
});

test('daemon socket - what a killed daemon left is cleared away, and the next one serves', async (t) => {
  const path = join(await folder(t), 'd0.sock');
  const first = claimer(t, path);
  assert.equal(await first.line(), 'bound');
  await first.kill();
  assert.ok((await stat(path)).isSocket(), 'the stale file is there');
  const log = recorder();
  const second = await claimSocket(options(path, { log }));
  t.after(() => second.close());
  assert.match(JSON.stringify(log.lines), /stale socket removed/);
  await second.listen((socket) => socket.destroy());
});

test('daemon socket - one that accepts but does not answer is not taken over, and the sentence says so', async (t) => {
  const path = join(await folder(t), 'd0.sock');
  const mute = createServer((socket) => socket.on('error', () => undefined));
  await new Promise<void>((resolve) => void mute.listen(path, resolve));
  const sockets: { destroy(): void }[] = [];
  mute.on('connection', (socket) => sockets.push(socket));
  t.after(() => { for (const socket of sockets) socket.destroy(); mute.close(); });
  const error = await refusal(claimSocket(options(path, { helloMs: 50 })));
  assert.equal(error.code, 'socket_in_use');
  assert.match(error.message, /does not answer/);
  assert.ok((await stat(path)).isSocket(), 'left as it was');
});

test('daemon socket - a frozen daemon keeps its path: the sentence says that it does not answer', async (t) => {
  const path = join(await folder(t), 'd0.sock');
  const first = claimer(t, path);
  assert.equal(await first.line(), 'bound');
  process.kill(first.pid, 'SIGSTOP');
  const error = await refusal(claimSocket(options(path, { helloMs: 50 })));
  process.kill(first.pid, 'SIGCONT');
  assert.equal(error.code, 'socket_in_use');
  assert.ok(error.message.includes('does not answer') && error.message.includes(`pid ${first.pid}`), error.message);
});

test('daemon socket - of several that start at once on a stale path exactly one wins', async (t) => {
  for (let round = 0; round < 5; round++) {
    const path = join(await folder(t), 'd0.sock');
    const dead = claimer(t, path);
    assert.equal(await dead.line(), 'bound');
    await dead.kill();
    const claims = await Promise.allSettled(Array.from({ length: 8 }, () => claimSocket(options(path))));
    const won = claims.flatMap((claim) => (claim.status === 'fulfilled' ? [claim.value] : []));
    assert.equal(won.length, 1);
    for (const claim of claims) {
      if (claim.status === 'rejected') assert.equal((claim.reason as CodedError).code, 'socket_in_use');
    }
    await won[0]?.close();
  }
});

test('daemon socket - of several processes that start at once exactly one serves', async (t) => {
  const path = join(await folder(t), 'd0.sock');
  const said = await Promise.all(Array.from({ length: 4 }, () => claimer(t, path).line()));
  assert.equal(said.filter((line) => line === 'bound').length, 1, said.join('\n'));
  for (const line of said) if (line !== 'bound') assert.match(line ?? '', /^socket_in_use /);
});

test('daemon socket - a file that is no socket, an unsafe folder and a path too long are refused and left alone', async (t) => {
  const base = await folder(t);
  const file = join(base, 'd0.sock');
  await writeFile(file, 'precious');
  assert.match((await refusal(claimSocket(options(file)))).message, /is not a socket/);
  assert.ok((await stat(file)).isFile());
  const open = join(base, 'open');
  await mkdir(open);
  await chmod(open, 0o777);
  assert.equal((await refusal(claimSocket(options(join(open, 'd0.sock'))))).code, 'forbidden');
  await symlink(open, join(base, 'link'));
  assert.equal((await refusal(claimSocket(options(join(base, 'link', 'd0.sock'))))).code, 'forbidden');
  assert.match((await refusal(claimSocket(options(join(base, 'x'.repeat(100)))))).message, /too long/);
});

test('daemon socket - admission is by own uid, listed uid, primary or supplementary group, and by nothing else', () => {
  const peer = { pid: 1, uid: 500, gid: 600, groups: [700, 800] };
  const own = 42;
  assert.equal(admits({ uids: [], gids: [] }, { ...peer, uid: own }, own), true);
  assert.equal(admits({ uids: [500], gids: [] }, peer, own), true);
  assert.equal(admits({ uids: [], gids: [600] }, peer, own), true);
  assert.equal(admits({ uids: [], gids: [800] }, peer, own), true);
  assert.equal(admits({ uids: [600, 700], gids: [500] }, peer, own), false);
  assert.equal(admits({ uids: [], gids: [] }, { ...peer, uid: 0 }, own), false, 'root is no exception');
});

test('daemon socket - a peer that cannot be identified is cut off', async (t) => {
  const path = join(await folder(t), 'd0.sock');
  const log = recorder();
  const claimed = await claimSocket(options(path, { log, lookup: () => { throw new Error('no'); } }));
  t.after(() => claimed.close());
  let admitted = 0;
  await claimed.listen(() => { admitted += 1; });
  const raw = await rawGateway(path);
  raw.hello();
  await raw.closed;
  assert.equal(admitted, 0);
  assert.match(JSON.stringify(log.lines), /cannot be identified/);
});

test('daemon socket - a process of another uid is cut off before a byte of it is read; in an allowed group it is admitted', { skip: isRoot ? false : 'only root can start a process as another user' }, async (t) => {
  const base = await folder(t);
  await chmod(base, 0o755);
  const knock = join(base, 'knock.ts');
  await copyFile(join(harness, 'knock.ts'), knock);
  await chmod(knock, 0o644);
  const as = { uid: nobody, gid: nobody };
  const path = join(base, 'd0.sock');

  const log = recorder();
  const strict = await claimSocket(options(path, { log }));
  let admitted = 0;
  await strict.listen((socket) => { admitted += 1; socket.destroy(); });
  assert.equal(await child(t, knock, [path], as).line(), 'EACCES', 'the file mode alone keeps it out');
  // Even where the mode lets everybody in, the kernel's word decides.
  await chmod(path, 0o666);
  assert.equal(await child(t, knock, [path], as).line(), 'closed');
  assert.equal(admitted, 0);
  assert.ok(JSON.stringify(log.lines).includes(`"uid":${nobody}`), 'the refusal is logged with the uid');
  await strict.close();

  const grouped = claimer(t, path, String(nobody));
  assert.equal(await grouped.line(), 'bound');
  assert.equal((await stat(path)).mode & 0o777, 0o660);
  assert.equal((await stat(path)).gid, nobody);
  assert.equal(await child(t, knock, [path], as).line(), 'hello');
  assert.equal(await grouped.line(), 'admitted');
});
