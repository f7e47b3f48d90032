/**
 * The whole of a development Troupe: what is started in which order, and stopped in the reverse.
 *
 * Stages upward: leftovers, secrets and certificate, ports, NATS and Postgres, daemon and gateway, the development account, dev.json.
 * Stages downward: gateway (drains its streams), daemon (hands its actors over), NATS, Postgres.
 * A stage that fails stops what the stages before it started. Everything it makes lies in `.troupe` (see postgres.ts for the
 * one exception), so starting again continues where it stopped.
 */
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { limits } from '../../contracts/limits.ts';
import { ensureCertificate } from './certificate.ts';
import { Child, endLeftovers } from './child.ts';
import { daemonSocket, modelSections, writeDaemonConfig, writeGatewayConfig, type ModelChoice } from './config-files.ts';
import { devEmail, ensureAccount, readKept } from './account.ts';
import { ensureDeployment, readKeptDeployment } from './deployment.ts';
import { writeDevFile, type DevFacts } from './dev-file.ts';
import { groupName } from './group.ts';
import { loadState, saveState, writePrivate, type Folder } from './folder.ts';
import { devOrg, integrator, natsBinary, natsChild, natsUrl, writeNatsConfig } from './nats.ts';
import { showOutbox } from './outbox.ts';
import { setPlan, type NatsAccess } from './plan.ts';
import { freePortFrom } from './port.ts';
import { ensureCluster, postgresChild, postgresPlace, postgresUrl, sharedFolder } from './postgres.ts';
import { gatewayHealthy, socketAccepts } from './probe.ts';
import type { Say } from './say.ts';
import { makeSecrets, type Secrets } from './secrets.ts';

export const defaultPort = 8_443;
const gatewayName = 'troupe-gateway';

export interface StackOptions {
  readonly root: string;
  readonly folder: Folder;
  readonly say: Say;
  /** Wanted gateway port; the next free one is taken. */
  readonly port: number;
  /** NATS syncs every message before it acknowledges. */
  readonly synced: boolean;
  readonly models: readonly (Omit<ModelChoice, 'keyPath'> & { readonly apiKey: string })[];
  /** A running NATS instead of the embedded one; credentials in the URL. */
  readonly natsUrl?: string;
  readonly natsServer?: string;
  /** A running Postgres instead of the embedded one. */
  readonly databaseUrl?: string;
  readonly searchPath: string;
  /** Every child is added here before it is spawned, so that the caller can end a start that is under way. */
  readonly children: Child[];
}

export interface Stack {
  readonly baseUrl: string;
  /** Of managed deployments' services. */
  readonly deploymentUrl: string;
  readonly caPath: string;
  readonly natsUrl: string;
  readonly durability: string;
  readonly models: readonly string[];
  readonly opsUrl: string;
  /** Page with the mails that were not sent. */
  readonly mailUrl: string;
  readonly email: string;
  readonly userId: string;
  readonly token: () => string;
  readonly pids: () => Readonly<Record<string, number>>;
  /** Stops everything in order, saying what it does. */
  stop(): Promise<void>;
}

interface NatsPlace {
  readonly child: Child | undefined;
  readonly config: { readonly url: string; readonly user?: string; readonly password_path?: string };
  readonly clientUrl: string;
  /** As the daemon connects. */
  readonly access: NatsAccess;
}

const placeNats = async (options: StackOptions, secrets: Secrets, port: number, orgs: readonly string[]): Promise<NatsPlace> => {
  const { folder, say } = options;
  if (options.natsUrl !== undefined) {
    const url = new URL(options.natsUrl);
    const user = decodeURIComponent(url.username);
    const passwordPath = join(folder.secrets, 'nats-url-password');
    writePrivate(passwordPath, decodeURIComponent(url.password));
    const password = decodeURIComponent(url.password);
    url.username = '';
    url.password = '';
    return {
      child: undefined, clientUrl: options.natsUrl, access: { url: url.href, ...(user === '' ? {} : { user, password }) },
      config: { url: url.href, ...(user === '' ? {} : { user, password_path: passwordPath }) },
    };
  }
  const binary = natsBinary(options.natsServer, options.searchPath);
  const clientUrl = new URL(natsUrl(port));
  clientUrl.username = integrator.user;
  clientUrl.password = secrets.natsIntegratorPassword;
  return {
    child: new Child(natsChild(folder, secrets, { binary, port, synced: options.synced, orgs }), folder, say),
    config: { url: natsUrl(port), user: 'daemon', password_path: secrets.natsDaemonPasswordPath },
    clientUrl: clientUrl.href, access: { url: natsUrl(port), user: 'daemon', password: secrets.natsDaemonPassword },
  };
};

const placePostgres = async (options: StackOptions, secrets: Secrets, id: string, port: number): Promise<{ child: Child | undefined; url: string }> => {
  if (options.databaseUrl !== undefined) return { child: undefined, url: options.databaseUrl };
  const place = postgresPlace(options.folder.data, () => sharedFolder(id));
  const { made } = await ensureCluster(place, secrets.postgresPassword);
  if (made && place.account !== undefined) {
    options.say.progress(`Postgres cannot run as root: user id ${place.account.uid} runs it, with its data in ${place.dataPath}.`);
  }
  const password = secrets.postgresPassword;
  return { child: new Child(postgresChild(place, { port, password }), options.folder, options.say), url: postgresUrl(port, password) };
};

/** Milliseconds between two looks. */
const lookMs = 50;

/** Waits until a probe says yes. Throws a sentence after `limits.startReadyMs`. */
const untilHealthy = async (probe: () => Promise<boolean>): Promise<void> => {
  const endAt = performance.now() + limits.startReadyMs;
  while (!(await probe())) {
    if (performance.now() > endAt) throw new Error('the gateway does not find the daemon again');
    await new Promise((resolve) => { setTimeout(resolve, lookMs); });
  }
};

/** Starts everything. Throws a sentence when a stage fails, with everything stopped again. */
export const startStack = async (options: StackOptions): Promise<Stack> => {
  const { folder, say, root, children: started } = options;
  const begin = async (child: Child | undefined): Promise<void> => {
    if (child === undefined) return;
    started.push(child);
    await child.start();
  };
  /** Starts in parallel; throws the first failure after all have settled, so that none starts behind the clean-up. */
  const beginAll = async (...tasks: readonly Promise<void>[]): Promise<void> => {
    for (const outcome of await Promise.allSettled(tasks)) if (outcome.status === 'rejected') throw outcome.reason;
  };

  try {
    const left = await endLeftovers(folder.run);
    if (left.length > 0) say.warn(`The start before was killed; what it left was ended: ${left.join(', ')}.`);

    const secrets = makeSecrets(folder);
    const certificate = await ensureCertificate(folder.tls);
    if (certificate.renewed) say.progress('Made a certificate for localhost, signed by a development CA of its own.');

    const kept = loadState(folder, {
      natsPort: 4_222, postgresPort: 5_433, opsPort: 9_443, mailPort: 8_025, deploymentPort: options.port + 1, journalStreams: options.synced ? 8 : 1,
    });
    const port = await freePortFrom(options.port);
    if (port !== options.port) say.warn(`Port ${options.port} is taken; the gateway takes ${port}.`);
    const taken = new Set([port]);
    const claim = async (wanted: number): Promise<number> => {
      const found = await freePortFrom(wanted, '127.0.0.1', taken);
      taken.add(found);
      return found;
    };
    const ports = {
      nats: options.natsUrl === undefined ? await claim(kept.natsPort) : kept.natsPort,
      postgres: options.databaseUrl === undefined ? await claim(kept.postgresPort) : kept.postgresPort,
      ops: await claim(kept.opsPort),
      mail: await claim(kept.mailPort),
      deployment: await claim(kept.deploymentPort),
    };
    saveState(folder, { ...kept, natsPort: ports.nats, postgresPort: ports.postgres, opsPort: ports.ops, mailPort: ports.mail, deploymentPort: ports.deployment });

    const orgsOf = (account: { readonly org: { readonly id: string } } | undefined): readonly string[] => [devOrg, ...(account === undefined ? [] : [account.org.id])];
    const orgs = orgsOf(readKept(folder.accountFile));
    const nats = await placeNats(options, secrets, ports.nats, orgs);
    const databaseUrlPath = join(folder.secrets, 'postgres-url');
    say.progress(`Starting ${[nats.child && 'NATS', options.databaseUrl === undefined && 'Postgres'].filter(Boolean).join(' and ') || 'with the NATS and Postgres given'} …`);
    await beginAll(
      begin(nats.child),
      placePostgres(options, secrets, kept.id, ports.postgres).then(({ child, url }) => {
        writePrivate(databaseUrlPath, url);
        return begin(child);
      }),
    );

    const socketFolder = join(folder.sockets, 'daemon');
    mkdirSync(socketFolder, { recursive: true, mode: 0o700 });
    const adminSocket = join(folder.sockets, 'admin.sock');
    const socketPath = daemonSocket(socketFolder, 0);
    const choices = options.models.map(({ apiKey, ...choice }): ModelChoice => {
      const keyPath = join(folder.secrets, `${choice.provider}-key`);
      writePrivate(keyPath, apiKey);
      return { ...choice, keyPath };
    });
    const baseUrl = `https://localhost:${port}`;
    const deploymentUrl = `https://localhost:${ports.deployment}`;
    const configureDaemon = (defaultDeployment: string | undefined): void => writeDaemonConfig(folder.daemonConfig, {
      host: 'dev-0', socket_path: socketPath, master_key_path: secrets.masterKeyPath,
      nats: { ...nats.config, sync: options.synced ? 'always' : 'default', journal_streams: kept.journalStreams },
      postgres: { url_path: databaseUrlPath },
      capability: { public_key_path: secrets.capabilityPublicKeyPath, issuer: gatewayName },
      webauthn: { rp_id: 'localhost', origins: [baseUrl] },
      platform: { base_url: baseUrl, signing_key_path: secrets.platformKeyPath, gateway_name: gatewayName },
      deployments: { url: deploymentUrl, ...(defaultDeployment === undefined ? {} : { default_id: defaultDeployment }) },
      mail: { from: 'Troupe <troupe@localhost>', outbox_path: folder.outbox },
      tools: { chat: ['calculator', 'clock', 'memory_write', 'memory_search', 'send_report'] },
      ...modelSections(choices),
    });
    configureDaemon(readKeptDeployment(folder.deploymentFile)?.id);
    writeGatewayConfig(folder.gatewayConfig, {
      name: gatewayName,
      listen: { host: '127.0.0.1', port, surfaces: ['platform', 'edge', 'console'] },
      listeners: [{ host: '127.0.0.1', port: ports.deployment, surfaces: ['deployment'] }],
      ops: { host: '127.0.0.1', port: ports.ops },
      tls: { cert_path: certificate.certPath, key_path: certificate.keyPath },
      auth: { dev_mode: true, dev_secret_path: secrets.devSecretPath, platform: true },
      platform: { base_url: baseUrl },
      capability: { key_path: secrets.capabilityKeyPath },
      upstream: { socket_path: socketFolder },
      admin: { socket_path: adminSocket, group: groupName() },
    });
    say.progress('Starting daemon and gateway …');
    const drainStopMs = limits.drainMs + limits.childStopMs;
    const newDaemon = (): Child => new Child({
      name: 'daemon', file: process.execPath, args: [join(root, 'actors', 'daemon', 'main.ts'), '--config', folder.daemonConfig],
      cwd: root, stopSignal: 'SIGTERM', stopMs: drainStopMs, probe: () => socketAccepts(socketPath),
    }, folder, say);
    const daemon = newDaemon();
    await beginAll(
      begin(daemon),
      begin(new Child({
        name: 'gateway', file: process.execPath, args: [join(root, 'gateway', 'main.ts'), '--config', folder.gatewayConfig],
        cwd: root, stopSignal: 'SIGTERM', stopMs: drainStopMs, probe: () => gatewayHealthy(port, certificate.caPath),
      }, folder, say)),
    );

    say.progress('Signing the development account in …');
    const account = await ensureAccount({ baseUrl, caPem: readFileSync(certificate.caPath, 'utf8'), outboxPath: folder.outbox, keptPath: folder.accountFile });
    if (nats.child !== undefined && !orgs.includes(account.org.id)) {
      writeNatsConfig(folder, secrets, { port: ports.nats, synced: options.synced, orgs: orgsOf(account) });
      if (nats.child.pid !== undefined) process.kill(nats.child.pid, 'SIGHUP');
    }
    say.progress('Looking for the development deployment …');
    const { made, ...deployment } = await ensureDeployment({
      baseUrl, caPem: readFileSync(certificate.caPath, 'utf8'), token: account.accessToken, organizationId: account.org.id, keptPath: folder.deploymentFile,
      allow: () => setPlan(nats.access, account.org.id, 'team'),
    });
    if (made) {
      // The daemon is to know which deployment is meant where none is named: its configuration says so from now on.
      configureDaemon(deployment.id);
      await daemon.stop();
      started.splice(started.indexOf(daemon), 1);
      await begin(newDaemon());
      await untilHealthy(() => gatewayHealthy(port, certificate.caPath));
    }
    const outbox = await showOutbox({ path: folder.outbox, port: ports.mail, say, quiet: [] });

    const facts: DevFacts = {
      path: folder.devFile, secret: secrets.devSecret, audience: gatewayName, baseUrl, deploymentUrl, deployment,
      natsUrl: nats.clientUrl, caPath: certificate.caPath, adminSocket, account,
    };
    let dev = await writeDevFile(facts);
    const renewal = setInterval(() => {
      writeDevFile(facts).then(
        (file) => { dev = file; },
        (error: unknown) => say.warn(`dev.json could not be renewed: ${error instanceof Error ? error.message : String(error)}`),
      );
    }, limits.devTokenTtlSec * 500);

    // Downward: the gateway first, so that its clients are told; then what it stands on.
    const downward = ['gateway', 'daemon', 'nats', 'postgres'];
    const doing: Readonly<Record<string, string>> = {
      gateway: 'Draining the gateway: clients are told to come back …',
      daemon: 'Draining the daemon: running turns finish, actors are put down …',
      nats: 'Stopping NATS …', postgres: 'Stopping Postgres …',
    };
    return {
      baseUrl: facts.baseUrl, deploymentUrl, caPath: certificate.caPath, natsUrl: options.natsUrl === undefined ? natsUrl(ports.nats) : new URL(options.natsUrl).host,
      durability: options.synced ? 'acknowledged = synced' : 'acknowledged = written',
      models: ['mock', ...choices.map((choice) => choice.model)],
      opsUrl: `http://127.0.0.1:${ports.ops}`,
      mailUrl: outbox.url, email: devEmail, userId: account.userId,
      token: () => dev.user.gatewayToken,
      pids: () => Object.fromEntries(started.flatMap((child) => (child.pid === undefined ? [] : [[child.spec.name, child.pid]]))),
      stop: async () => {
        clearInterval(renewal);
        outbox.close();
        const rank = (child: Child): number => downward.indexOf(child.spec.name);
        for (const child of started.toSorted((a, b) => rank(a) - rank(b))) {
          const text = doing[child.spec.name];
          if (text !== undefined) say.progress(text);
          await child.stop();
        }
      },
    };
  } catch (error) {
    for (const child of started.toReversed()) await child.stop();
    throw error;
  }
};
