/** The edge's routes as the listener serves them: each request through the pipeline of route.ts. */
import { routeList } from '../contracts/routes.ts';
import type { Endpoint } from './endpoint.ts';
import type { Admitted } from './gate.ts';
import type { Pipeline } from './route.ts';

export const edgeEndpoints = (pipeline: Pipeline): readonly Endpoint[] => routeList.filter((route) => route.serve.by !== 'stream').map((route) => ({
  surface: 'edge', method: route.method, path: route.path, takesBody: route.body !== undefined, bodyMaxBytes: route.bodyMaxBytes,
  begin: (head) => {
    let caller: Admitted | undefined;
    return {
      admit: (held) => {
        const enter = (admitted: Admitted): void => {
          if (route.body === 'raw' && admitted.kind === 'tier1') held.upload(admitted.identity.sub);
          caller = admitted;
        };
        const admitted = pipeline.admit(route, head.address, head.header('authorization'));
        return admitted instanceof Promise ? admitted.then(enter) : enter(admitted);
      },
      serve: async (body, signal) => {
        if (caller === undefined) throw new TypeError('A request was served before it was admitted.');
        const answer = await pipeline.serve(route, caller, body, head.query, signal);
        pipeline.count(route.id, answer.status);
        return answer;
      },
      refuse: (error) => pipeline.refuse(route.id, error),
    };
  },
}));
