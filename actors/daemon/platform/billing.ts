/**
 * Usage, tier and the balance that a turn needs (interface 2.11, 2.12, 4.5; decisions, Billing).
 *
 * Guarantees: usage holds every turn that had ended before the question, or is refused with `upstream_unavailable`. Plan and role are
 * the organization actor's word of this moment, the balance is the wallet's.
 */
import { periodStartMs } from '../../../contracts/billing.ts';
import { billingRoutes as routes } from '../../../contracts/billing-routes.ts';
import { coded, CodedError } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { organizationAddress } from '../../../contracts/organization-routes.ts';
import { organizationCommands, type PlanLimits, type PlanName } from '../../../contracts/organization.ts';
import { allows, scopesAllow, type Permission } from '../../../contracts/permissions.ts';
import { byOf, type Caller, type RequestContext } from '../../../contracts/platform.ts';
import { paymentsCommands } from '../../../contracts/payments.ts';
import { plans, upgradeUrl } from '../../../contracts/plans.ts';
import { walletCommands, type Balance } from '../../../contracts/wallet.ts';
import { paymentsAddress } from '../../payments/address.ts';
import { membershipsOf } from '../../projections/organizations.ts';
import { readUsage, usageProjections } from '../../projections/usage.ts';
import { walletAddress } from '../../wallet/address.ts';
import { askBy } from './ask.ts';
import { current } from './audit.ts';
import type { PlatformDeps } from './deps.ts';
import { forCaller, type PlatformHandler } from './serve.ts';
import { queryOf } from './typed.ts';

/** The balance of a payer's wallet. `org`: an organization's id or `u-<userId>`. */
const createBalances = ({ actors }: Pick<PlatformDeps, 'actors'>): ((org: string, monthly: number) => Promise<Balance>) => {
  const ask = askBy(actors, walletCommands);
  return async (org, monthly) => {
    const wallet = walletAddress(org);
    if (wallet === undefined) throw new TypeError('a payer that is not ours has no wallet');
    return ask(wallet, 'balance', { monthly });
  };
};

/**
 * Passes if a payer may begin a turn: its balance is positive. `credits` of the plan as it is now. Throws `credits_exhausted` with
 * {remaining, monthly, resetsAt, upgradeUrl} (ERR-009, BIL-021, BIL-023).
 */
export const createRequireCredits = (deps: Pick<PlatformDeps, 'actors'>): ((org: string, plan: Pick<PlanLimits, 'credits'>) => Promise<void>) => {
  const balanceOf = createBalances(deps);
  return async (org, { credits }) => {
    const { remaining, monthly, period_end: end } = await balanceOf(org, credits);
    if (remaining > 0) return;
    throw coded('credits_exhausted', undefined, { details: { remaining, monthly, resetsAt: new Date(end).toISOString(), upgradeUrl } });
  };
};

/** What is known of the organization that a caller's tier is of. */
interface Primary {
  readonly id: string;
  readonly plan: PlanName;
  readonly limits: PlanLimits;
  readonly managesBilling: boolean;
}

export const billingHandlers = (deps: Pick<PlatformDeps, 'actors' | 'projections' | 'now'>): Readonly<Record<string, PlatformHandler>> => {
  const { projections, now } = deps;
  const ask = askBy(deps.actors, organizationCommands);
  const askPayments = askBy(deps.actors, paymentsCommands);
  const balanceOf = createBalances(deps);

  const standing = async (caller: Caller, context: RequestContext, id: string, permission: Permission): Promise<Primary> => {
    const { role, plan, limits: plan_limits } = await ask(organizationAddress(id), 'authorise', { permission, by: byOf(caller, context) });
    const managesBilling = caller.kind === 'key' ? scopesAllow(caller.scopes, 'billing.portal') : role !== null && allows(role, 'billing.portal');
    return { id, plan, limits: plan_limits, managesBilling };
  };

  /** A person's oldest organization; undefined if they have none. */
  const primaryOf = async (caller: Extract<Caller, { kind: 'user' }>, context: RequestContext): Promise<Primary | undefined> => {
    await current(deps, 'organizations', undefined);
    for (const { id } of await membershipsOf(projections, caller.userId, limits.tokenOrgsMax)) {
      try {
        return await standing(caller, context, id, 'org.read');
      } catch (error) {
        // Ended since the rows were read.
        if (!(error instanceof CodedError) || error.code !== 'not_found') throw error;
      }
    }
    return undefined;
  };

  return {
    [routes.usage.id]: forCaller(async (request) => {
      const { caller, context } = request;
      const { period } = queryOf(routes.usage, request);
      const payer = caller.kind === 'key' ? (await standing(caller, context, caller.organizationId, 'usage.read')).id : undefined;
      await Promise.all(Object.values(usageProjections).map(async (name) => current(deps, name, payer)));
      const at = now();
      const from = new Date(periodStartMs(period, at));
      const byModel = await projections.read((sql) => readUsage(sql, caller.kind === 'user' ? { userId: caller.userId } : { org: caller.organizationId }, from));
      const total = (of: 'costCents' | 'inputTokens' | 'outputTokens'): number => byModel.reduce((sum, model) => sum + model[of], 0);
      return {
        status: 200,
        body: {
          totalCostCents: total('costCents'), totalInputTokens: total('inputTokens'), totalOutputTokens: total('outputTokens'), byModel,
          periodStart: from.toISOString(), periodEnd: new Date(at).toISOString(),
        },
      };
    }),
    [routes.tier.id]: forCaller(async ({ caller, context }) => {
      const primary = caller.kind === 'key' ? await standing(caller, context, caller.organizationId, 'usage.read') : await primaryOf(caller, context);
      const { plan, limits: of } = primary ?? { plan: 'free' as const, limits: plans.free.limits };
      const { maxApiKeys, maxMembers, credits: monthly } = of;
      const remaining = primary === undefined ? 0 : (await balanceOf(primary.id, monthly)).remaining;
      return {
        status: 200,
        body: {
          plan, organizationId: primary?.id ?? null,
          hasStripeCustomer: primary !== undefined && (await askPayments(paymentsAddress(primary.id), 'describe', {})).customer !== null, canManageBilling: primary?.managesBilling ?? false,
          features: [...plans[plan].features], limits: { maxApiKeys, maxMembers }, credits: { remaining, monthly }, upgradeUrl,
        },
      };
    }),
  };
};
