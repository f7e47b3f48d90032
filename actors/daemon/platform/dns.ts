/**
 * Whether a domain's DNS has a TXT record with a value (RFC 1035 section 3.3.14), asked of name servers for every look: nothing is remembered.
 *
 * Guarantees: a look ends after `limits.domainLookupMs`, however many servers and tries there are; at most `limits.domainRecordsMax` records are
 * compared, and as many looks run at once as `limits.domainLookupsMax`. The servers are the configured ones, never the domain's choice.
 * What cannot be asked is not there: the owner asks again. No DNSSEC: the configured servers are believed, so they should check it.
 */
import { Resolver } from 'node:dns/promises';
import { coded } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import type { Log } from '../log.ts';
import { sameBytes } from './derive.ts';

/** True if one of the name's TXT records is the value. Throws `overloaded`. */
export type HasTxt = (name: string, value: string) => Promise<boolean>;

/** What a name server says of a name that has no such record. */
const absent: ReadonlySet<string> = new Set(['ENOTFOUND', 'ENODATA']);

const resolverOf = (servers: readonly string[]): Resolver => {
  const resolver = new Resolver({ timeout: limits.domainLookupMs / 2, tries: 2 });
  if (servers.length > 0) resolver.setServers(servers);
  return resolver;
};

/** `servers`: IP addresses, `address:port` for another port than 53; empty = the system's. Throws `bad_request` for others. */
export const createHasTxt = ({ servers, log }: { readonly servers: readonly string[]; readonly log: Log }): HasTxt => {
  try {
    resolverOf(servers);
  } catch (cause) {
    throw coded('bad_request', 'trust.name_servers must be IP addresses, with a port as 192.0.2.1:53 or [2001:db8::1]:53.', { cause });
  }
  let looks = 0;

  const look = async (name: string): Promise<readonly (readonly string[])[]> => {
    // One per look: a deadline cancels all that a resolver does. So a system's changed servers are seen, too.
    const resolver = resolverOf(servers);
    const deadline = setTimeout(() => resolver.cancel(), limits.domainLookupMs);
    try {
      return await resolver.resolveTxt(name);
    } catch (error) {
      const code = error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined;
      if (code === undefined) throw error;
      if (!absent.has(code)) log.info({ name, code }, 'the name servers did not answer a look for a domain\'s record');
      return [];
    } finally {
      clearTimeout(deadline);
    }
  };

  return async (name, value) => {
    if (looks >= limits.domainLookupsMax) throw coded('overloaded');
    looks += 1;
    try {
      const records = await look(name);
      // A record is one text in pieces of at most 255 bytes.
      return records.slice(0, limits.domainRecordsMax).some((pieces) => sameBytes(Buffer.from(pieces.join('')), Buffer.from(value)));
    } finally {
      looks -= 1;
    }
  };
};
