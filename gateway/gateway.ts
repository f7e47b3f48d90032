/**
 * A gateway, put together from its configuration: started upward (keys, certificate, link, listener, admin, ops), stopped
 * downward. Several may run in one process, which tests use; everything it needs from outside is an argument.
 *
 * Guarantees: resolves only when it listens; a start that fails leaves nothing open; `drain` takes nothing new, lets what
 * runs finish, closes the rest with 1001; `close` ends at once.
 */
import type { GatewayConfig } from '../contracts/config.ts';
import { addressBlock } from '../contracts/address.ts';
import { coded, refuse } from '../contracts/errors.ts';
import { limits } from '../contracts/limits.ts';
import { deploymentRouteList } from '../contracts/deployment-routes.ts';
import { consoleRouteList, platformRouteList } from '../contracts/platform-routes.ts';
import { routes } from '../contracts/routes.ts';
import { startAdmin, type Admin, type AdminOps } from './admin.ts';
import { Admission } from './admission.ts';
import { trustedProxies } from './address.ts';
import { Bodies } from './bodies.ts';
import { Buckets, type BucketState } from './bucket.ts';
import { Capabilities } from './capability.ts';
import { readPair, watchCertificate, type CertificateState } from './certificate.ts';
import { systemClock, type Clock } from './clock.ts';
import { readSecrets } from './config.ts';
import type { ConsoleFiles } from './console/files.ts';
import { Credits } from './credit.ts';
import { Gate } from './gate.ts';
import { AccessVerifier } from './access.ts';
import { DeploymentGate } from './deployment-gate.ts';
import { edgeEndpoints } from './edge.ts';
import { makeFallback } from './fallback.ts';
import { httpKeys, Jwks } from './jwks.ts';
import { startListeners } from './listeners.ts';
import { noPages, type Pages } from './page.ts';
import { PlatformGate } from './platform-gate.ts';
import { linkKeys } from './platform-keys.ts';
import { platformEndpoints } from './platform.ts';
import { platformStreamEndpoints } from './platform-stream.ts';
import { hostRule } from './surface.ts';
import { connectLink, type LinkState } from './link.ts';
import type { Log } from './log.ts';
import { Metrics } from './metrics.ts';
import { startOps, type Ops } from './ops.ts';
import { loadPeerLookup, type PeerLookup } from './peer.ts';
import { Pipeline } from './route.ts';
import { makeFiles } from './static.ts';
import { StreamConnection } from './stream.ts';
import { IdentityVerifier } from './tier1.ts';
import { Upgrades } from './upgrade.ts';

export interface GatewayDependencies {
  readonly log: Log;
  /** Product version, told to the daemons. */
  readonly release: string;
  readonly clock?: Clock;
  readonly files?: ConsoleFiles;
  /** Pages of the platform surface rendered here. Default none. */
  readonly pages?: Pages;
  readonly fetch?: typeof globalThis.fetch;
  readonly peers?: PeerLookup;
  readonly bodies?: Bodies;
}

export interface Gateway {
  readonly port: number;
  /** Of `listen` and then of each of `listeners`. */
  readonly ports: readonly number[];
  /** 0 = off. */
  readonly opsPort: number;
  readonly certificate: CertificateState;
  /** Requests being answered, and WebSockets open. */
  readonly requests: number;
  readonly sockets: number;
  link(): LinkState;
  onLink(call: (state: LinkState) => void): () => void;
  reloadCertificate(): Promise<{ readonly swapped: boolean } & CertificateState>;
  /** Waits at most `timeoutMs` for streams, then closes them with 1001; resolves when requests have ended too. Gives how many were closed. */
  drain(timeoutMs: number): Promise<number>;
  close(): Promise<void>;
}

/** Rejects with `bad_config`, `cert_reload_failed`, `socket_in_use`. */
export const startGateway = async (config: GatewayConfig, dependencies: GatewayDependencies): Promise<Gateway> => {
  const { log } = dependencies;
  const clock = dependencies.clock ?? systemClock;
  const startedAtMs = clock.monotonicMs();
  const files = { certPath: config.tls.cert_path, keyPath: config.tls.key_path };
  const [secrets, inService] = await Promise.all([readSecrets(config), readPair(files)]);
  if (secrets.devSecret !== undefined && secrets.devSecret.length < 32) log.warn({}, 'the development secret is shorter than 32 bytes');

  const metrics = new Metrics();
  const nowMs = (): number => clock.monotonicMs();
  const { limits: rates } = config;
  const users = new Buckets({ capacity: rates.per_user_capacity, refillPerSec: rates.per_user_refill_per_sec }, nowMs);
  const addresses = new Buckets({ capacity: rates.per_ip_capacity, refillPerSec: rates.per_ip_refill_per_sec }, nowMs, limits.bucketsMax, addressBlock);
  const capabilities = new Capabilities({ name: config.name, key: secrets.capabilityKey, clock });
  const link = connectLink({ socketPath: config.upstream.socket_path, release: dependencies.release, log, deadlineMs: config.upstream.deadline_ms });
  const { jwks_url: url, jwks_ttl_ms: ttlMs, jwks_cooldown_ms: cooldownMs } = config.auth;
  const jwks = url === undefined ? undefined : new Jwks({ source: httpKeys(url, dependencies.fetch ?? globalThis.fetch), ttlMs, cooldownMs, clock, log });
  const platform = config.platform === undefined ? undefined
    : { jwks: new Jwks({ source: linkKeys(link), ttlMs, cooldownMs, clock, log }), issuer: config.platform.base_url };
  const identities = new IdentityVerifier({
    name: config.name, jwks, platform: config.auth.platform ? platform : undefined, devSecret: secrets.devSecret, ownKid: capabilities.kid, clock,
  });
  const gate = new Gate({ identities, capabilities, users, addresses, metrics, clock });
  const proxies = trustedProxies(config.trusted_proxies);
  const upgrades = new Upgrades(gate, rates.sockets_per_user);
  const credits = new Credits(clock);
  const pipeline = new Pipeline({ gate, capabilities, link, metrics, clock, log });
  const shared = { gate, link, metrics, clock, log, credits };
  const platformParts = platform === undefined ? [] : [
    {
      ...shared, pages: dependencies.pages ?? noPages, routes: [...platformRouteList, ...consoleRouteList],
      routeGate: new PlatformGate({ gate, access: new AccessVerifier({ ...platform, clock }), baseUrl: platform.issuer }),
    },
    { ...shared, pages: noPages, routes: deploymentRouteList, routeGate: new DeploymentGate(gate) },
  ];
  const endpoints = [
    ...edgeEndpoints(pipeline),
    ...platformParts.flatMap((parts) => [...platformEndpoints(parts, parts.routes), ...platformStreamEndpoints(parts, parts.routes)]),
  ];

  /** Told when a request or socket has ended. */
  const ends = new Set<() => void>();
  const server = await startListeners([config.listen, ...config.listeners], {
    certificate: files, proxies, bodies: dependencies.bodies ?? new Bodies(), endpoints, servesHost: hostRule(config.hosts),
    other: makeFallback({ gate, pipeline, files: makeFiles(dependencies.files ?? new Map()), log }),
    refuseUpgrade: (error) => pipeline.refuse(routes.stream.id, error),
    admitUpgrade: (request) => upgrades.admit(request),
    openStream: (upgrade) => new StreamConnection({
      link, capabilities, gate, clock, log, metrics, credits, heartbeatMs: config.heartbeat_ms, slowMs: config.slow_consumer_ms,
    }, upgrade),
    countUpgrade: (status) => metrics.upgrades.add(status),
    onEnded: () => {
      for (const told of ends) told();
    },
  }).catch((error: unknown) => {
    link.close();
    throw error;
  });
  const watch = watchCertificate({ files, inService, pollMs: config.tls.poll_ms, clock, log, apply: (changed) => server.swap(changed) });

  let state: 'serving' | 'draining' | 'drained' = 'serving';
  /** Resolves with true when nothing runs, with false when `timeoutMs` have passed. */
  const quiet = (done: () => boolean, timeoutMs: number): Promise<boolean> => new Promise((resolve) => {
    if (done()) return resolve(true);
    const settle = (result: boolean): void => {
      ends.delete(look);
      stop();
      resolve(result);
    };
    const look = (): void => {
      if (done()) settle(true);
    };
    const stop = clock.after(timeoutMs, () => settle(false));
    ends.add(look);
  });

  let draining: Promise<number> | undefined;
  let hurry: (() => void) | undefined;
  const drainOnce = async (timeoutMs: number): Promise<number> => {
    state = 'draining';
    server.stopListening();
    log.info({ sockets: server.socketCount, requests: server.requests, timeout_ms: timeoutMs }, 'draining');
    const noSockets = quiet(() => server.socketCount === 0, timeoutMs);
    await Promise.race([noSockets, new Promise<void>((resolve) => {
      hurry = resolve;
    })]);
    const left = server.sockets();
    for (const socket of left) socket.close('going_away');
    await quiet(() => server.requests === 0, config.upstream.deadline_ms);
    state = 'drained';
    return left.length;
  };
  const drain = (timeoutMs: number): Promise<number> => {
    if (draining !== undefined) {
      // A later call may shorten the wait of an earlier one, never lengthen it.
      clock.after(timeoutMs, () => hurry?.());
      return draining;
    }
    draining = drainOnce(timeoutMs);
    return draining;
  };

  const opened: { admin?: Admin; ops?: Ops } = {};
  const close = async (): Promise<void> => {
    watch.close();
    credits.close();
    jwks?.close();
    platform?.jwks.close();
    server.close();
    link.close();
    await Promise.all([opened.admin?.close(), opened.ops?.close()]);
  };

  const bucketJson = (kind: 'user' | 'ip') => (bucket: BucketState): object => ({
    kind, key: bucket.key, tokens: bucket.tokens, capacity: bucket.capacity, refill_per_sec: bucket.refillPerSec, overridden: bucket.overridden,
  });
  /** The identity provider's where there is one, else the platform's. */
  const keySet = jwks ?? platform?.jwks;
  const needKeys = (): Jwks => {
    if (keySet === undefined) throw coded('bad_request', 'This gateway has neither auth.jwks_url nor a platform.');
    return keySet;
  };
  const ops: AdminOps = {
    health: () => ({
      state, release: dependencies.release, pid: process.pid, port: server.ports[0] ?? 0, uptime_ms: Math.round(clock.monotonicMs() - startedAtMs),
      sockets: server.socketCount, requests: server.requests, daemons: link.state(),
      certificate: { fingerprint: watch.state.fingerprint, not_after: new Date(watch.state.notAfterMs).toISOString() },
      jwks: keySet === undefined ? null : { keys: keySet.dump().keys.length, age_ms: keySet.dump().age_ms, fetches: keySet.fetches },
    }),
    jwks_flush: async () => ({ keys: await needKeys().flush() }),
    jwks_dump: () => needKeys().dump(),
    rate_limit_inspect: ({ kind, key }) => {
      const found = [
        ...(kind === 'ip' ? [] : users.inspect(key, 1_000).map(bucketJson('user'))),
        ...(kind === 'user' ? [] : addresses.inspect(key, 1_000).map(bucketJson('ip'))),
      ];
      return { buckets: found.slice(0, 1_000) };
    },
    rate_limit_override: ({ kind, key, capacity, refill_per_sec: refillPerSec }) => {
      const buckets = kind === 'user' ? users : addresses;
      if (capacity !== null && refillPerSec !== null) buckets.override(key, { capacity, refillPerSec });
      else if (capacity === null && refillPerSec === null) buckets.override(key, null);
      else throw coded('bad_request', 'capacity and refill_per_sec are both numbers, or both null.');
      return { buckets: buckets.inspect(key, 1).map(bucketJson(kind)) };
    },
    drain: async ({ timeout_ms: timeoutMs }) => ({ closed: await drain(timeoutMs ?? limits.gatewayDrainMs) }),
    cert_reload: async () => {
      const { swapped, fingerprint, notAfterMs } = await watch.reload();
      return { swapped, fingerprint, not_after: new Date(notAfterMs).toISOString() };
    },
  };

  try {
    const { socket_path: socketPath, group } = config.admin ?? {};
    // No group, no admin socket: there would be nobody to admit.
    if (socketPath !== undefined && group !== undefined) {
      const peers = dependencies.peers ?? await loadPeerLookup();
      opened.admin = await startAdmin({ socketPath, gid: groupIdOf(peers, group, log), admission: new Admission(group, peers, clock, log), ops, log });
    }
    if (config.ops.port !== 0) {
      opened.ops = await startOps({
        host: config.ops.host, port: config.ops.port, ready: () => state === 'serving' && link.state().connected > 0,
        metrics: () => metrics.render({
          sockets: server.socketCount, daemons: link.state().connected, jwksFetches: (jwks?.fetches ?? 0) + (platform?.jwks.fetches ?? 0), draining: state !== 'serving',
        }),
      });
    }
  } catch (error) {
    await close();
    throw error;
  }
  return {
    port: server.ports[0] ?? 0,
    ports: server.ports,
    opsPort: opened.ops?.port ?? 0,
    get requests() {
      return server.requests;
    },
    get sockets() {
      return server.socketCount;
    },
    get certificate() {
      return watch.state;
    },
    link: () => link.state(),
    onLink: (call) => link.onState(call),
    reloadCertificate: () => watch.reload(),
    drain,
    close,
  };
};

/** For the socket file's ownership only; admission looks the group up again for every peer. */
const groupIdOf = (peers: PeerLookup, group: string, log: Log): number | undefined => {
  try {
    const gid = peers.groupId(group);
    if (gid === undefined) throw refuse('bad_config', `admin.group: there is no group ${group}.`);
    return gid;
  } catch (error) {
    log.warn({ group, error: String(error) }, 'the admin group cannot be looked up: nobody is admitted');
    return undefined;
  }
};
