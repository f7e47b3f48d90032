/**
 * Which addresses the fetch tool may reach (configuration `tools.fetch_allow`), and which addresses are never reached by name.
 *
 * An entry is `host`, `host:port`, or a URL origin. Without a scheme it means https; plain http needs `http://…`. Without a
 * port it means the scheme's own. A host name may not lead to a private, loopback, link-local or otherwise special address, whatever it
 * resolves to; such an address is reached only where the entry itself is that address, or is `localhost`.
 */
import { BlockList, isIP, isIPv6 } from 'node:net';

export interface AllowEntry {
  readonly scheme: 'http:' | 'https:';
  /** Lower case, without brackets. */
  readonly host: string;
  readonly port: number;
  /** The entry names a special address itself. */
  readonly special: boolean;
}

const ranges: readonly (readonly [string, number])[] = [
  ['0.0.0.0', 8], ['10.0.0.0', 8], ['100.64.0.0', 10], ['127.0.0.0', 8], ['169.254.0.0', 16], ['172.16.0.0', 12],
  ['192.0.0.0', 24], ['192.0.2.0', 24], ['192.88.99.0', 24], ['192.168.0.0', 16], ['198.18.0.0', 15], ['198.51.100.0', 24],
  ['203.0.113.0', 24], ['224.0.0.0', 4], ['240.0.0.0', 4],
  // IPv6: everything outside 2000::/3 is special; of that, documentation, 6to4, Teredo and other protocol space.
  ['2001::', 23], ['2001:db8::', 32], ['2002::', 16], ['3fff::', 20],
];
const special = new BlockList();
for (const [net, bits] of ranges) special.addSubnet(net, bits, isIPv6(net) ? 'ipv6' : 'ipv4');
const globalUnicast = new BlockList();
globalUnicast.addSubnet('2000::', 3, 'ipv6');

/** True for an address that is not on the public internet (IANA special-purpose registries, RFC 6890). */
export const isSpecialAddress = (address: string): boolean => {
  if (isIP(address) === 0) return true;
  if (!isIPv6(address)) return special.check(address, 'ipv4');
  // Mapped addresses (::ffff:10.0.0.1) lie outside 2000::/3 too.
  return !globalUnicast.check(address, 'ipv6') || special.check(address, 'ipv6');
};

const portOf = (url: URL): number => (url.port === '' ? (url.protocol === 'http:' ? 80 : 443) : Number(url.port));
const hostOf = (url: URL): string => url.hostname.toLowerCase().replace(/^\[|\]$/g, '').replace(/\.$/, '');

/** Entries of the configuration. Throws a TypeError with the entry for one that is not a host or an origin. */
export const parseAllow = (entries: readonly string[]): AllowEntry[] => entries.map((entry) => {
  const text = /^https?:\/\//i.test(entry) ? entry : `https://${entry}`;
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || url.username !== '' || url.password !== '' || url.pathname !== '/' || url.search !== '' || url.hash !== '' || url.hostname === '') {
    throw new TypeError(`tools.fetch_allow: "${entry}" is not a host, host:port or origin`);
  }
  const host = hostOf(url);
  return { scheme: url.protocol === 'http:' ? 'http:' : 'https:', host, port: portOf(url), special: host === 'localhost' || (isIP(host) !== 0 && isSpecialAddress(host)) };
});

/** The entry that allows a URL, or undefined. Credentials in a URL are never allowed. */
export const allowedBy = (allow: readonly AllowEntry[], url: URL): AllowEntry | undefined =>
  (url.username !== '' || url.password !== '' ? undefined
    : allow.find((e) => e.scheme === url.protocol && e.host === hostOf(url) && e.port === portOf(url)));
