/** Which projections a daemon runs, wired to its host. Absent without Postgres: then there are no lists, and all else is as ever. */
import type { DaemonConfig } from '../../contracts/config.ts';
import { natsJournalSource } from '../projections/journal.ts';
import { auditProjection } from '../projections/audit.ts';
import type { JournaledOptions } from '../projections/journaled.ts';
import { organizationsProjection } from '../projections/organizations.ts';
import { startProjections, type Projections } from '../projections/projections.ts';
import type { Projection } from '../projections/projection.ts';
import { sessionsProjection } from '../projections/sessions.ts';
import { usageProjection, type usageProjections } from '../projections/usage.ts';
import type { Host } from '../runtime/cluster/host.ts';
import type { ErasedSpec } from '../runtime/define.ts';
import type { Log } from '../runtime/log.ts';
import { upcastBy } from './upcast.ts';

export interface DaemonProjectionsOptions {
  readonly config: Pick<DaemonConfig, 'host' | 'nats'>;
  /** Absent = no Postgres is configured. */
  readonly postgresUrl: string | undefined;
  readonly host: Host;
  /** The session actor's definition. */
  readonly session: { readonly spec: ErasedSpec } | undefined;
  /** The organization actor's and the completion actor's. Absent = no platform. */
  readonly organization: { readonly spec: ErasedSpec } | undefined;
  readonly completion: { readonly spec: ErasedSpec } | undefined;
  readonly log: Log;
}

/** Starts in the background, whether Postgres is there or not. Throws `bad_request` for a URL that is none. */
export const daemonProjections = ({ config, postgresUrl, host, session, organization, completion, log }: DaemonProjectionsOptions): Projections | undefined => {
  if (postgresUrl === undefined || session === undefined) return undefined;
  return startProjections({
    postgresUrl, log, host: config.host,
    source: natsJournalSource(host.stores.lean, config.nats.journal_streams),
    projections: [
      sessionsProjection({
        upcast: upcastBy(session.spec),
        onBroken: ({ address, seq }, error) => log.error({ sid: address.key, seq, err: error }, 'an event cannot be read and is left out of the list of sessions'),
      }),
      ...(organization === undefined ? [] : [...ofOrganizations(organization.spec, log), ofUsage('session', session.spec, log)]),
      ...(completion === undefined ? [] : [ofUsage('completion', completion.spec, log)]),
    ],
  });
};

const ofOrganizations = (spec: ErasedSpec, log: Log): readonly Projection[] => {
  const options: JournaledOptions = {
    upcast: upcastBy(spec),
    onBroken: ({ address, seq }, error) => log.error({ organization: address.key, seq, err: error }, 'an event cannot be read and is left out of the lists of organizations'),
  };
  return [organizationsProjection(options), auditProjection(options)];
};

const ofUsage = (type: keyof typeof usageProjections, spec: ErasedSpec, log: Log): Projection => usageProjection(type, {
  upcast: upcastBy(spec),
  onBroken: ({ address, seq }, error) => log.error({ org: address.org, seq, err: error }, 'a metering event cannot be read and is left out of the usage'),
});

/** As NATS' service tools show it: `projection.sessions` → `running`, or the code of what keeps it down. */
export const projectionStatus = (projections: Projections | undefined): Readonly<Record<string, string>> =>
  Object.fromEntries(Object.entries(projections?.status() ?? {}).map(([name, state]) => [`projection.${name}`, state]));
