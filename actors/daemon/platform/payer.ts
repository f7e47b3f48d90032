/**
 * Who pays for a chat request and under which limits (interface 8.1; LIM-006, LIM-007; RBAC-007, KEY-012).
 *
 * An API key is its organization's. A person chooses with the header `Troupe-Organization` (an id, or `personal`); without it, it is their
 * oldest membership, or their own workspace if they have none. The organization's actor says, each time, whether the caller may chat there
 * and what its plan allows; which membership is the oldest is read from Postgres and remembered for `limits.payersKnownMs`, a hint: one that
 * has just ended is passed over.
 */
import { LRUCache } from 'lru-cache';
import { chatHeaders } from '../../../contracts/chat.ts';
import { coded, CodedError } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { organizationAddress, organizationReached } from '../../../contracts/organization-routes.ts';
import { organizationCommands, type PlanLimits } from '../../../contracts/organization.ts';
import { byOf, type Caller, type RequestContext } from '../../../contracts/platform.ts';
import { planLimitsOf } from '../../../contracts/plans.ts';
import { membershipsOf } from '../../projections/organizations.ts';
import { askBy } from './ask.ts';
import type { PlatformDeps } from './deps.ts';

export interface Payer {
  /** Org token: `org_…`, or `u-<userId>` of a person's own workspace. */
  readonly org: string;
  readonly limits: PlanLimits;
  /** The model its organization has chosen; undefined for a person's own workspace. */
  readonly defaultModel?: string;
}

const personal = 'personal';

/**
 * A person's memberships, the oldest first. Only who seems to have none is looked for again in what was journaled until now: a newer one would
 * not be the oldest. When that does not come in time, there is none.
 */
const membershipsNow = async (projections: PlatformDeps['projections'], userId: string): Promise<readonly { readonly id: string }[]> => {
  const read = (): Promise<readonly { readonly id: string }[]> => membershipsOf(projections, userId, limits.tokenOrgsMax);
  const known = await read();
  if (known.length > 0) return known;
  try {
    await projections.caughtUp('organizations', undefined, limits.projectionWaitMs);
  } catch (error) {
    if (error instanceof CodedError && error.code === 'deadline_exceeded') return known;
    throw error;
  }
  return read();
};

/** Throws `not_found` (no member, no such organization), `forbidden` (role or scope), `upstream_unavailable` (Postgres, where it is needed). */
export const createPayers = ({ actors, projections }: Pick<PlatformDeps, 'actors' | 'projections'>): ((caller: Caller, context: RequestContext) => Promise<Payer>) => {
  const ask = askBy(actors, organizationCommands);

  /** Oldest membership by person: a hint like the rows it was read from. */
  const known = new LRUCache<string, { readonly id: string }>({ max: limits.payersKnownMax, ttl: limits.payersKnownMs });

  const ofOrganization = async (caller: Caller, context: RequestContext, id: string): Promise<Payer> => {
    const { limits: plan, default_model: defaultModel } = await ask(organizationReached(caller, id), 'authorise', { permission: 'chat.create', by: byOf(caller, context) });
    return { org: organizationAddress(id).key, limits: plan, defaultModel };
  };
  const ofPerson = (userId: string): Payer => ({ org: `u-${userId}`, limits: planLimitsOf('free') });

  return async (caller, context) => {
    const asked = context.headers?.[chatHeaders.organization]?.trim() ?? '';
    if (caller.kind === 'key') {
      if (asked === personal) throw coded('forbidden', 'An API key has no workspace of its own.');
      return ofOrganization(caller, context, asked === '' ? caller.organizationId : asked);
    }
    if (asked === personal) return ofPerson(caller.userId);
    if (asked !== '') return ofOrganization(caller, context, asked);
    const oldest = async (memberships: readonly { readonly id: string }[]): Promise<Payer | undefined> => {
      for (const { id } of memberships) {
        try {
          const payer = await ofOrganization(caller, context, id);
          // Not again by what was remembered: the time counts from when it was read.
          if (!known.has(caller.userId)) known.set(caller.userId, { id });
          return payer;
        } catch (error) {
          if (!(error instanceof CodedError) || error.code !== 'not_found') throw error;
        }
      }
      return undefined;
    };
    // It stays the oldest until it has ended: what comes later is not older.
    const remembered = known.get(caller.userId);
    const still = remembered === undefined ? undefined : await oldest([remembered]);
    if (still !== undefined) return still;
    known.delete(caller.userId);
    return await oldest(await membershipsNow(projections, caller.userId)) ?? ofPerson(caller.userId);
  };
};
