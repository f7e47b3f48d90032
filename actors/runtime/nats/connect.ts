/**
 * The connection to NATS: it comes back by itself, for ever, and callers see only latency.
 *
 * A half-open connection is found by pings (`limits.natsPingMs`, two unanswered). The waits between tries are random
 * within bounds so that hosts do not come back in step. What was in flight at a loss is settled by `lean.ts`, not here.
 */
import { connect, type NatsConnection } from 'nats';
import { coded } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';

export interface ConnectOptions {
  /** `nats://host:port`; several, separated by commas, for a cluster. */
  readonly url: string;
  readonly user?: string | undefined;
  readonly password?: string | undefined;
  /** Shown by NATS' own monitoring. */
  readonly name: string;
}

/** Milliseconds before the next try: random within the bounds of `limits`. */
const reconnectDelay = (): number =>
  limits.natsReconnectMinMs + Math.floor(Math.random() * (limits.natsReconnectMaxMs - limits.natsReconnectMinMs));

/** Connects, once; later losses are repaired. Throws `upstream_unavailable` when NATS cannot be reached or refuses the credentials. */
export const connectNats = async ({ url, user, password, name }: ConnectOptions): Promise<NatsConnection> => {
  try {
    return await connect({
      servers: url.split(',').map((server) => server.trim()),
      name,
      ...(user === undefined ? {} : { user }),
      ...(password === undefined ? {} : { pass: password }),
      reconnect: true,
      maxReconnectAttempts: -1,
      reconnectDelayHandler: reconnectDelay,
      // A server that starts may refuse credentials it has not loaded yet; giving up would end the process' storage for good.
      ignoreAuthErrorAbort: true,
      timeout: limits.natsConnectMs,
      pingInterval: limits.natsPingMs,
      maxPingOut: 2,
    });
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : 'unknown';
    // The URL may carry credentials, so only host and port are named.
    throw coded('upstream_unavailable', `NATS cannot be reached at ${url.replace(/\/\/[^@/,]*@/g, '//')}: ${why}.`, { cause });
  }
};
