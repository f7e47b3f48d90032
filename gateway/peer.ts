/**
 * Who is at the other end of a Unix socket, by the kernel (SO_PEERCRED, SO_PEERGROUPS), and group names by the C library.
 *
 * Linux and glibc only, through koffi. Every function throws when the answer cannot be had: whoever asks must refuse then.
 * Behind an interface, so that a failing lookup can be tested.
 */
import { refuse } from '../contracts/errors.ts';

export interface Credentials {
  readonly pid: number;
  readonly uid: number;
  readonly gid: number;
}

export interface PeerLookup {
  /** Of the process that connected, at the time it connected. */
  credentials(fd: number): Credentials;
  /** Its supplementary groups. */
  groups(fd: number): readonly number[];
  /** Numeric id of a group; undefined if there is none of that name. */
  groupId(name: string): number | undefined;
}

const solSocket = 1;
const soPeercred = 17;
const soPeergroups = 59;
/** errno: the buffer is too small. */
const erange = 34;
const groupsMax = 65_536;

/** Loads the C library. Rejects with `bad_config` where there is none. */
export const loadPeerLookup = async (): Promise<PeerLookup> => {
  const { default: koffi } = await import('koffi');
  let libc: ReturnType<typeof koffi.load>;
  try {
    libc = koffi.load('libc.so.6');
  } catch {
    throw refuse('bad_config', 'The admin socket needs Linux with glibc: peer credentials cannot be read here.');
  }
  const getsockopt = libc.func('int getsockopt(int fd, int level, int name, _Out_ uint8_t *value, _Inout_ uint32_t *bytes)');
  const getgrnam = libc.func('int getgrnam_r(const char *name, _Out_ uint8_t *group, uint8_t *text, size_t bytes, _Out_ uint64_t *found)');

  /** Bytes of the option's value; undefined if `value` is too small. */
  const option = (fd: number, name: number, value: Buffer): number | undefined => {
    const bytes = [value.length];
    const result: unknown = getsockopt(fd, solSocket, name, value, bytes);
    if (result === 0) return bytes[0] ?? 0;
    if (koffi.errno() === erange) return undefined;
    throw refuse('peer_lookup_failed', `getsockopt failed with errno ${koffi.errno()}.`);
  };

  return {
    credentials: (fd) => {
      const value = Buffer.alloc(12);
      if (option(fd, soPeercred, value) !== 12) throw refuse('peer_lookup_failed', 'The peer has no credentials.');
      return { pid: value.readInt32LE(0), uid: value.readUInt32LE(4), gid: value.readUInt32LE(8) };
    },
    groups: (fd) => {
      for (let count = 64; count <= groupsMax; count *= 4) {
        const value = Buffer.alloc(4 * count);
        const bytes = option(fd, soPeergroups, value);
        if (bytes !== undefined) return Array.from({ length: bytes / 4 }, (_, at) => value.readUInt32LE(4 * at));
      }
      throw refuse('peer_lookup_failed', 'The peer is in too many groups.');
    },
    groupId: (name) => {
      for (let bytes = 4_096; bytes <= 1_048_576; bytes *= 4) {
        // struct group: char *name, char *password, gid_t gid, char **members.
        const group = Buffer.alloc(32);
        const found: (number | bigint)[] = [0];
        const result: unknown = getgrnam(name, group, Buffer.alloc(bytes), bytes, found);
        if (result === erange) continue;
        if (result !== 0) throw refuse('peer_lookup_failed', `getgrnam_r failed with ${String(result)}.`);
        return Number(found[0]) === 0 ? undefined : group.readUInt32LE(16);
      }
      throw refuse('peer_lookup_failed', 'The group is too large to be read.');
    },
  };
};
