/**
 * Which subjects a stream holds messages of (NATS ADR-1: STREAM.INFO with a subjects filter), as the stream's leader says it.
 *
 * The server answers at most 100,000 at a time, sorted by nothing we may rely on: the pages are asked for one after the other by offset, so what
 * comes or goes meanwhile may be left out or named twice. Who erases by it does so again later.
 */
import { z } from 'zod';
import { coded } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { apiError } from './ack.ts';
import type { Lean } from './lean.ts';
import { untilAnswered } from './retry.ts';

const page = z.object({ total: z.int().optional(), offset: z.int().optional(), state: z.object({ subjects: z.record(z.string(), z.int()).nullish() }) });

/** Subjects under a filter, which may hold wildcards. Throws `journal_unavailable`. */
export async function* subjectsOf(lean: Lean, stream: string, filter: string): AsyncGenerator<string, void, undefined> {
  for (let offset = 0; ;) {
    const from = offset;
    const { total = 0, state } = await untilAnswered(limits.appendAckMs * 3, limits.appendAckMs, async (timeoutMs) => {
      const message = await lean.request(`$JS.API.STREAM.INFO.${stream}`, JSON.stringify({ subjects_filter: filter, offset: from }), { timeoutMs });
      const body: unknown = JSON.parse(message.string());
      const error = apiError(body);
      if (error?.code === 503) throw coded('no_owner', error.description);
      if (error !== undefined) throw coded('journal_unavailable', `The stream ${stream} does not list its subjects: ${error.description}.`);
      return page.parse(body);
    });
    const subjects = Object.keys(state.subjects ?? {});
    yield* subjects;
    offset += subjects.length;
    if (subjects.length === 0 || offset >= total) return;
  }
}
