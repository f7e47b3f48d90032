/**
 * Sessions written straight into a real journal, and the rows they must become, counted by the writer: for tests of projections
 * without engines. Each commit is fenced as an engine's is.
 */
import { randomUUID } from 'node:crypto';
import type { NatsConnection } from 'nats';
import { encodeCommit, hashOf } from '../../actors/runtime/commit.ts';
import { createLean } from '../../actors/runtime/nats/lean.ts';
import { createNatsStores, type NatsStores } from '../../actors/runtime/nats/stores.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import { natsJournalSource, type JournalSource } from '../../actors/projections/journal.ts';
import { journalSubject, partitionOf, streams } from '../../contracts/subjects.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import type { Position } from '../../actors/projections/projection.ts';

export const plan = { partitions: 8, journalStreams: 2, replicas: 1 } as const;

export interface WrittenSession {
  readonly org: string;
  readonly sid: string;
  readonly user: string;
  turns: number;
  inputTokens: number;
  cents: number;
  /** Of its last commit. */
  position: Position;
}

export interface ProjectedJournal {
  readonly source: JournalSource;
  readonly stores: NatsStores;
  readonly sessions: readonly WrittenSession[];
  create(user: string, options?: { readonly org?: string; readonly label?: string; readonly atMs?: number }): Promise<WrittenSession>;
  /** A whole turn in two commits. */
  turn(session: WrittenSession): Promise<void>;
  /** Commits events as they are. */
  commit(session: WrittenSession, events: readonly Pick<StoredEvent, 'k' | 'd' | 'v'>[]): Promise<void>;
  /** Bytes that are no commit. */
  spoil(session: WrittenSession): Promise<void>;
  close(): void;
}

/** Streams are made where they are missing. */
export const projectedJournal = async (nc: NatsConnection): Promise<ProjectedJournal> => {
  await ensureStreams(nc, plan);
  const stores = createNatsStores(nc, plan);
  const reading = createLean(nc);
  const sessions: WrittenSession[] = [];
  const last = new Map<string, { seq: number; hash: string; number: number }>();
  let clockMs = 1_700_000_000_000;

  const append = async (session: Pick<WrittenSession, 'org' | 'sid'>, data: Uint8Array, events: number): Promise<Position> => {
    const address = { org: session.org, type: 'session', key: session.sid };
    const n = partitionOf(address, plan.partitions);
    const subject = journalSubject(n, address);
    const before = last.get(subject) ?? { seq: 0, hash: '', number: 0 };
    const seq = await stores.journal.append(subject, data, before.seq);
    last.set(subject, { seq, hash: hashOf(data), number: before.number + events });
    return { stream: streams.journal(n, plan.journalStreams), seq };
  };
  const commitAt = async (session: Pick<WrittenSession, 'org' | 'sid'>, events: readonly Pick<StoredEvent, 'k' | 'd' | 'v'>[], atMs: number): Promise<Position> => {
    const address = { org: session.org, type: 'session', key: session.sid };
    const before = last.get(journalSubject(partitionOf(address, plan.partitions), address)) ?? { seq: 0, hash: '', number: 0 };
    return append(session, encodeCommit({
      v: 1, e: 1, n: before.number + 1, f: 1, c: 0, m: 0, p: before.seq, h: before.hash, t: atMs,
      ev: events.map((event) => ({ id: randomUUID(), ...event })),
    }), events.length);
  };

  const journal: ProjectedJournal = {
    source: natsJournalSource(reading, plan.journalStreams), stores, sessions,
    create: async (user, { org = `u-${user}`, label, atMs = clockMs += 1_000 } = {}) => {
      const sid = randomUUID().replaceAll('-', '').slice(0, 26);
      const position = await commitAt({ org, sid }, [{ k: '$epoch', d: { host: 'h' } }, { k: 'SessionCreated', d: {
        user_id: user, project_id: 'p', label: label ?? null, model: 'mock', agent_id: `agent-${sid}`, created_at_unix: Math.floor(atMs / 1_000),
      } }], atMs);
      const session = { org, sid, user, turns: 0, inputTokens: 0, cents: 0, position };
      sessions.push(session);
      return session;
    },
    turn: async (session) => {
      const runId = randomUUID();
      await journal.commit(session, [
        { k: 'UserMessage', d: { content: 'hi', user_id: session.user } }, { k: 'RunStarted', d: { run_id: runId } },
        { k: 'StepStarted', d: { run_id: runId, step: 0, effect_id: 'e' } }, { k: 'TextDelta', d: { text: 'yes', run_id: runId, step: 0 } },
      ]);
      session.turns += 1;
      session.inputTokens += 7;
      session.cents += 2;
      await journal.commit(session, [{ k: 'RunFinished', d: { finish_reason: 'stop', usage: { input_tokens: 7, output_tokens: 3, cost_cents: 2 }, run_id: runId } }]);
    },
    commit: async (session, events) => { session.position = await commitAt(session, events, clockMs += 1_000); },
    spoil: async (session) => { session.position = await append(session, Buffer.from('not a commit'), 0); },
    close: () => { reading.close(); stores.lean.close(); },
  };
  return journal;
};
