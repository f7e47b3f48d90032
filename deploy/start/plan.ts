/**
 * Puts the development organization on a plan, as an operator does by hand (no payment processor is configured in development): a command to its
 * actor over NATS, with the daemon's own credentials, which alone may speak as the system.
 */
import { connect, NoRespondersError, RequestError } from 'nats';
import { setTimeout as pause } from 'node:timers/promises';
import { limits } from '../../contracts/limits.ts';
import type { PlanName } from '../../contracts/organization.ts';
import { ownerSubject, partitionOf, type ActorAddress } from '../../contracts/subjects.ts';

export interface NatsAccess {
  readonly url: string;
  readonly user?: string | undefined;
  readonly password?: string | undefined;
}

/** Milliseconds between two tries while nobody owns the organization's partition yet. */
const retryMs = 100;

/** Throws a sentence when it was refused, or nobody answered within `limits.askDeadlineMs`. */
export const setPlan = async (nats: NatsAccess, organizationId: string, plan: PlanName): Promise<void> => {
  const address: ActorAddress = { org: organizationId, type: 'organization', key: organizationId };
  const nc = await connect({ servers: nats.url, reconnect: false, ...(nats.user === undefined ? {} : { user: nats.user, pass: nats.password ?? '' }) });
  try {
    const endAt = performance.now() + limits.askDeadlineMs;
    const request = JSON.stringify({ input: { plan, reason: 'npm start' }, principal: { kind: 'system' }, deadlineMs: limits.askDeadlineMs });
    for (;;) {
      try {
        const answer = await nc.request(ownerSubject(partitionOf(address, limits.partitions), address, 'set_plan'), request, { timeout: limits.askDeadlineMs });
        const code = answer.headers?.get('Nats-Service-Error-Code') ?? '';
        if (code !== '') throw new Error(`the plan was refused: ${code} ${answer.headers?.get('Nats-Service-Error') ?? ''}`);
        return;
      } catch (error) {
        const cause = error instanceof RequestError ? error.cause : error;
        if (!(cause instanceof NoRespondersError) || performance.now() > endAt) throw error;
        await pause(retryMs);
      }
    }
  } finally {
    await nc.close();
  }
};
