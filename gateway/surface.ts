/**
 * Which surface a host name serves (decisions, Decisions: each surface can have a host name of its own).
 *
 * Rule: a name that some surface lists serves exactly the surfaces that list it; any other name serves the surfaces without a list.
 */
import type { GatewayConfig, Surface } from '../contracts/config.ts';

/** The Host header's name: lower case, without port. */
export const hostName = (host: string): string => host.toLowerCase().replace(/:\d*$/, '');

/** Undefined = no names are configured: every name serves everything. */
export const hostRule = (hosts: GatewayConfig['hosts']): ((surface: Surface, host: string) => boolean) | undefined => {
  const lists = new Map(Object.entries(hosts).flatMap(([surface, names]) => (names === undefined ? [] : [[surface, new Set(names)] as const])));
  if (lists.size === 0) return undefined;
  return (surface, host) => {
    const name = hostName(host);
    const listed = [...lists.values()].some((names) => names.has(name));
    return listed ? lists.get(surface)?.has(name) === true : !lists.has(surface);
  };
};
