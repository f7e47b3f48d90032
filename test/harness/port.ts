/**
 * TCP ports for servers of tests that must be named before they are bound, or bound again after a kill.
 *
 * Guarantee: a port given here is given to no other test process of this machine while this one lives, and the system gives it to
 * nobody either (it is outside the range of ports it picks itself, where that range can be read). So a server that is killed finds
 * its port free, and a gateway, which shares its port with whoever asks, joins no stranger's.
 */
import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';

/** Ports of a block: the first is listened on by its owner, which is the claim; the others are given. */
const blockSize = 40;
/** Where blocks are, unless the system picks ports there. Below are the default ports of what a developer may run. */
const lowest = 12_000;
const highest = 32_767;

/** The ports that the system picks itself (`port: 0`, outgoing connections). Linux's default where it is not said. */
const pickedBySystem = (): readonly [from: number, to: number] => {
  try {
    const [from = 32_768, to = 60_999] = readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').trim().split(/\s+/).map(Number);
    return [from, to];
  } catch {
    return [32_768, 60_999];
  }
};

/** First ports of all blocks. Where the system leaves no room below its own range, they are above it, else inside it. */
const blocks = (): readonly number[] => {
  const [from, to] = pickedBySystem();
  const [first, last] = from - lowest > 50 * blockSize ? [lowest, Math.min(highest, from - 1)] : 65_535 - to > 50 * blockSize ? [to + 1, 65_535] : [lowest, highest];
  return Array.from({ length: Math.floor((last - first + 1) / blockSize) }, (_, i) => first + i * blockSize);
};

/** Listens without SO_REUSEPORT; undefined when somebody else does. */
const hold = (port: number): Promise<Server | undefined> => new Promise((resolve, reject) => {
  const server = createServer();
  server.once('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EADDRINUSE' || error.code === 'EACCES') resolve(undefined);
    else reject(error);
  });
  server.listen({ host: '127.0.0.1', port, exclusive: true }, () => resolve(server));
});

const isFree = async (port: number): Promise<boolean> => {
  const server = await hold(port);
  if (server === undefined) return false;
  await new Promise((resolve) => { server.close(resolve); });
  return true;
};

/** Ports of blocks nobody else has. The claims end with the process. */
async function* claimed(): AsyncGenerator<number, void> {
  const all = blocks();
  const start = Math.floor(Math.random() * all.length);
  for (let i = 0; i < all.length; i++) {
    const first = all[(start + i) % all.length] ?? lowest;
    const claim = await hold(first);
    if (claim === undefined) continue;
    claim.unref();
    for (let port = first + 1; port < first + blockSize; port++) if (await isFree(port)) yield port;
  }
}

// State of the module: what this process has claimed is one thing, whoever asks.
const ports = claimed();

/** A port of this process's own on 127.0.0.1. */
export const freePort = async (): Promise<number> => {
  const next = await ports.next();
  if (next.done === true) throw new Error('No block of ports for tests is free.');
  return next.value;
};
