/**
 * Speaks to an admin socket as another process: `asProcess` runs a child under a given uid, gid and supplementary groups (root
 * needed for anything but one's own), so that what the kernel says about a peer is real.
 */
import { spawn } from 'node:child_process';
import { connect, type Socket } from 'node:net';

export interface AdminConnection {
  /** Sends a line as it is and resolves with the next reply. */
  raw(line: string): Promise<unknown>;
  ask(request: object): Promise<unknown>;
  /** The next reply, to whatever line. */
  next(): Promise<unknown>;
  /** Resolves when the server has ended the connection. */
  readonly ended: Promise<void>;
  close(): void;
}

export const connectAdmin = (path: string): Promise<AdminConnection> => new Promise((resolve, reject) => {
  const socket: Socket = connect(path);
  const replies: unknown[] = [];
  const waiting: ((reply: unknown) => void)[] = [];
  let rest = '';
  socket.on('data', (data: Buffer) => {
    const lines = (rest + data.toString('utf8')).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      const reply: unknown = JSON.parse(line);
      const give = waiting.shift();
      if (give === undefined) replies.push(reply);
      else give(reply);
    }
  });
  const ended = new Promise<void>((done) => socket.once('close', () => done()));
  const next = (): Promise<unknown> => (replies.length > 0 ? Promise.resolve(replies.shift()) : new Promise((give) => waiting.push(give)));
  const raw = (line: string): Promise<unknown> => {
    socket.write(`${line}\n`);
    return next();
  };
  socket.once('error', reject);
  socket.once('connect', () => resolve({ raw, next, ask: (request) => raw(JSON.stringify(request)), ended, close: () => socket.destroy() }));
});

export interface Identity {
  readonly uid: number;
  readonly gid: number;
  readonly groups?: readonly number[];
}

const childCode = `
const [path, uid, gid, groups] = process.argv.slice(1);
if (process.getuid() === 0) { process.setgroups(groups === '' ? [] : groups.split(',').map(Number)); process.setgid(Number(gid)); process.setuid(Number(uid)); }
const socket = require('node:net').connect(path);
let text = '';
socket.on('connect', () => socket.write('{"op":"health"}\\n'));
socket.on('data', (data) => { text += data; if (text.includes('\\n')) { process.stdout.write(text); socket.destroy(); } });
socket.on('error', (error) => { process.stdout.write(JSON.stringify({ ok: false, error: { code: error.code } })); });
`;

/** The first reply a process with these credentials gets to `health`: true, or the code of its refusal. */
export const asProcess = (path: string, { uid, gid, groups = [] }: Identity): Promise<true | string> => new Promise((resolve, reject) => {
  const child = spawn(process.execPath, ['-e', childCode, path, String(uid), String(gid), groups.join(',')], { stdio: ['ignore', 'pipe', 'inherit'], cwd: '/' });
  let text = '';
  child.stdout.on('data', (data: Buffer) => {
    text += data.toString('utf8');
  });
  child.once('error', reject);
  child.once('close', () => {
    const reply: unknown = JSON.parse(text.split('\n')[0] ?? '');
    if (typeof reply !== 'object' || reply === null || !('ok' in reply)) return reject(new TypeError(text));
    if (reply.ok === true) return resolve(true);
    const code = 'error' in reply && typeof reply.error === 'object' && reply.error !== null && 'code' in reply.error ? reply.error.code : '';
    resolve(String(code));
  });
});
