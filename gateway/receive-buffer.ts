/**
 * Bounds what the kernel holds of a connection before the gateway reads it (SO_RCVBUF of the listening socket, which what it accepts inherits).
 *
 * Without it a client is not held back: uWebSockets.js reads a socket on, paused or not, as long as each read fills its 512 KiB, which a fast
 * client and the kernel's default of several MiB bring about (measured: 256 MiB came in a second behind a pause). With less in the kernel than
 * one read takes, a pause holds after that read. Price: a connection brings at most this many bytes in each round trip.
 * Linux and glibc only, through koffi; elsewhere nothing is changed.
 */
import { readdir } from 'node:fs/promises';
import { limits } from '../contracts/limits.ts';

const solSocket = 1;
const soReceiveBuffer = 8;
const soAcceptsConnections = 30;

/** For the listening sockets of this process at a TCP port. Resolves with how many were bounded. */
export const boundReceiveBuffers = async (port: number): Promise<number> => {
  const { default: koffi } = await import('koffi');
  let libc: ReturnType<typeof koffi.load>;
  try {
    libc = koffi.load('libc.so.6');
  } catch {
    return 0;
  }
  const getsockopt = libc.func('int getsockopt(int fd, int level, int name, _Out_ uint8_t *value, _Inout_ uint32_t *bytes)');
  const setsockopt = libc.func('int setsockopt(int fd, int level, int name, uint8_t *value, uint32_t bytes)');
  const getsockname = libc.func('int getsockname(int fd, _Out_ uint8_t *address, _Inout_ uint32_t *bytes)');

  const listensAt = (fd: number): number | undefined => {
    const flag = Buffer.alloc(4);
    if (getsockopt(fd, solSocket, soAcceptsConnections, flag, [flag.length]) !== 0 || flag.readUInt32LE(0) !== 1) return undefined;
    const address = Buffer.alloc(128);
    // The port stands at the same place for IPv4 and IPv6; a Unix socket has a path there, and no port of ours.
    return getsockname(fd, address, [address.length]) === 0 && [2, 10].includes(address.readUInt16LE(0)) ? address.readUInt16BE(2) : undefined;
  };

  let bounded = 0;
  const wanted = Buffer.alloc(4);
  wanted.writeUInt32LE(limits.receiveBufferBytes);
  for (const name of await readdir('/proc/self/fd')) {
    const fd = Number(name);
    if (listensAt(fd) === port && setsockopt(fd, solSocket, soReceiveBuffer, wanted, wanted.length) === 0) bounded += 1;
  }
  return bounded;
};
