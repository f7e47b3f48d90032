/**
 * Which addresses a webhook may not lead to: everything that is not on the public internet (AUD-019). Judged on resolved addresses only,
 * at each delivery.
 *
 * Refused: private, loopback, link-local, carrier-grade NAT, multicast, unspecified, documentation, benchmarking and reserved ranges of both
 * families (IANA special-purpose registries), IPv4-mapped and IPv4-compatible IPv6, 6to4 and Teredo whole (they carry an IPv4 address, and
 * are retired: RFC 7526, RFC 8190). NAT64 (64:ff9b::/96, RFC 6052) is how an IPv6-only network reaches IPv4: judged by the address inside.
 */
import { BlockList, isIPv6 } from 'node:net';
import { isSpecialAddress } from '../tools/allow.ts';

const nat64 = new BlockList();
nat64.addSubnet('64:ff9b::', 96, 'ipv6');

/** The last 32 bits of an IPv6 address in any of its spellings. */
const lastFour = (address: string): string => {
  const dotted = /(\d+\.\d+\.\d+\.\d+)$/.exec(address)?.[1];
  if (dotted !== undefined) return dotted;
  // The URL parser writes every spelling in one: eight groups, the longest run of zeros as `::`.
  const canonical = new URL(`http://[${address}]/`).hostname.slice(1, -1);
  const [head = '', tail] = canonical.split('::');
  const left = head === '' ? [] : head.split(':');
  const right = tail === undefined || tail === '' ? [] : tail.split(':');
  const groups = tail === undefined ? left : [...left, ...Array.from({ length: 8 - left.length - right.length }, () => '0'), ...right];
  const [high = 0, low = 0] = groups.slice(-2).map((group) => Number.parseInt(group, 16));
  return [high >> 8, high & 0xff, low >> 8, low & 0xff].join('.');
};

/** True for an address that a webhook must not reach; also for text that is no address. */
export const isPrivateAddress = (address: string): boolean => {
  if (address.includes('%')) return true;
  if (isIPv6(address) && nat64.check(address, 'ipv6')) return isSpecialAddress(lastFour(address));
  return isSpecialAddress(address);
};
