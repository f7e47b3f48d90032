/**
 * The gateway process: `node gateway/main.ts --config <file>`.
 *
 * The only file here that reads arguments, handles signals and exits. SIGTERM and SIGINT drain (requests finish, streams
 * close with 1001: their clients come back to another process or later, and lose nothing); a second one stops at once;
 * SIGHUP looks at the certificate now. Logs are JSON lines on standard output.
 * Exit codes: 0 drained, 1 could not start or failed, 2 wrong arguments.
 */
import { readFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import pino from 'pino';
import { z } from 'zod';
import { shown } from '../contracts/errors.ts';
import { developmentDocuments } from '../contracts/legal.ts';
import { limits } from '../contracts/limits.ts';
import { loadConfig } from './config.ts';
import type { ConsoleFile } from './console/files.ts';
import { startGateway } from './gateway.ts';
import type { Pages } from './page.ts';

const usage = `Usage: node gateway/main.ts --config <file>

Serves the edge: TLS 1.3, tokens, limits, WebSockets. Keys of the file: gateway/README.md.
Several processes may use one port. SIGTERM drains, SIGHUP reloads the certificate.
`;

const readRelease = async (): Promise<string> => {
  const text = await readFile(new URL('../package.json', import.meta.url), 'utf8');
  return z.object({ version: z.string() }).parse(JSON.parse(text)).version;
};

const configPath = (): string => {
  let given: { config?: string | undefined; help?: boolean | undefined };
  try {
    given = parseArgs({ options: { config: { type: 'string' }, help: { type: 'boolean', short: 'h' } } }).values;
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n${usage}`);
    process.exit(2);
  }
  if (given.help === true) {
    process.stdout.write(usage);
    process.exit(0);
  }
  if (given.config === undefined) {
    process.stderr.write(usage);
    process.exit(2);
  }
  return given.config;
};

/** The platform's pages. As the console, loaded only where they are wanted. */
const readPages = async (): Promise<Pages> => {
  const [{ createPages }, { buildPageFiles }] = await Promise.all([import('./pages/pages.ts'), import('./console/build.ts')]);
  return createPages({ documents: developmentDocuments, files: await buildPageFiles() });
};

const main = async (path: string): Promise<void> => {
  const config = await loadConfig(path);
  const log = pino({ level: config.log_level, base: { process: 'gateway', pid: process.pid } });
  process.on('uncaughtException', (error) => {
    log.fatal({ error: error.stack }, 'uncaught exception');
    process.exit(1);
  });
  const release = await readRelease();
  // Loaded only where it is wanted: building the page needs the compiler, an edge without console does not.
  const files = config.console ? await (await import('./console/build.ts')).buildConsole() : new Map<string, ConsoleFile>();
  const pages = config.platform === undefined ? undefined : await readPages();
  const gateway = await startGateway(config, { log, release, files, ...(pages === undefined ? {} : { pages }) });
  let stopping = false;
  const stop = async (signal: string): Promise<void> => {
    if (stopping) process.exit(1);
    stopping = true;
    log.info({ signal }, 'stopping');
    await gateway.drain(0);
    await new Promise((resolve) => setTimeout(resolve, limits.closeGraceMs));
    await gateway.close();
    process.exit(0);
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      stop(signal).catch((error: unknown) => {
        log.fatal({ error: String(error) }, 'stop failed');
        process.exit(1);
      });
    });
  }
  process.on('SIGHUP', () => {
    gateway.reloadCertificate().catch((error: unknown) => log.warn({ code: shown(error).code }, 'certificate not reloaded'));
  });
  log.info({ host: config.listen.host, port: gateway.port, ops_port: gateway.opsPort }, 'listening');
};

main(configPath()).catch((error: unknown) => {
  process.stderr.write(`gateway: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exit(1);
});
