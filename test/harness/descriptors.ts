/**
 * What a process holds open, as the kernel tells it (Linux, /proc): files, and sockets with their addresses. For tests of what
 * a process must not reach. One look at one moment; other processes of the machine are not in it.
 */
import { readFile, readdir, readlink } from 'node:fs/promises';

export interface InetSocket {
  /** `tcp`, `tcp6`, `udp`, `udp6`. */
  readonly table: string;
  readonly localPort: number;
  readonly remotePort: number;
  readonly listening: boolean;
}
export interface UnixSocket {
  /** The path it was bound under, whatever the file is called now; empty for the side that connected. */
  readonly path: string;
  readonly listening: boolean;
}
export interface Descriptors {
  /** Regular files, devices and /proc left out. */
  readonly files: readonly string[];
  readonly inet: readonly InetSocket[];
  readonly unix: readonly UnixSocket[];
}

const tables = ['tcp', 'tcp6', 'udp', 'udp6'] as const;
/** State LISTEN of /proc/net/tcp; flag SO_ACCEPTCON of /proc/net/unix. */
const listen = '0A';
const acceptsFlag = 0x1_0000;

const rows = async (pid: number, table: string): Promise<string[][]> =>
  (await readFile(`/proc/${pid}/net/${table}`, 'utf8').catch(() => '')).trim().split('\n').slice(1).map((row) => row.trim().split(/\s+/));
const portOf = (address: string | undefined): number => Number.parseInt(address?.split(':')[1] ?? '0', 16);

/** Throws when the process is gone. */
export const descriptorsOf = async (pid: number): Promise<Descriptors> => {
  const links = await Promise.all((await readdir(`/proc/${pid}/fd`)).map((fd) => readlink(`/proc/${pid}/fd/${fd}`).catch(() => '')));
  const inodes = new Set(links.flatMap((link) => /^socket:\[(\d+)\]$/.exec(link)?.[1] ?? []));
  const inet: InetSocket[] = [];
  for (const table of tables) {
    for (const [, local, remote, state, , , , , , inode = ''] of await rows(pid, table)) {
      if (inodes.has(inode)) inet.push({ table, localPort: portOf(local), remotePort: portOf(remote), listening: table.startsWith('udp') || state === listen });
    }
  }
  const unix: UnixSocket[] = [];
  for (const [, , , flags = '0', , , inode = '', path = ''] of await rows(pid, 'unix')) {
    if (inodes.has(inode)) unix.push({ path, listening: (Number.parseInt(flags, 16) & acceptsFlag) !== 0 });
  }
  const files = links.filter((link) => link.startsWith('/') && !link.startsWith('/dev/') && !link.startsWith('/proc/'));
  return { files, inet, unix };
};
