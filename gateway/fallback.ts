/**
 * What answers where no endpoint does: the console's files, else "not found" in the shape of the surface the path belongs to.
 *
 * Guarantee: takes from the address bucket before anything else; a path of a surface that is not served here is not found, whatever it is.
 */
import type { Surface } from '../contracts/config.ts';
import { deploymentRouteList } from '../contracts/deployment-routes.ts';
import { coded } from '../contracts/errors.ts';
import { routes } from '../contracts/routes.ts';
import type { Answer } from './answer.ts';
import type { RequestHead } from './endpoint.ts';
import type { Gate } from './gate.ts';
import type { Log } from './log.ts';
import { refusalAnswer, refusedOf } from './platform-answer.ts';
import type { Pipeline } from './route.ts';
import type { Files } from './static.ts';

export interface FallbackOptions {
  readonly gate: Gate;
  readonly pipeline: Pipeline;
  readonly files: Files;
  readonly log: Log;
}

const subjectOf = (path: string): string => path.split('/')[2] ?? '';
/** What comes after `/v1/` in deployments' routes; `/v1/agent` is the edge's. */
const subjects: ReadonlySet<string> = new Set(deploymentRouteList.map(({ path }) => subjectOf(path)).filter((subject) => subject !== 'agent'));
/** A path of the deployments' services where they are served; beside the edge, whose paths begin alike, only what they have. */
const isDeploymentPath = (path: string, serves: (surface: Surface) => boolean): boolean =>
  path.startsWith('/v1/') && serves('deployment') && (!serves('edge') || subjects.has(subjectOf(path)));
const isPlatformPath = (path: string): boolean => path === '/api' || path.startsWith('/api/') || path.startsWith('/.well-known/');
const platform = { auth: { kind: 'none' } } as const;

export const makeFallback = ({ gate, pipeline, files, log }: FallbackOptions) => (head: RequestHead, serves: (surface: Surface) => boolean): Answer => {
  const { path } = head;
  try {
    gate.takeAddress(head.address);
    if (path === routes.stream.path && serves('edge')) throw coded('bad_request', 'This address needs a WebSocket upgrade.');
    const file = serves('console') ? files.answer(head.method, path, head.header('if-none-match')) : undefined;
    if (file === undefined) throw coded('not_found');
    pipeline.count('file', file.status);
    return file;
  } catch (error) {
    if (!isPlatformPath(path) && !isDeploymentPath(path, serves)) return pipeline.refuse('none', error);
    const answer = refusalAnswer(platform, refusedOf(error, undefined, log));
    pipeline.count('none', answer.status);
    return answer;
  }
};
