/**
 * One daemon process, put together and taken apart in stages.
 *
 * Up: 1 the socket's claim (nothing below may run twice under one path), 2 NATS, its version and streams, 3 actor definitions with
 * what their effects reach, 4 the host (joins the cluster, claims partitions) and, in the background, the projections where Postgres
 * is configured, 5 hub and link, 6 the socket is bound: ready. Postgres may be down at any time: only lists need it. NATS must be there
 * for the connection; lost after that, each step waits for it, all together for `limits.natsStartMs`. Refusals end the start at once.
 * Down, in `drain`: 6 gateways are told goaway, requests and chat answers finish, 4 the host hands its actors over, 5 streams close with 1001
 * and the connections end, 2 NATS is left, 1 the claim is given up.
 *
 * Guarantee (G8): a drain loses nothing and takes at most about `drain_ms`; `close` stops at once and loses nothing either, because
 * whatever was acknowledged is in the journal. There is no TCP or UDP listener: NATS and vendors are dialled, gateways come over the socket.
 */
import { connectionName, releaseOf } from './release.ts';
import type { NatsConnection } from 'nats';
import type { DaemonConfig } from '../../contracts/config.ts';
import { coded, CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { Blobs } from '../blobs/blobs.ts';
import { natsBlobs } from '../blobs/nats.ts';
import { createBlobStore, type BlobStore } from '../blobs/store.ts';
import { startSweeps } from '../blobs/sweep.ts';
import { openZstd } from '../blobs/zstd.ts';
import { createVault, type Vault } from '../custody/vault.ts';
import { createWebauthn } from '../custody/webauthn.ts';
import { definitions } from '../definitions.ts';
import { createIndexer } from '../knowledge/indexer.ts';
import { createKnowledgeReader, type KnowledgeReader } from '../knowledge/reader.ts';
import { natsShelves } from '../knowledge/shelf-nats.ts';
import { modelRegistry, type Registry } from '../providers/index.ts';
import { startHost, type Host } from '../runtime/cluster/host.ts';
import type { ActorDefinition } from '../runtime/define.ts';
import type { Sender } from '../runtime/message.ts';
import { createProcessor } from '../payments/stripe.ts';
import type { Projections } from '../projections/projections.ts';
import type { Log } from '../runtime/log.ts';
import { Ulids } from '../runtime/ulid.ts';
import { connectNats } from '../runtime/nats/connect.ts';
import { checkServer } from '../runtime/nats/server.ts';
import { createNatsStores } from '../runtime/nats/stores.ts';
import { ensureStreams } from '../runtime/nats/streams.ts';
import { builtinTools, chosenTools, deploymentTools, type Tools } from '../tools/index.ts';
import { knowledgeTools } from '../tools/knowledge.ts';
import { createAdmission } from './admission.ts';
import { askAllowance, createAllowances } from './allowances.ts';
import { createCapabilities } from './capability.ts';
import type { Secrets } from './config.ts';
import { custodyHandlers } from './custody.ts';
import { createDeployments, type Deployments } from './deployment/deployments.ts';
import type { DeploymentDeps } from './deployment/deps.ts';
import { createRemains } from './deployment/remains.ts';
import { createErase } from './erase.ts';
import { createRetain } from './retain.ts';
import type { Upcast } from './frames.ts';
import { daemonHandlers } from './handlers.ts';
import { createHub, type Hub } from './hub.ts';
import { createLinkServer, type LinkServer } from './link.ts';
import { listHandlers } from './lists.ts';
import { createPeerLookup } from './peer.ts';
import { deploymentsHandlers } from './platform/deployments.ts';
import { createHasTxt } from './platform/dns.ts';
import { openOutside } from './platform/outside.ts';
import type { PaymentOptions } from './platform/payments.ts';
import { createPlatform, type Platform } from './platform/platform.ts';
import { daemonProjections, projectionStatus } from './projections.ts';
import { createServe, type DaemonHandler } from './serve.ts';
import { claimSocket, type ClaimedSocket } from './socket.ts';
import { createStreams } from './streams.ts';
import type { TailSource } from './tail.ts';
import { upcastBy } from './upcast.ts';

export interface DaemonOptions {
  readonly config: DaemonConfig;
  readonly secrets: Secrets;
  readonly log: Log;
  /** Whether plans can be bought (interface 4.5: launch gate). Default false. */
  readonly checkoutEnabled?: boolean;
  /** Further handlers of daemon routes, by route id. */
  readonly handlers?: Readonly<Record<string, DaemonHandler>>;
  /** Further actor types; one of a type the product has takes its place. */
  readonly definitions?: readonly ActorDefinition[];
  /** Milliseconds of patience with a NATS that is lost while it starts. Default `limits.natsStartMs`. */
  readonly startMs?: number;
}

export interface Daemon {
  readonly host: Host;
  /** Undefined without Postgres. */
  readonly projections: Projections | undefined;
  readonly hub: Hub;
  readonly link: LinkServer;
  /** Finishes what runs, hands over, leaves. A second call waits for the first. */
  drain(): Promise<void>;
  /** Stops at once. */
  close(): Promise<void>;
  /** Resolves when it has ended, with why; `replaced` = another process joined under its host name, `nats_lost` = NATS closed the connection for good. */
  readonly closed: Promise<'drained' | 'closed' | 'replaced' | 'nats_lost'>;
}

/** What an acknowledged commit means here, in the words of the start line and of every benchmark. */
export const durability = (config: DaemonConfig): string => `acknowledged = ${config.nats.sync === 'always' ? 'synced' : 'written'}`;

/** Starts a daemon; resolves when its socket accepts. Throws coded errors whose message says what to do; what was started is stopped. */
export const startDaemon = async (options: DaemonOptions): Promise<Daemon> => {
  const { config, secrets, log } = options;
  const release = releaseOf();
  const undo: (() => Promise<void> | void)[] = [];
  try {
    // 1 claim
    const rule = { uids: config.allowed_uids, gids: config.allowed_gids };
    const socket = await claimSocket({ path: config.socket_path, rule, lookup: createPeerLookup(), log, release });
    undo.push(() => socket.close());

    // 2 NATS
    const plan = { partitions: config.partitions, journalStreams: config.nats.journal_streams, replicas: config.nats.replicas };
    const nc = await connectNats({ url: config.nats.url, user: config.nats.user, password: secrets.natsPassword, name: connectionName(config.host) });
    undo.push(() => nc.close());
    checkServer(nc);
    // From here on the connection may be lost and come back: the request path follows it, and what was not answered is asked again.
    const stores = createNatsStores(nc, plan);
    const endMs = performance.now() + (options.startMs ?? limits.natsStartMs);
    const leftMs = (): number => Math.max(1, endMs - performance.now());
    await ensureStreams(nc, plan, { lean: stores.lean, withinMs: leftMs() });

    // 3 definitions
    const blobs = await natsBlobs(nc);
    const uploads = new Ulids(Date.now);
    const deploymentBlobs = createBlobStore({ lean: stores.lean, zstd: await openZstd(), newUlid: () => uploads.next(), log });
    const shelves = natsShelves(stores.lean, () => uploads.next());
    const reader = createKnowledgeReader({ journal: stores.journal, partitions: config.partitions, shelves, indexer: createIndexer({ log }), log });
    undo.push(() => reader.close());
    const registry = registryOf(config, secrets);
    const tools = builtinTools({ fetchAllow: config.tools.fetch_allow });
    const chatTools = chosenTools(tools, config.tools.chat);
    const further = options.definitions ?? [];
    // Started after the host, whose status and effects reach them.
    const background: { projections?: Projections | undefined; actors?: Sender } = {};
    const erase = createErase({ lean: stores.lean, journalStreams: config.nats.journal_streams, projections: () => background.projections });
    const retain = createRetain({ lean: stores.lean, journal: stores.journal, journalStreams: config.nats.journal_streams, partitions: config.partitions, projections: () => background.projections, now: Date.now });
    const remains = createRemains({ lean: stores.lean, journalStreams: config.nats.journal_streams, partitions: config.partitions, actors: () => background.actors, projections: () => background.projections });
    const processor = await createProcessor({ billing: config.billing, secrets: secrets.stripe, log, now: Date.now });
    const outside = openOutside({ config, secrets, log, erase, retain, remains, processor });
    undo.push(() => outside.close());
    const own = definitions({ registry, tools, deploymentTools: deploymentTools(tools, knowledgeTools(reader)), chatTools, blobs, idleMs: config.session_idle_ms, platform: config.platform === undefined ? undefined : outside.deps });
    const types = [...own.filter(({ type }) => !further.some((definition) => definition.type === type)), ...further];
    const typeOf = (name: string): ActorDefinition | undefined => types.find(({ type }) => type === name);
    const session = typeOf('session');

    // 4 host
    const host = await startHost({
      nc, definitions: types, log, stores, startMs: leftMs(), status: () => projectionStatus(background.projections),
      config: { host: config.host, ...plan, leaseTtlMs: config.lease_ttl_ms, drainMs: config.drain_ms, version: release },
    });
    undo.push(() => host.close());
    background.actors = host.actors;
    // What still waits for an answer then, a projection's read for one, ends.
    void host.closed.then(() => stores.lean.close());
    void host.closed.then(() => outside.close());
    const sweeps = startSweeps({ lean: stores.lean, now: Date.now, log });
    undo.push(() => sweeps.close());
    void host.closed.then(() => sweeps.close());
    const projections = daemonProjections({ config, postgresUrl: secrets.postgresUrl, host, session, organization: typeOf('organization'), completion: typeOf('completion'), log });
    background.projections = projections;
    undo.push(() => projections?.close());
    await settled(host, config.lease_ttl_ms * 2, log);

    // 5 hub and link
    const { actors } = host;
    const upcast: Upcast = session === undefined ? (event) => event.d : upcastBy(session.spec);
    const hub = createHub({
      journal: stores.journal, feed: stores.feed, partitions: config.partitions, log,
      upcast,
      askActor: async (address, sub) => {
        try {
          await actors.ask({ address, command: 'describe', input: { user_id: sub }, principal: { kind: 'user', sub, org: address.org, scopes: [] } });
          return true;
        } catch (error) {
          if (error instanceof CodedError && error.code === 'session_not_found') return false;
          throw error;
        }
      },
    });
    undo.push(() => hub.close());
    const capabilities = await createCapabilities({ publicKeyPem: secrets.capabilityPublicKeyPem, issuer: config.capability.issuer });
    const webauthn = config.webauthn === undefined ? undefined : { rpId: config.webauthn.rp_id, origins: config.webauthn.origins };
    const admission = createAdmission({ capabilities, actors, feed: stores.feed, log });
    undo.push(() => admission.close());
    void host.closed.then(() => admission.close());
    const tails = { journal: stores.journal, feed: stores.feed, partitions: config.partitions };
    const payments = { processor, enabled: options.checkoutEnabled === true };
    const vault = createVault(secrets.masterKey);
    const served = await platformOf({ config, secrets, log, host, projections, tails, blobs, deploymentBlobs, knowledge: { reader, shelves }, registry, upcast, vault, chatTools, payments });
    const { platform, deployments } = served ?? {};
    const request = createServe({
      capabilities: admission, actors, log, platform: platform?.serve, deployments: deployments?.serve,
      ownership: { partitions: config.partitions, owns: (n) => host.engine.held.has(n), ownsAny: () => host.engine.held.size > 0 },
      handlers: { ...daemonHandlers({ blobs }), ...listHandlers(projections), ...custodyHandlers({ actors, vault, webauthn: createWebauthn(webauthn) }), ...options.handlers },
    });
    const link = createLinkServer({
      release, host: config.host, partitions: config.partitions, log,
      handlers: { request, open: createStreams({ admission, hub, actors, log, platform: platform?.streams.open, deployments: deployments?.streams.open }) },
      onDrain: (peer) => {
        hub.onDrain(peer);
        platform?.streams.onDrain(peer);
        deployments?.streams.onDrain(peer);
      },
    });
    undo.push(() => link.close());
    link.own(host.owned());
    host.onOwned((owned) => link.own(owned));

    // 6 socket
    await socket.listen((accepted) => link.accept(accepted));
    return running({ config, log, socket, nc, host, projections, hub, link, served, reader });
  } catch (error) {
    for (const step of undo.toReversed()) await step();
    throw error;
  }
};

/**
 * Waits until the partitions meant for this host are served; not for ever, since others may hold them until their lease ends. Throws
 * `conflict` when another process takes the host's name meanwhile.
 */
const settled = async (host: Host, waitMs: number, log: Log): Promise<void> => {
  const late = Promise.withResolvers<'late'>();
  const timer = setTimeout(() => late.resolve('late'), waitMs);
  const served = host.ready.catch(async () => {
    // Nobody drains or closes a host that is being started.
    await host.closed;
    throw coded('conflict', `Another process has joined the cluster under the host name ${host.name}.`);
  });
  try {
    if (await Promise.race([served, late.promise]) === 'late') log.warn({ owned: host.owned().length }, 'not all partitions meant for this host are free yet');
  } finally {
    clearTimeout(timer);
  }
};

interface PlatformParts extends Pick<DaemonOptions, 'config' | 'secrets' | 'log'> {
  readonly host: Host;
  readonly projections: Projections | undefined;
  readonly tails: TailSource;
  readonly blobs: Blobs;
  readonly deploymentBlobs: BlobStore;
  readonly knowledge: DeploymentDeps['knowledge'];
  readonly registry: Registry;
  readonly upcast: Upcast;
  readonly vault: Vault;
  readonly chatTools: Tools;
  readonly payments: PaymentOptions;
}

interface Served {
  readonly platform: Platform;
  readonly deployments: Deployments;
}

/** The platform and the deployments of its organizations. Undefined if none is configured. Throws `bad_request` for a configuration it cannot work with. */
const platformOf = async ({ config, secrets, log, host, projections, tails, blobs, deploymentBlobs, knowledge, registry, upcast, vault, chatTools, payments }: PlatformParts): Promise<Served | undefined> => {
  if (config.platform === undefined || secrets.platform === undefined) return undefined;
  if (projections === undefined) throw coded('bad_request', 'platform needs postgres: lists of organizations are read from it.');
  const ulids = new Ulids(Date.now);
  const shared = { actors: host.actors, projections, tails, blobs, log, now: Date.now, newUlid: (): string => ulids.next() };
  const deployments = createDeployments({ ...shared, deploymentBlobs, knowledge, registry, upcast, vault, defaultId: config.deployments.default_id });
  const url = config.deployments.url ?? config.platform.base_url;
  const platform = await createPlatform({
    ...shared, config: config.platform, masterKey: secrets.masterKey, chatTools, payments,
    further: { plain: { ...deployments.console.plain, ...deploymentsHandlers({ ...shared, vault, url }) }, streams: deployments.console.streams },
    secrets: { ...secrets.platform, google: secrets.googleClientSecret, github: secrets.githubClientSecret },
    models: { default: config.models.default, ids: config.models.registry.map(({ id }) => id) },
    hasTxt: createHasTxt({ servers: config.trust.name_servers, log }),
    allowances: createAllowances({ ask: askAllowance(host.actors) }),
  });
  return { platform, deployments };
};

const registryOf = (config: DaemonConfig, secrets: Secrets): Registry => {
  const { openai, anthropic } = config.providers;
  return modelRegistry(config.models, {
    openai: openai === undefined || secrets.openaiKey === undefined ? undefined : { apiKey: secrets.openaiKey, baseUrl: openai.base_url },
    anthropic: anthropic === undefined || secrets.anthropicKey === undefined ? undefined : { apiKey: secrets.anthropicKey, baseUrl: anthropic.base_url },
  });
};

interface Parts {
  readonly config: DaemonConfig;
  readonly log: Log;
  readonly socket: ClaimedSocket;
  readonly nc: NatsConnection;
  readonly host: Host;
  readonly projections: Projections | undefined;
  readonly hub: Hub;
  readonly link: LinkServer;
  readonly served: Served | undefined;
  readonly reader: KnowledgeReader;
}

const running = ({ config, log, socket, nc, host, projections, hub, link, served, reader }: Parts): Daemon => {
  const ended = Promise.withResolvers<Awaited<Daemon['closed']>>();
  let drained: Promise<void> | undefined;
  let ending = false;

  const leave = async (): Promise<void> => {
    hub.close();
    link.close();
    await reader.close();
    await socket.close();
    await nc.close();
  };

  const drain = async (): Promise<void> => {
    ending = true;
    const after = (ms: number): Promise<void> => new Promise((resolve) => { setTimeout(resolve, ms).unref(); });
    await Promise.race([link.drain(), after(config.drain_ms)]);
    // Half of it at most: what goes on after that goes on elsewhere, without its client.
    await Promise.race([Promise.all([served?.platform.streams.ended(), served?.deployments.streams.ended()]), after(config.drain_ms / 2)]);
    // At once: a projection whose journal does not answer ends when the host closes its request path.
    await Promise.all([host.drain(), projections?.close(), Promise.race([reader.flush(), after(config.drain_ms / 2)])]);
    await leave();
    ended.resolve('drained');
  };

  const close = async (why: Awaited<Daemon['closed']>): Promise<void> => {
    ending = true;
    host.close();
    await projections?.close();
    await leave();
    ended.resolve(why);
  };

  const endWith = (why: 'replaced' | 'nats_lost'): void => {
    if (ending) return;
    log.error({ host: config.host, why }, why === 'replaced' ? 'another process joined the cluster under this host name' : 'NATS closed the connection for good');
    close(why).catch((error: unknown) => log.error({ err: error }, 'the daemon did not stop cleanly'));
  };
  host.closed.then((end) => {
    if (end === 'replaced') endWith('replaced');
  }, () => undefined);
  nc.closed().then(() => endWith('nats_lost'), () => endWith('nats_lost'));

  return {
    host, projections, hub, link,
    drain: () => (drained ??= drain()),
    close: () => close('closed'),
    closed: ended.promise,
  };
};
