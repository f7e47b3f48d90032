/**
 * The host as a NATS service (ADR-32), so that the standard tools (`nats micro ls`, `info`, `stats`) list every actor type
 * and command and count their calls. One service instance per host, one endpoint per public command.
 *
 * It answers `$SRV.PING|INFO|STATS`, `….<name>` and `….<name>.<id>`, to inboxes only (`isReplyAddress`). The commands themselves are served by listen.ts.
 */
import type { NatsConnection } from 'nats';
import { isReplyAddress, queueGroup } from '../../../contracts/subjects.ts';
import type { ActorDefinition } from '../define.ts';
import type { Clock } from '../store.ts';

export const serviceName = 'troupe';

export interface Statistics {
  /** Counts one call of a public command; `failure` = the message of its error. */
  count(type: string, command: string, tookMs: number, failure: string | undefined): void;

  endpoints(): readonly EndpointStatistics[];
}

/** Times in nanoseconds, as the protocol has them. */
export interface EndpointStatistics {
  readonly name: string;
  readonly subject: string;
  readonly queue_group: string;
  readonly num_requests: number;
  readonly num_errors: number;
  readonly last_error: string;
  readonly processing_time: number;
  readonly average_processing_time: number;
}

interface Endpoint {
  readonly name: string;
  readonly subject: string;
  readonly metadata: Readonly<Record<string, string>>;
  requests: number;
  errors: number;
  lastError: string;
  tookMs: number;
}

type AnyDefinition = Pick<ActorDefinition, 'type' | 'spec'>;

/** Endpoint names allow only these characters (ADR-32). */
const endpointName = (type: string, command: string): string => `${type}-${command}`.replace(/[^A-Za-z0-9_-]/g, '_');

export const createStatistics = (definitions: readonly AnyDefinition[]): Statistics & { readonly metadata: () => readonly { name: string; subject: string; queue_group: string; metadata: Readonly<Record<string, string>> }[] } => {
  const byCommand = new Map<string, Endpoint>();
  for (const { type, spec } of definitions) {
    for (const [command, { access }] of Object.entries(spec.commands)) {
      if (access !== 'public') continue;
      byCommand.set(`${type}.${command}`, {
        name: endpointName(type, command), subject: `actor.*.${type}.*.${command}`, metadata: { type, command },
        requests: 0, errors: 0, lastError: '', tookMs: 0,
      });
    }
  }
  return {
    count(type, command, tookMs, failure) {
      const endpoint = byCommand.get(`${type}.${command}`);
      // An unknown command has no endpoint; it was answered with `unknown_command`.
      if (endpoint === undefined) return;
      endpoint.requests++;
      endpoint.tookMs += tookMs;
      if (failure === undefined) return;
      endpoint.errors++;
      endpoint.lastError = failure;
    },
    endpoints: () => [...byCommand.values()].map((e) => ({
      name: e.name, subject: e.subject, queue_group: queueGroup, num_requests: e.requests, num_errors: e.errors, last_error: e.lastError,
      processing_time: Math.round(e.tookMs * 1e6),
      average_processing_time: e.requests === 0 ? 0 : Math.round((e.tookMs * 1e6) / e.requests),
    })),
    metadata: () => [...byCommand.values()].map(({ name, subject, metadata }) => ({ name, subject, queue_group: queueGroup, metadata })),
  };
};

export interface ServiceOptions {
  readonly nc: NatsConnection;
  /** Unique id of this instance; a subject token. */
  readonly id: string;
  readonly host: string;
  /** Semantic version. */
  readonly version: string;
  readonly statistics: ReturnType<typeof createStatistics>;
  readonly clock: Clock;
  /** Further metadata of the moment. */
  readonly status?: (() => Readonly<Record<string, string>>) | undefined;
}

/** Announces the host. `stop` takes it from the lists at once. */
export const startService = ({ nc, id, host, version, statistics, clock, status }: ServiceOptions): { stop(): void } => {
  const identity = () => ({ name: serviceName, id, version, metadata: { ...status?.(), host } });
  const started = new Date(clock.now()).toISOString();
  const answers = {
    PING: () => ({ type: 'io.nats.micro.v1.ping_response', ...identity() }),
    INFO: () => ({ type: 'io.nats.micro.v1.info_response', ...identity(), description: 'Actors on NATS', endpoints: statistics.metadata() }),
    STATS: () => ({ type: 'io.nats.micro.v1.stats_response', ...identity(), started, endpoints: statistics.endpoints() }),
  };
  const subscriptions = Object.entries(answers).flatMap(([verb, build]) =>
    [`$SRV.${verb}`, `$SRV.${verb}.${serviceName}`, `$SRV.${verb}.${serviceName}.${id}`].map((subject) => nc.subscribe(subject, {
      callback: (error, msg) => { if (error === null && isReplyAddress(msg.reply ?? '')) msg.respond(JSON.stringify(build())); },
    })));
  return { stop: () => { for (const subscription of subscriptions) subscription.unsubscribe(); } };
};
