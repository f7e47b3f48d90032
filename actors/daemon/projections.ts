/** Which projections a daemon runs, wired to its host. Absent without Postgres: then there are no lists, and all else is as ever. */
import type { DaemonConfig } from '../../contracts/config.ts';
import { natsJournalSource } from '../projections/journal.ts';
import { auditProjection } from '../projections/audit.ts';
import type { JournaledOptions } from '../projections/journaled.ts';
import { organizationsProjection } from '../projections/organizations.ts';
import { startProjections, type Projections } from '../projections/projections.ts';
import type { Projection } from '../projections/projection.ts';
import { sessionsProjection } from '../projections/sessions.ts';
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
  /** The organization actor's. Absent = no platform. */
  readonly organization: { readonly spec: ErasedSpec } | undefined;
  readonly log: Log;
}

/** Starts in the background, whether Postgres is there or not. Throws `bad_request` for a URL that is none. */
export const daemonProjections = ({ config, postgresUrl, host, session, organization, log }: DaemonProjectionsOptions): Projections | undefined => {
  if (postgresUrl === undefined || session === undefined) return undefined;
  return startProjections({
    postgresUrl, log, host: config.host,
    source: natsJournalSource(host.stores.lean, config.nats.journal_streams),
    projections: [
      sessionsProjection({
        upcast: upcastBy(session.spec),
        onBroken: ({ address, seq }, error) => log.error({ sid: address.key, seq, err: error }, 'an event cannot be read and is left out of the list of sessions'),
      }),
      ...(organization === undefined ? [] : ofOrganizations(organization.spec, log)),
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

/** As NATS' service tools show it: `projection.sessions` → `running`, or the code of what keeps it down. */
export const projectionStatus = (projections: Projections | undefined): Readonly<Record<string, string>> =>
  Object.fromEntries(Object.entries(projections?.status() ?? {}).map(([name, state]) => [`projection.${name}`, state]));
