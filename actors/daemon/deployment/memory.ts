/** Handlers of a session's memories: the session's actor journals and keeps them (actors/session/converse.ts). */
import type { z } from 'zod';
import { memoryRoutes } from '../../../contracts/memory-routes.ts';
import { sessionCommands } from '../../../contracts/session.ts';
import { askBy } from '../platform/ask.ts';
import { resolveBranch } from './branch.ts';
import type { DeploymentDeps, DeploymentHandlers } from './deps.ts';

export const memoryHandlers = ({ actors, tails, registry }: Pick<DeploymentDeps, 'actors' | 'tails' | 'registry'>): DeploymentHandlers => {
  const ask = askBy(actors, sessionCommands);
  return {
    plain: {
      [memoryRoutes.memory_store.id]: async ({ caller, body }) => {
        const { session_id, branch: name, ...memory } = body as z.output<NonNullable<typeof memoryRoutes.memory_store.body>>;
        const { address, branch } = await resolveBranch(tails, caller, session_id, name, true);
        const { id, fact, source, relevance } = await ask(address, 'remember', {
          ...memory, session: { deployment: { id: caller.deploymentId, session_id, branch }, agent_id: caller.agentId, user_id: caller.subject, model: registry.defaultModel },
        }, 'once');
        return { status: 201, body: { id, session_id, fact, source, relevance } };
      },
      [memoryRoutes.memory_list.id]: async ({ caller, query }) => {
        const { session_id, branch } = query as z.output<NonNullable<typeof memoryRoutes.memory_list.query>>;
        const { address } = await resolveBranch(tails, caller, session_id, branch);
        const { memories } = await ask(address, 'memories', {});
        return { status: 200, body: { session_id, count: memories.length, memories: memories.map(({ at, ...memory }) => ({ ...memory, timestamp: at })) } };
      },
    },
  };
};
