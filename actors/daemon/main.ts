/**
 * The daemon process: `node actors/daemon/main.ts --config <file.toml>`.
 *
 * SIGTERM or SIGINT drains (finish, hand over, leave); a second one stops at once. One JSON line on stdout says when it is ready and
 * what an acknowledgement means. The environment's JWT_ACCESS_EXPIRY_MS goes before `platform.access_expiry_ms`; plans
 * are sold only where its SELF_SERVICE_CHECKOUT_ENABLED is `true`. Exit code 0 after a drain, 1 when it could not start or lost its place, 2 for wrong arguments.
 */
import { parseArgs } from 'node:util';
import { pino, type Logger } from 'pino';
import { CodedError } from '../../contracts/errors.ts';
import { readDaemonConfig, readSecrets, withEnvironment } from './config.ts';
import { durability, startDaemon, type Daemon } from './daemon.ts';
import { releaseOf } from './release.ts';

const usage = 'usage: node actors/daemon/main.ts --config <file.toml>\n';

const configPath = (): string | undefined => {
  try {
    return parseArgs({ options: { config: { type: 'string' } } }).values.config;
  } catch {
    return undefined;
  }
};

const start = async (path: string): Promise<{ daemon: Daemon; log: Logger }> => {
  const config = withEnvironment(await readDaemonConfig(path), process.env['JWT_ACCESS_EXPIRY_MS']);
  const log = pino({ level: config.log_level, base: { process: 'daemon', host: config.host, pid: process.pid } });
  process.on('uncaughtException', (error) => {
    // State in memory cannot be trusted any more; the journal can. The next start goes on from there.
    log.fatal({ err: error }, 'the daemon stops because of a bug');
    process.exit(1);
  });
  const secrets = await readSecrets(config);
  // The launch gate: this word exactly (interface 4.5).
  const checkoutEnabled = process.env['SELF_SERVICE_CHECKOUT_ENABLED'] === 'true';
  const daemon = await startDaemon({ config, secrets, log, checkoutEnabled });
  const owned = daemon.host.owned();
  log.info({ release: releaseOf(), socket: config.socket_path, partitions: owned.length, of: config.partitions, durability: durability(config) }, 'ready');
  return { daemon, log };
};

const onSignals = (daemon: Daemon, log: Logger): void => {
  let signals = 0;
  const onSignal = (signal: NodeJS.Signals): void => {
    signals += 1;
    log.info({ signal }, signals === 1 ? 'draining' : 'stopping at once');
    const end = signals === 1 ? daemon.drain() : daemon.close();
    end.catch((error: unknown) => {
      log.error({ err: error }, 'the daemon did not stop cleanly');
      process.exit(1);
    });
  };
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
};

const path = configPath();
if (path === undefined) {
  process.stderr.write(usage);
  process.exit(2);
}
try {
  const { daemon, log } = await start(path);
  onSignals(daemon, log);
  const why = await daemon.closed;
  log.info({ why }, 'stopped');
  process.exit(why === 'drained' || why === 'closed' ? 0 : 1);
} catch (error) {
  // Coded errors are sentences for the operator; anything else is a bug and needs its stack.
  const text = error instanceof CodedError ? `${error.code}: ${error.message}` : error instanceof Error ? (error.stack ?? error.message) : String(error);
  process.stderr.write(`troupe daemon cannot start: ${text}\n`);
  process.exit(1);
}
