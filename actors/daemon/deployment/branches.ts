/** Handlers of a session's branches and of its state at any event. */
import { mainBranch } from '../../../contracts/deployment.ts';
import { branchRoutes, type SessionBranchShown } from '../../../contracts/branch-routes.ts';
import { coded } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { sessionCommands } from '../../../contracts/session.ts';
import { listBranches, type BranchRow } from '../../projections/session-list.ts';
import { askBy } from '../platform/ask.ts';
import { bodyOf, queryOf } from '../platform/typed.ts';
import { resolveBranch, sessionAddress } from './branch.ts';
import type { DeploymentDeps, DeploymentHandlers, DeploymentRequest } from './deps.ts';
import { sessionOf } from './events.ts';
import { countUpTo, findHead, findPlace } from './place.ts';
import { sessionFold, showState, stateAt } from './state.ts';

export type BranchDeps = Pick<DeploymentDeps, 'actors' | 'tails' | 'registry' | 'projections' | 'blobs'>;

export const branchHandlers = ({ actors, tails, registry, projections, blobs }: BranchDeps): DeploymentHandlers => {
  const ask = askBy(actors, sessionCommands);
  const fold = sessionFold({ registry, blobs });

  /** What was journaled before the question is among them, else it is refused. */
  const branchesOf = async ({ organizationId: org, deploymentId }: DeploymentRequest['caller'], session: string): Promise<readonly BranchRow[]> => {
    await projections.caughtUp('sessions', org, limits.projectionWaitMs);
    return projections.read((sql) => listBranches(sql, { org, deploymentId, session }));
  };

  return {
    plain: {
      [branchRoutes.branch_create.id]: async (request) => {
        const { caller } = request;
        const session = sessionOf(request);
        const { name, at, from = mainBranch, allow_effects: allowed = false } = bodyOf(branchRoutes.branch_create, request);
        const of = await resolveBranch(tails, caller, session, from);
        if (name === mainBranch) throw coded('conflict', 'The session has a branch of this name.');
        const place = at === undefined ? await findHead(tails, of) : await findPlace(tails, of, at);
        if (place.past.length >= limits.forkDepthMax) throw coded('fork_too_deep');
        const others = await branchesOf(caller, session);
        if (others.filter(({ branch }) => branch !== mainBranch).length >= limits.sessionBranchesMax) throw coded('too_many_branches');
        const count = await countUpTo(tails, place);
        const effects = allowed ? 'armed' : 'disarmed';
        const { created_at: createdAt } = await ask(sessionAddress(caller, session, name), 'branch', {
          deployment: { id: caller.deploymentId, session_id: session, branch: name }, from: place.address.key, number: place.upTo,
          past: [...place.past.map(({ branch, address, upTo, count: before }) => ({ sid: address.key, branch, at: upTo, count: before })), { sid: place.address.key, branch: place.branch, at: place.id, count }],
          user_id: caller.subject, effects,
        }, 'once');
        const made = new Date(createdAt).toISOString();
        const shown: SessionBranchShown = { id: session, branch: name, event_count: count + 1, created_at: made, last_event_at: made, from: place.branch, at: place.id, effects };
        return { status: 201, body: shown };
      },
      [branchRoutes.branch_list.id]: async (request) => {
        const session = sessionOf(request);
        await resolveBranch(tails, request.caller, session);
        return { status: 200, body: { branches: await branchesOf(request.caller, session) } };
      },
      [branchRoutes.session_state.id]: async (request) => {
        const { at, branch } = queryOf(branchRoutes.session_state, request);
        const of = await resolveBranch(tails, request.caller, sessionOf(request), branch);
        const place = at === undefined ? await findHead(tails, of) : await findPlace(tails, of, at);
        const { state, cut } = showState(await stateAt(tails, fold, place));
        return { status: 200, body: { at: place.id, branch: place.branch, number: place.number, cut, state } };
      },
    },
  };
};
