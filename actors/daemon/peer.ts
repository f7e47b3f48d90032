/**
 * Who is at the other end of an accepted Unix socket: the kernel's word (SO_PEERCRED, unix(7)), not the peer's.
 *
 * Guarantee: a process is admitted only if its uid is the daemon's own or listed, or its primary or one of its supplementary
 * groups (SO_PEERGROUPS, Linux 4.13) is listed. What cannot be looked up is refused.
 * Linux only: option numbers are those of asm-generic/socket.h.
 */
import type { Socket } from 'node:net';
import koffi from 'koffi';
import { z } from 'zod';
import { coded } from '../../contracts/errors.ts';

export interface PeerCredentials {
  readonly pid: number;
  readonly uid: number;
  readonly gid: number;
  /** Supplementary groups; empty if the kernel does not tell. */
  readonly groups: readonly number[];
}

export interface PeerRule {
  readonly uids: readonly number[];
  readonly gids: readonly number[];
}

/** Gives the credentials of the process that connected. Throws `peer_refused` when the kernel does not tell. */
export type PeerLookup = (socket: Socket) => PeerCredentials;

const solSocket = 1;
const soPeerCred = 17;
const soPeerGroups = 59;
/** NGROUPS_MAX of Linux is 65,536; a peer in more groups than this is looked at by uid and primary group only. */
const groupsMax = 1_024;

// Node has no public way to a socket's descriptor; the handle's `fd` is what its own tests use.
const withHandle = z.object({ _handle: z.object({ fd: z.int().nonnegative() }) });
const descriptorOf = (socket: Socket): number => {
  const found = withHandle.safeParse(socket);
  if (!found.success) throw coded('peer_refused', 'The socket has no descriptor.');
  return found.data._handle.fd;
};

type GetSockOpt = (fd: number, level: number, option: number, value: Buffer, length: Buffer) => number;

/** Opens the C library once; 2 µs a look-up (notes/libraries §10). */
export const createPeerLookup = (): PeerLookup => {
  const getsockopt: GetSockOpt = koffi.load(null).func('int getsockopt(int fd, int level, int option, _Out_ uint8_t *value, _Inout_ uint8_t *length)');
  return (socket) => {
    const fd = descriptorOf(socket);
    const value = Buffer.alloc(12);
    const length = Buffer.alloc(4);
    length.writeUInt32LE(value.length);
    if (getsockopt(fd, solSocket, soPeerCred, value, length) !== 0 || length.readUInt32LE() !== 12) throw coded('peer_refused');
    return { pid: value.readInt32LE(0), uid: value.readUInt32LE(4), gid: value.readUInt32LE(8), groups: groupsOf(getsockopt, fd) };
  };
};

const groupsOf = (getsockopt: GetSockOpt, fd: number): number[] => {
  const value = Buffer.alloc(4 * groupsMax);
  const length = Buffer.alloc(4);
  length.writeUInt32LE(value.length);
  if (getsockopt(fd, solSocket, soPeerGroups, value, length) !== 0) return [];
  return Array.from({ length: length.readUInt32LE() / 4 }, (_, i) => value.readUInt32LE(4 * i));
};

/** True if the rule lets the peer in. The daemon's own uid always is. */
export const admits = (rule: PeerRule, peer: PeerCredentials, ownUid: number): boolean =>
  peer.uid === ownUid || rule.uids.includes(peer.uid) || rule.gids.includes(peer.gid) || peer.groups.some((gid) => rule.gids.includes(gid));
