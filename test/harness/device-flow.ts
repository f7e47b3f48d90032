/**
 * The device flow's handlers over real actors in memory, with a clock the test moves: what a device and a person ask, by route id, and a
 * fetch for OAuth clients that answers as the gateway does for these three endpoints (forms in, flat errors and Retry-After out).
 */
import { createSecretKey, randomBytes } from 'node:crypto';
import { allowance } from '../../actors/allowance/allowance.ts';
import { createAllowances } from '../../actors/daemon/allowances.ts';
import { deviceHandlers } from '../../actors/daemon/platform/device.ts';
import type { DeviceDeps } from '../../actors/daemon/platform/device.ts';
import { parsePlatform, type PlatformResult } from '../../actors/daemon/platform/serve.ts';
import { device } from '../../actors/device/device.ts';
import { name } from '../../actors/name/name.ts';
import { takeOutput } from '../../contracts/allowance.ts';
import { authRoutes } from '../../contracts/auth-routes.ts';
import { CodedError } from '../../contracts/errors.ts';
import type { Caller, PlatformRoute } from '../../contracts/platform.ts';
import { createCluster, createHost, type Cluster, type Host } from './memory-host.ts';

export const baseUrl = 'https://troupe.test';

export const person = (userId: string): Caller => ({
  kind: 'user', userId, email: `${userId}@example.com`, name: userId, grantId: 'grt_test', policy: '', accepted: '', expiresAtMs: Number.MAX_SAFE_INTEGER,
});

export interface CallOptions {
  readonly ip?: string;
  /** Signed in as this user. */
  readonly as?: string;
  readonly body?: unknown;
  readonly query?: unknown;
  /** As `performance.now()`. Default: no haste. */
  readonly deadlineAt?: number;
}

export interface DeviceFlow {
  readonly cluster: Cluster;
  readonly host: Host;
  /** Throws what the handler throws. */
  call(route: keyof typeof authRoutes, options?: CallOptions): Promise<PlatformResult>;
  /** For OAuth clients. */
  readonly fetch: (url: string, init: { readonly method?: string | undefined; readonly body?: unknown }) => Promise<Response>;
  /** Every commit that was journaled, in order. */
  readonly journaled: readonly { readonly subject: string; readonly data: Uint8Array }[];
  /** Whom tokens were made for, in order. */
  readonly issued: readonly { readonly userId: string; readonly clientId: string; readonly agreedAtMs: number | undefined }[];
}

export interface DeviceFlowOptions {
  /** Joins one that is there: the second daemon. */
  readonly beside?: DeviceFlow;
  readonly issue?: DeviceDeps['accounts']['issue'];
}

export const startDeviceFlow = (options: DeviceFlowOptions = {}): DeviceFlow => {
  const plain = createCluster();
  const journaled: { readonly subject: string; readonly data: Uint8Array }[] = [];
  const journal = {
    ...plain.stores.journal,
    append: (subject: string, data: Uint8Array, expectedSeq: number): Promise<number> => {
      journaled.push({ subject, data });
      return plain.stores.journal.append(subject, data, expectedSeq);
    },
  };
  const cluster = options.beside?.cluster ?? { ...plain, stores: { ...plain.stores, journal } };
  const host = options.beside?.host ?? createHost(cluster, { definitions: [device(), name(), allowance()] });
  const issued: { readonly userId: string; readonly clientId: string; readonly agreedAtMs: number | undefined }[] = [];
  const accounts: DeviceDeps['accounts'] = {
    issue: options.issue ?? (async (userId, _kind, clientId, _context, agreedAtMs) => {
      issued.push({ userId, clientId, agreedAtMs });
      return { accessToken: `access-of-${userId}`, refreshToken: `refresh-of-${userId}`, expiresInSec: 86_400, expiresAtMs: 0 };
    }),
  };
  const handlers = deviceHandlers({
    config: { base_url: baseUrl, signing_key_path: '-', former_key_paths: [], gateway_name: 'troupe-gateway', access_expiry_ms: 86_400_000 },
    masterKey: createSecretKey(randomBytes(32)),
    actors: { ask: (message) => host.engine.deliver(message) },
    allowances: createAllowances({
      ask: async (address, input) => takeOutput.parse(await host.ask(address, 'take', input)), clock: cluster.clock,
    }),
    accounts,
    now: () => cluster.clock.now(),
  });

  const call: DeviceFlow['call'] = (key, { ip = '192.0.2.1', as, body, query, deadlineAt = Number.MAX_SAFE_INTEGER } = {}) => {
    const route: Pick<PlatformRoute, 'id' | 'body' | 'query'> = authRoutes[key];
    const handler = handlers[route.id];
    if (handler === undefined) throw new TypeError(`no handler of ${route.id}`);
    const request = {
      token: '', context: { ip, user_agent: 'test' }, deadlineAt, signal: new AbortController().signal,
      body: route.body === undefined ? undefined : parsePlatform(route.body, body),
      query: route.query === undefined ? undefined : parsePlatform(route.query, query),
    };
    if (handler.needs === 'nobody') return handler.run({ ...request, caller: undefined });
    if (as === undefined) throw new TypeError(`${route.id} needs a person`);
    return handler.run({ ...request, caller: person(as) });
  };

  const routes = [authRoutes.metadata, authRoutes.deviceCode, authRoutes.deviceToken] as const;
  const keys = ['metadata', 'deviceCode', 'deviceToken'] as const;
  const fetch: DeviceFlow['fetch'] = async (url, { method = 'GET', body }) => {
    const at = routes.findIndex((route) => `${baseUrl}${route.path}` === url && route.method === method);
    const key = keys[at];
    if (key === undefined) return new Response('', { status: 404 });
    const form = body instanceof URLSearchParams ? Object.fromEntries(body) : undefined;
    try {
      const { status, body: answer } = await call(key, { body: form });
      return Response.json(answer, { status });
    } catch (error) {
      if (!(error instanceof CodedError)) throw error;
      const after: unknown = error.details?.['retry_after'];
      return Response.json({ error: error.code, error_description: error.message }, {
        status: error.entry.http, headers: typeof after === 'number' ? { 'retry-after': String(after) } : {},
      });
    }
  };
  return { cluster, host, call, fetch, journaled, issued };
};
