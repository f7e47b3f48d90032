/**
 * Projections under test: a real nats-server and Postgres for a test file, and for each test a database and a journal of its own,
 * runners whose log can be awaited, and what the rows must say of the sessions written.
 */
import assert from 'node:assert/strict';
import { after, before, type TestContext } from 'node:test';
import postgres from 'postgres';
import { connect, type NatsConnection } from 'nats';
import { CodedError } from '../../contracts/errors.ts';
import type { JournalSource } from '../../actors/projections/journal.ts';
import { startProjections, type Projections } from '../../actors/projections/projections.ts';
import { sessionsProjection } from '../../actors/projections/sessions.ts';
import type { Projection } from '../../actors/projections/projection.ts';
import { projectedJournal, type ProjectedJournal } from './projected.ts';
import { recorder, type Recorded } from './log.ts';
import { startNats, type NatsServer } from './nats.ts';
import { startPostgres, type PostgresServer } from './postgres.ts';

/** Milliseconds within which a projection must have caught up in a test. */
export const waitMs = 30_000;

/** Calls back with the log's lines, and resolves when one fits. */
export class Lines {
  readonly #waits = new Set<{ readonly fits: (line: Recorded) => boolean; readonly resolve: (line: Recorded) => void }>();
  readonly log = recorder((line) => {
    for (const wait of this.#waits) {
      if (!wait.fits(line)) continue;
      this.#waits.delete(wait);
      wait.resolve(line);
    }
  });
  next(fits: (line: Recorded) => boolean): Promise<Recorded> {
    return new Promise((resolve) => this.#waits.add({ fits, resolve }));
  }
  /** Said already or to come: a runner is in this state. */
  state(name: string): Promise<Recorded> {
    const fits = ({ fields }: Recorded): boolean => typeof fields === 'object' && fields !== null && 'state' in fields && fields.state === name;
    const said = this.log.lines.find(fits);
    return said === undefined ? this.next(fits) : Promise.resolve(said);
  }
}

export interface Bench {
  readonly url: string;
  readonly sql: postgres.Sql;
  readonly journal: ProjectedJournal;
  start(options?: { readonly url?: string; readonly host?: string; readonly source?: JournalSource; readonly projection?: (real: Projection) => Projection }): { readonly projections: Projections; readonly lines: Lines };
  /** Every row, without what is not the journal's. */
  rows(): Promise<Record<string, unknown>[]>;
  /** What the rows must say of each written session. */
  requireRows(): Promise<void>;
}

const makeBench = async (t: TestContext, { nats, server, name }: { readonly nats: NatsServer; readonly server: PostgresServer; readonly name: string }): Promise<Bench> => {
  const root = postgres(server.url, { max: 1 });
  await root.unsafe(`create database ${name}`);
  await root.end();
  const url = server.url.replace(/\/[^/]*$/, `/${name}`);
  const sql = postgres(url, { max: 2, onnotice: () => undefined, backoff: () => 0.05 });
  const started: Projections[] = [];
  const nc: NatsConnection = await connect({ servers: nats.url });
  // A journal of its own: streams are one a server, so the old ones go.
  for (const stream of ['JOURNAL_0', 'JOURNAL_1']) await nc.request(`$JS.API.STREAM.DELETE.${stream}`, '');
  const journal = await projectedJournal(nc);
  t.after(async () => {
    await Promise.all(started.map((projections) => projections.close()));
    journal.close();
    await nc.close();
    await sql.end({ timeout: 1 });
  });
  const rows = async (): Promise<Record<string, unknown>[]> => [...await sql`select * from troupe.sessions order by org, sid`];
  return {
    url, sql, journal, rows,
    start: ({ url: at = url, host = 'h', source = journal.source, projection = (real: Projection): Projection => real } = {}) => {
      const lines = new Lines();
      const projections = startProjections({
        postgresUrl: at, source, host, log: lines.log,
        projections: [projection(sessionsProjection({ upcast: (event) => event.d, onBroken: ({ seq }) => lines.log.error({ seq }, 'broken') }))],
      });
      started.push(projections);
      return { projections, lines };
    },
    requireRows: async () => {
      const found = new Map((await rows()).map((row) => [`${String(row['org'])}/${String(row['sid'])}`, row]));
      assert.equal(found.size, journal.sessions.length);
      for (const session of journal.sessions) {
        const row = found.get(`${session.org}/${session.sid}`);
        assert.ok(row, session.sid);
        assert.deepEqual(
          [row['user_id'], row['turns'], row['input_tokens'], row['cost_cents'], row['state']],
          [session.user, String(session.turns), String(session.inputTokens), String(session.cents), 'idle'], session.sid,
        );
      }
    },
  };
};

/** Writes sessions of three users, each with some turns. */
export const write = async ({ journal }: Bench, sessions: number, turns: number): Promise<void> => {
  for (let s = 0; s < sessions; s++) {
    const session = await journal.create(`user-${s % 3}`);
    for (let i = 0; i < turns; i++) await journal.turn(session);
  }
};

export const codeOf = (error: unknown): string => (error instanceof CodedError ? error.code : String(error));

export interface Benches {
  readonly nats: NatsServer;
  readonly server: PostgresServer;
  /** A database and a journal of the test's own. */
  bench(t: TestContext): Promise<Bench>;
}

/** Starts the servers before a file's tests and stops them after. */
export const benches = (): Benches => {
  let nats: NatsServer | undefined;
  let server: PostgresServer | undefined;
  let databases = 0;
  before(async () => { [nats, server] = await Promise.all([startNats(), startPostgres()]); });
  after(async () => { await Promise.all([nats?.stop(), server?.stop()]); });
  const started = <T>(one: T | undefined): T => {
    assert.ok(one !== undefined, 'the servers are started by the file\'s before hook');
    return one;
  };
  return {
    get nats() { return started(nats); },
    get server() { return started(server); },
    bench: (t) => {
      databases += 1;
      return makeBench(t, { nats: started(nats), server: started(server), name: `t${databases}` });
    },
  };
};
