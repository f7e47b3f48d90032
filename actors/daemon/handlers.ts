/** The daemon's own handlers of edge routes: what is neither an actor's command nor a stream. Closed: one entry a route id. */
import { z } from 'zod';
import { coded } from '../../contracts/errors.ts';
import type { Blobs } from '../blobs/blobs.ts';
import type { DaemonHandler } from './serve.ts';

const bytes = z.instanceof(Uint8Array);

export const daemonHandlers = (deps: { readonly blobs: Blobs }): Readonly<Record<string, DaemonHandler>> => ({
  /** Answers as long as the process answers; whether NATS does is a metric, not a reason to be restarted. */
  health: async () => ({ status: 200, body: 'OK' }),
  /** Stores an attachment of the caller's organization. */
  put_blob: async ({ principal, body }) => {
    if (principal === undefined) throw coded('unauthorized');
    const { hash, size } = await deps.blobs.put(principal.org, [bytes.parse(body)]);
    return { status: 201, body: { hash, size } };
  },
});
