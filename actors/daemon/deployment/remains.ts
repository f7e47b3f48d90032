/**
 * What a deployment has besides its own actor: sessions with their branches, client streams, its agent's memory, knowledge, regulation, blobs. Found, put down, erased.
 *
 * Guarantees: an actor belongs to the deployment whose id its key is made of, which its journal's own words prove; nothing is erased on a
 * guess. What is erased is gone from the streams, not marked; whoever still runs such an actor is fenced at its next commit. Safe to repeat at
 * any point. Costs a read of the first commits of each session and stream of the organization: done when a deployment ends or is restarted.
 */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { streamSeed } from '../../../contracts/deployment.ts';
import { coded } from '../../../contracts/errors.ts';
import type { Commit, StoredEvent } from '../../../contracts/event.ts';
import {
  blobStream, blobSubjects, deadLetterSubject, inboxSubject, journalSubject, parseStateSubject, partitionOf, reminderSubject, snapshotSubject, storedOf, streams,
  type ActorAddress,
} from '../../../contracts/subjects.ts';
import type { DeploymentDeps } from '../../deployment/work.ts';
import type { Projections } from '../../projections/projections.ts';
import { deleteDeploymentSessions } from '../../projections/sessions.ts';
import type { Sender } from '../../runtime/message.ts';
import type { Lean } from '../../runtime/nats/lean.ts';
import { purge } from '../../runtime/nats/purge.ts';
import { leaderNext } from '../../runtime/nats/read.ts';
import { subjectsOf } from '../../runtime/nats/subjects.ts';
import { passivateCommand } from '../../runtime/passivate.ts';

export interface RemainsOptions {
  readonly lean: Lean;
  readonly journalStreams: number;
  readonly partitions: number;
  readonly projections: () => Pick<Projections, 'read'> | undefined;
  /** There once the host is. */
  readonly actors: () => Pick<Sender, 'ask'> | undefined;
}

const created = z.object({ deployment: z.object({ id: z.string() }) });
const appended = z.object({ stream_id: z.string() });
const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** True or false once an event says whose the actor is; undefined for one that does not. */
type Telling = (event: StoredEvent, address: ActorAddress, deploymentId: string) => boolean | undefined;

/** Actor types of which a deployment may have any number. */
const many: Readonly<Record<'session' | 'stream', Telling>> = {
  session: ({ k, d }, _address, id) => (k === 'SessionCreated' || k === 'BranchCreated' ? created.safeParse(d).data?.deployment.id === id : undefined),
  stream: ({ k, d }, { key }, id) => {
    if (k !== 'Appended') return undefined;
    const of = appended.safeParse(d);
    return of.success && sha256(streamSeed(id, of.data.stream_id)) === key;
  },
};
/** Of which it has one: under its own id, and its agent's memory under the agent's. */
const known = ({ org, key }: ActorAddress, agentId: string): readonly ActorAddress[] =>
  [{ org, type: 'knowledge', key }, { org, type: 'regulation', key }, { org, type: 'agent', key: agentId }];

/** Commits at the start of a journal among which the telling one must be (others: epochs of activations that ended before it). */
const tellingCommitsMax = 16;
/** Actors that are asked at once to be put down. */
const askedAtOnce = 32;

export const createRemains = ({ lean, journalStreams, partitions, actors, projections }: RemainsOptions): DeploymentDeps => {
  const goOn = (signal: AbortSignal): void => {
    if (signal.aborted) throw coded('aborted');
  };

  const belongs = async (telling: Telling, stream: string, subject: string, address: ActorAddress, id: string): Promise<boolean> => {
    let from = 1;
    for (let looked = 0; looked < tellingCommitsMax; looked++) {
      const message = await leaderNext(lean, stream, subject, from);
      if (message === undefined) return false;
      const { ev } = JSON.parse(Buffer.from(message.data).toString('utf8')) as Commit;
      for (const event of ev) {
        const told = telling(event, address, id);
        if (told !== undefined) return told;
      }
      from = message.seq + 1;
    }
    return false;
  };

  /** Its sessions and streams. */
  async function* ownActors({ org, key: id }: ActorAddress, signal: AbortSignal): AsyncGenerator<ActorAddress, void, undefined> {
    for (const [type, telling] of Object.entries(many)) {
      for (let n = 0; n < journalStreams; n++) {
        const stream = streams.journal(n, journalStreams);
        for await (const subject of subjectsOf(lean, stream, storedOf(org, type).journal)) {
          goOn(signal);
          const { partition: _partition, ...address } = parseStateSubject(subject);
          if (await belongs(telling, stream, subject, address, id)) yield address;
        }
      }
    }
  }

  const eraseActor = async (address: ActorAddress): Promise<void> => {
    const n = partitionOf(address, partitions);
    await purge(lean, streams.inbox, inboxSubject(n, address, '').replace(/[^.]*$/, '*'));
    await purge(lean, streams.reminder, reminderSubject(n, address));
    await purge(lean, streams.journal(n, journalStreams), journalSubject(n, address));
    await purge(lean, streams.snapshot, snapshotSubject(n, address));
    await purge(lean, streams.deadLetter, deadLetterSubject(address, '').replace(/[^.]*$/, '*'));
  };

  return {
    restart: async (self, agentId, signal) => {
      const sender = actors();
      if (sender === undefined) throw coded('not_owner');
      let down = 0;
      let under: Promise<void>[] = [];
      const putDown = async (address: ActorAddress): Promise<void> => {
        const answer = await sender.ask({ address, command: passivateCommand, input: {}, principal: { kind: 'system' }, signal });
        if (z.object({ active: z.boolean() }).parse(answer).active) down += 1;
      };
      const settle = async (): Promise<void> => {
        const asked = under;
        under = [];
        await Promise.all(asked);
      };
      for (const address of known(self, agentId)) under.push(putDown(address));
      await settle();
      for await (const address of ownActors(self, signal)) {
        under.push(putDown(address));
        if (under.length >= askedAtOnce) await settle();
      }
      await settle();
      return down;
    },

    erase: async (self, agentId, signal) => {
      for (const address of known(self, agentId)) await eraseActor(address);
      for await (const address of ownActors(self, signal)) await eraseActor(address);
      goOn(signal);
      await purge(lean, blobStream, blobSubjects(self.org, self.key).all);
      await projections()?.read((sql) => deleteDeploymentSessions(sql, self.org, self.key));
    },
  };
};
