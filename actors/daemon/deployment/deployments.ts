/**
 * The services of deployments put together: who calls (callers.ts), what answers (a table of handlers per subject), and the console's way in.
 *
 * A subject is one file that gives its handlers by route id; two tables with one id are a bug, found at start.
 */
import type { DeploymentRoute } from '../../../contracts/deployment.ts';
import type { Vault } from '../../custody/vault.ts';
import type { Answer, Call } from '../link-call.ts';
import type { AnswerStreams } from '../platform/stream-serve.ts';
import { agentTokenHandlers } from './agent-token.ts';
import { blobHandlers } from './blobs.ts';
import { branchHandlers } from './branches.ts';
import { createDeploymentCallers, deploymentOfAgent } from './callers.ts';
import { consoleHandlers, type ConsoleHandlers } from './console.ts';
import type { DeploymentDeps, DeploymentHandlers } from './deps.ts';
import { journalHandlers } from './journal.ts';
import { createIndexing, createMarkdownIndexing, knowledgeHandlers } from './knowledge.ts';
import { chatHandlers } from './chat.ts';
import { eventHandlers } from './events.ts';
import { memoryHandlers } from './memory.ts';
import { regulationHandlers } from './regulation.ts';
import { createDeploymentServe, createDeploymentStreams } from './serve.ts';
import { sessionHandlers } from './sessions.ts';

export interface DeploymentsOptions extends DeploymentDeps {
  readonly vault: Vault;
  /** Of `deployments.default_id`. */
  readonly defaultId: string | undefined;
}

export interface Deployments {
  readonly serve: (call: Call<DeploymentRoute>) => Promise<Answer>;
  readonly streams: AnswerStreams<DeploymentRoute>;
  /** For the platform's tables. */
  readonly console: ConsoleHandlers;
}

export const createDeployments = (options: DeploymentsOptions): Deployments => {
  const { actors, vault, defaultId, now, log, ...rest } = options;
  const deps: DeploymentDeps = { actors, now, log, ...rest };
  const indexMarkdown = createMarkdownIndexing(createIndexing({ ...deps, ...deps.knowledge }));
  const handlers = joined(
    agentTokenHandlers({ ...deps, vault }),
    regulationHandlers({ actors, now, deploymentOfAgent: (agentId) => deploymentOfAgent(actors, agentId) }),
    journalHandlers(deps),
    chatHandlers(deps),
    eventHandlers(deps),
    branchHandlers(deps),
    sessionHandlers(deps),
    memoryHandlers(deps),
    knowledgeHandlers({ ...deps, ...deps.knowledge }),
    blobHandlers({ ...deps, onMarkdown: async (caller, blob) => indexMarkdown(caller, blob.hash, await blob.readText(), blob.named) }),
  );
  const callers = createDeploymentCallers({ actors, vault, defaultId, now });
  return {
    serve: createDeploymentServe({ callers, handlers }),
    streams: createDeploymentStreams({ callers, handlers, log }),
    console: consoleHandlers(actors, handlers),
  };
};

const oneTable = <T>(tables: readonly (Readonly<Record<string, T>> | undefined)[]): Readonly<Record<string, T>> => {
  const entries = tables.flatMap((table) => Object.entries(table ?? {}));
  const twice = entries.find(([id], i) => entries.findIndex(([other]) => other === id) !== i);
  if (twice !== undefined) throw new TypeError(`two handlers for ${twice[0]}`);
  return Object.fromEntries(entries);
};

const joined = (...subjects: readonly DeploymentHandlers[]): Required<DeploymentHandlers> => ({
  plain: oneTable(subjects.map(({ plain }) => plain)),
  open: oneTable(subjects.map(({ open }) => open)),
  streams: oneTable(subjects.map(({ streams }) => streams)),
});
