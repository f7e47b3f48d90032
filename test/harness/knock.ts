/**
 * A process that knocks at a daemon socket, started by tests under another uid: `node knock.ts <path>`.
 * Says hello and prints what came of it: `hello` (the daemon answered), `closed` (cut off without a byte), or the error's code.
 * Imports nothing but Node, so that any uid that may read this file can run it.
 */
import { connect } from 'node:net';

const socket = connect({ path: process.argv[2] ?? '' });
const end = (line: string): void => {
  process.stdout.write(`${line}\n`);
  socket.destroy();
};
const hello = Buffer.from(JSON.stringify({ version: 1, role: 'gateway', release: 'knock', pid: process.pid }));
const head = Buffer.alloc(9);
head.writeUInt32BE(hello.length + 5, 0);
head.writeUInt8(1, 4);
socket.on('connect', () => socket.write(Buffer.concat([head, hello])));
let said = false;
socket.on('data', () => {
  if (!said) end('hello');
  said = true;
});
socket.on('error', (error: NodeJS.ErrnoException) => {
  if (!said) end(error.code === 'ECONNRESET' || error.code === 'EPIPE' ? 'closed' : (error.code ?? 'error'));
  said = true;
});
socket.on('close', () => {
  if (!said) end('closed');
  said = true;
});
