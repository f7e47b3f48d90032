/**
 * How a receiver's name becomes addresses: asked of the name servers for every attempt, nothing remembered.
 *
 * In production the name servers are asked directly (`networkResolve`): receivers' names are chosen by strangers, and the system's own
 * look-up would let a name whose server never answers hold a thread that every other look-up of the process needs; it would also try the
 * names of this machine's hosts file and search domains. In development both are wanted (`systemResolve`).
 */
import { lookup, Resolver } from 'node:dns/promises';
import { limits } from '../../contracts/limits.ts';

export interface Address {
  readonly address: string;
  readonly family: number;
}
/** Every address of a host name; rejects, or gives none, when there is none. */
export type Resolve = (host: string) => Promise<readonly Address[]>;

/** The system's way: hosts file, search domains, cache and all. */
export const systemResolve: Resolve = async (host) => lookup(host, { all: true, verbatim: true });

/** Asks name servers for both families. `servers` (default: the system's) as `host:port`. One family alone is enough. */
export const networkResolve = (servers?: readonly string[]): Resolve => async (host) => {
  // Made anew, so that changed servers of the system are seen.
  const resolver = new Resolver({ timeout: limits.webhookLookupMs / 2, tries: 2 });
  if (servers !== undefined) resolver.setServers(servers);
  // Its own time-outs are per try and server, and grow.
  const deadline = setTimeout(() => resolver.cancel(), limits.webhookLookupMs);
  const [four, six] = await Promise.allSettled([resolver.resolve4(host), resolver.resolve6(host)]);
  clearTimeout(deadline);
  if (four.status === 'rejected' && six.status === 'rejected') throw four.reason;
  return [
    ...(four.status === 'fulfilled' ? four.value : []).map((address) => ({ address, family: 4 })),
    ...(six.status === 'fulfilled' ? six.value : []).map((address) => ({ address, family: 6 })),
  ];
};
