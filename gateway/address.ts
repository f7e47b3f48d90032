/**
 * The remote address of a request (decisions, Edge gateway): the socket's, or behind trusted proxies the right-most entry
 * of X-Forwarded-For that is not one of them.
 *
 * Guarantee: without a trusted-proxy list, or from a socket that is not in it, X-Forwarded-For is not read at all.
 * One address has one spelling: IPv6 is compressed, IPv4 in IPv6 becomes IPv4.
 */
import { BlockList, isIP, SocketAddress } from 'node:net';
import { refuse } from '../contracts/errors.ts';

export type TrustedProxies = BlockList | undefined;

/** Builds the list from addresses and CIDR blocks. `undefined` for an empty list. Throws `bad_config` naming the entry. */
export const trustedProxies = (entries: readonly string[]): TrustedProxies => {
  if (entries.length === 0) return undefined;
  const list = new BlockList();
  for (const entry of entries) {
    const [address, bits, extra] = entry.split('/');
    const family = isIP(address ?? '');
    const max = family === 6 ? 128 : 32;
    if (address === undefined || family === 0 || extra !== undefined || (bits !== undefined && !(/^\d{1,3}$/.test(bits) && Number(bits) <= max))) {
      throw refuse('bad_config', `trusted_proxies: "${entry}" is neither an address nor a CIDR block.`);
    }
    const type = family === 6 ? 'ipv6' : 'ipv4';
    if (bits === undefined) list.addAddress(address, type);
    else list.addSubnet(address, Number(bits), type);
  }
  return list;
};

const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i;
const bracketed = /^\[([^\]]+)\](?::\d+)?$/;
const withPort = /^(\d+\.\d+\.\d+\.\d+):\d+$/;

/** One spelling of an address, or undefined if the text is none. Accepts a port behind it (`1.2.3.4:80`, `[::1]:80`). */
export const canonicalAddress = (text: string): string | undefined => {
  const bare = bracketed.exec(text)?.[1] ?? withPort.exec(text)?.[1] ?? text;
  switch (isIP(bare)) {
    case 4:
      return bare;
    case 6: {
      if (bare.includes('%')) return undefined;
      const { address } = new SocketAddress({ address: bare, family: 'ipv6' });
      return mapped.exec(address)?.[1] ?? address;
    }
    default:
      return undefined;
  }
};

const trusts = (list: BlockList, address: string): boolean => list.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4');

/**
 * `socketAddress` as the kernel gives it; `forwarded` reads the X-Forwarded-For header (all its lines joined by commas) and
 * is called only if the socket is trusted. An entry that is no address ends the walk: the hop that wrote it is the answer.
 */
export const remoteAddress = (socketAddress: string, proxies: TrustedProxies, forwarded: () => string): string => {
  let address = canonicalAddress(socketAddress) ?? socketAddress;
  if (proxies === undefined || !trusts(proxies, address)) return address;
  const entries = forwarded().split(',');
  for (let i = entries.length - 1; i >= 0; i--) {
    const entry = canonicalAddress((entries[i] ?? '').trim());
    if (entry === undefined) return address;
    address = entry;
    if (!trusts(proxies, address)) return address;
  }
  return address;
};
