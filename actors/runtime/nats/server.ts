/**
 * Which nats-server versions the journal may stand on.
 *
 * 2.11 is the least because replay needs batched direct get (NATS ADR-31) and older servers accept and drop stream
 * settings they do not know. 2.10.20 to 2.10.22 could delete a whole stream after process crashes (fixed in 2.10.23).
 */
import type { NatsConnection } from 'nats';
import { coded } from '../../../contracts/errors.ts';

/** Least version, as `[major, minor]`. */
const least = [2, 11] as const;

/** Undefined if the version will do, else a sentence that says why not. */
export const versionProblem = (version: string): string | undefined => {
  const parts = /^v?(\d+)\.(\d+)\.(\d+)/.exec(version);
  if (parts === null) return `The NATS server names a version that cannot be read ("${version}"); 2.11 or newer is needed.`;
  const [major, minor, patch] = parts.slice(1).map(Number) as [number, number, number];
  if (major === 2 && minor === 10 && patch >= 20 && patch <= 22) {
    return `NATS server ${version} can delete a whole stream after a crash (2.10.20 to 2.10.22); 2.11 or newer is needed.`;
  }
  if (major < least[0] || (major === least[0] && minor < least[1])) {
    return `NATS server ${version} is too old: 2.11 or newer is needed, for batched reads of the journal and because older servers drop stream settings silently.`;
  }
  return undefined;
};

/** Throws `upstream_unavailable`, with the reason as a sentence, when the server must not be used. */
export const checkServer = (nc: NatsConnection): void => {
  const { info } = nc;
  if (info === undefined) throw coded('upstream_unavailable', 'NATS is not connected.');
  const problem = versionProblem(info.version);
  if (problem !== undefined) throw coded('upstream_unavailable', problem);
  if (info.jetstream !== true) throw coded('upstream_unavailable', 'The NATS server runs without JetStream, which holds the journal.');
  if (info.headers === false) throw coded('upstream_unavailable', 'The NATS server has message headers switched off.');
};
