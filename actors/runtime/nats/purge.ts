/** Erases messages of a stream by subject, for good. A filter may hold wildcards. Repeating it is safe. */
import { coded } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { apiError } from './ack.ts';
import type { Lean } from './lean.ts';
import { untilAnswered } from './retry.ts';

interface PurgeAnswer {
  readonly purged?: number;
}

/** Gives how many messages went. `upTo`: the last sequence that goes; default all. Throws `journal_unavailable`, also when the server refuses. */
export const purge = (lean: Lean, stream: string, filter: string, upTo?: number): Promise<number> =>
  untilAnswered(limits.appendAckMs * 3, limits.appendAckMs, async (timeoutMs) => {
    const message = await lean.request(`$JS.API.STREAM.PURGE.${stream}`, JSON.stringify({ filter, ...(upTo === undefined ? {} : { seq: upTo + 1 }) }), { timeoutMs });
    const answer: unknown = JSON.parse(message.string());
    const error = apiError(answer);
    if (error?.code === 503) throw coded('no_owner', error.description);
    if (error !== undefined) throw coded('journal_unavailable', `The stream ${stream} refused a purge: ${error.description}.`);
    return (answer as PurgeAnswer).purged ?? 0;
  });
