/**
 * A remote address as what requests are counted by, in the gateway's buckets and the daemon's allowances.
 *
 * Guarantee: whoever can choose among the addresses of one network counts once. An IPv6 subscriber has a /64 at least (RFC 6177), so the
 * first 64 bits count; an IPv4 address in IPv6 form (RFC 4291 section 2.5.5.2) is that IPv4 address; spelling makes no difference.
 */

export const addressBlock = (ip: string): string => {
  const [plain = ''] = ip.split('%', 1);
  // Of the two kinds only IPv6 has colons.
  if (!plain.includes(':') || !URL.canParse(`http://[${plain}]`)) return plain;
  // The URL parser writes an address in its one canonical form (WHATWG URL, 3.5).
  const canonical = new URL(`http://[${plain}]`).hostname.slice(1, -1);
  const mapped = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/.exec(canonical);
  if (mapped !== null) {
    const [high, low] = [mapped[1], mapped[2]].map((group) => Number.parseInt(group ?? '', 16));
    return [high, low].flatMap((group) => [(group ?? 0) >> 8, (group ?? 0) & 255]).join('.');
  }
  const [head = '', tail = ''] = canonical.split('::');
  const before = head.split(':').filter((group) => group !== '');
  const after = tail.split(':').filter((group) => group !== '');
  const groups = [...before, ...Array.from({ length: 8 - before.length - after.length }, () => '0'), ...after];
  return `${groups.slice(0, 4).join(':')}::/64`;
};
