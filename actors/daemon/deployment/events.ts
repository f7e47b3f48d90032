/** Handlers of a session's events, and of what a client may say about a running turn: allow or deny a tool call, cancel. */
import type { z } from 'zod';
import { coded } from '../../../contracts/errors.ts';
import type { EventEnvelope } from '../../../contracts/event.ts';
import { clientSessionId } from '../../../contracts/deployment.ts';
import { limits } from '../../../contracts/limits.ts';
import { runtimeRoutes } from '../../../contracts/runtime-routes.ts';
import { sessionCommands } from '../../../contracts/session.ts';
import type { Upcast } from '../frames.ts';
import { askBy } from '../platform/ask.ts';
import { commitsAfter, type JournalSource } from './after.ts';
import { resolveBranch, type SessionBranch } from './branch.ts';
import type { DeploymentDeps, DeploymentHandlers, DeploymentRequest } from './deps.ts';
import { clientEvents, envelopeOf, type SessionEvent } from './envelope.ts';

export type EventsDeps = Pick<DeploymentDeps, 'actors' | 'tails' | 'upcast'>;

/** What clients see of a branch after an event (empty = from its beginning), up to now: its past first. Throws `journal_unavailable`, `journal_unreadable`. */
export async function* branchEvents(source: JournalSource, { address, past }: Pick<SessionBranch, 'address' | 'past'>, after: string): AsyncGenerator<SessionEvent, void, undefined> {
  for (const of of past) {
    if (of.upTo <= after) continue;
    for await (const seen of journalEvents(source, of.address, after)) {
      if (seen.event.id > of.upTo) break;
      yield { ...seen, of };
    }
  }
  yield* journalEvents(source, address, after);
}

/** Of one journal alone. */
export async function* journalEvents(source: JournalSource, address: SessionBranch['address'], after: string): AsyncGenerator<SessionEvent, void, undefined> {
  for await (const commit of commitsAfter(source, address, after)) {
    for (const seen of clientEvents(commit)) if (seen.event.id > after) yield seen;
  }
}

/** A page of a branch's events: at most `limit`, fewer where they are long. */
export const readPage = async (source: JournalSource, branch: SessionBranch, upcast: Upcast, { after, limit }: { readonly after: string; readonly limit: number }): Promise<readonly EventEnvelope[]> => {
  const events: EventEnvelope[] = [];
  let bytes = 0;
  for await (const seen of branchEvents(source, branch, after)) {
    const envelope = envelopeOf(seen, branch, upcast);
    bytes += Buffer.byteLength(JSON.stringify(envelope));
    if (events.length > 0 && bytes > limits.sessionEventsMaxBytes) break;
    events.push(envelope);
    if (events.length >= limit) break;
  }
  return events;
};

/** The session that the path names first. What can be no name of a session names none. */
export const sessionOf = ({ context }: DeploymentRequest): string => {
  const name = clientSessionId.safeParse(context.params?.[0]);
  if (!name.success) throw coded('session_not_found');
  return name.data;
};

export const eventHandlers = ({ actors, tails, upcast }: EventsDeps): DeploymentHandlers => {
  const ask = askBy(actors, sessionCommands);
  return {
    plain: {
      [runtimeRoutes.runtime_events.id]: async (request) => {
        const { after = '', limit = limits.sessionEventsUsual, branch } = request.query as z.output<NonNullable<typeof runtimeRoutes.runtime_events.query>>;
        const of = await resolveBranch(tails, request.caller, sessionOf(request), branch);
        return { status: 200, body: { events: await readPage(tails, of, upcast, { after, limit }) } };
      },
      [runtimeRoutes.runtime_decide.id]: async (request) => {
        const { dispatch_id, approved, branch } = request.body as z.output<NonNullable<typeof runtimeRoutes.runtime_decide.body>>;
        const { address } = await resolveBranch(tails, request.caller, sessionOf(request), branch);
        const { known } = await ask(address, approved ? 'approve' : 'cancel', { user_id: request.caller.subject, dispatch_id }, 'once');
        if (!known) throw coded('approval_unknown');
        return { status: 200, body: { dispatch_id, approved } };
      },
      [runtimeRoutes.runtime_cancel.id]: async (request) => {
        const { branch } = request.body as z.output<NonNullable<typeof runtimeRoutes.runtime_cancel.body>>;
        const { address } = await resolveBranch(tails, request.caller, sessionOf(request), branch);
        const { known } = await ask(address, 'cancel', { user_id: request.caller.subject, dispatch_id: '' }, 'once');
        return { status: 200, body: { cancelled: known } };
      },
    },
  };
};
