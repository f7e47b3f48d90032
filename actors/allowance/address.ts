/**
 * Where an allowance is counted, and under which limits. The one place that builds these addresses.
 *
 * Guarantee: no address of a person and no device code stands in a key: what an endpoint counts by is there as SHA-256 (hex) only.
 */
import { createHash } from 'node:crypto';
import { limits } from '../../contracts/limits.ts';
import type { PlanLimits } from '../../contracts/organization.ts';

/** What is counted, and how much of it may pass; -1 = unlimited. */
export interface Allowance {
  readonly org: string;
  readonly key: string;
  readonly perMinute: number;
  readonly perDay: number;
}

/**
 * Chat requests of an organization, or of a person's own workspace (interface 8.1). `org`: its org token (`org_…`, `u-<userId>`);
 * `plan`: the limits in force now (`planLimitsOf`, or as the organization's `authorise` answers).
 */
export const planAllowance = (org: string, plan: Pick<PlanLimits, 'perMinute' | 'perDay'>): Allowance =>
  ({ org, key: 'plan', perMinute: plan.perMinute, perDay: plan.perDay });

const perMinute = { 'device-code': limits.deviceCodesPerMinuteMax, 'device-poll': limits.devicePollsPerMinuteMax, refresh: limits.refreshesPerMinuteMax } as const;

/**
 * Requests of an endpoint by what it counts them by (interface 8.2; decisions, Device flow and tokens): `device-code` and `refresh` by
 * the remote address, `device-poll` by the device code and the remote address.
 */
export const endpointAllowance = (endpoint: keyof typeof perMinute, ...by: readonly string[]): Allowance => ({
  org: 'platform',
  key: `${endpoint}:${createHash('sha256').update(JSON.stringify(by)).digest('hex')}`,
  perMinute: perMinute[endpoint],
  perDay: -1,
});
