/**
 * Placement: which host should own a partition, by rendezvous hashing (Thaler & Ravishankar 1998, highest random weight).
 *
 * Guarantee: a pure function of the set of host names and the partition number, the same on every host and in every
 * version. When a host joins or leaves, only partitions that it gains or had move. It says who *should* own; who *does* is
 * decided by compare-and-set on the partition's lease (leases.ts).
 */

/** FNV-1a over the text, then the finalizer of MurmurHash3, so that neighbouring partition numbers spread. */
const weight = (host: string, partition: number): number => {
  let hash = 0x811c9dc5;
  for (let i = 0; i < host.length; i++) {
    hash ^= host.charCodeAt(i);
    hash = Math.imul(hash, 0x01000193);
  }
  hash ^= Math.imul(partition + 1, 0x9e3779b1);
  hash ^= hash >>> 16;
  hash = Math.imul(hash, 0x85ebca6b);
  hash ^= hash >>> 13;
  hash = Math.imul(hash, 0xc2b2ae35);
  hash ^= hash >>> 16;
  return hash >>> 0;
};

/** The host that should own the partition; undefined without hosts. Equal weights go to the smaller name. */
export const placed = (partition: number, hosts: Iterable<string>): string | undefined => {
  let best: string | undefined;
  let bestWeight = -1;
  for (const host of hosts) {
    const own = weight(host, partition);
    if (own > bestWeight || (own === bestWeight && best !== undefined && host < best)) {
      best = host;
      bestWeight = own;
    }
  }
  return best;
};

/** Owner of each partition 0..partitions-1, in order. Empty without hosts. */
export const placement = (partitions: number, hosts: Iterable<string>): string[] => {
  const names = [...hosts];
  const owners: string[] = [];
  for (let n = 0; n < partitions; n++) {
    const owner = placed(n, names);
    if (owner !== undefined) owners.push(owner);
  }
  return owners;
};
