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

const endpoints = {
  'device-code': { perMinute: limits.deviceCodesPerMinuteMax, perDay: -1 },
  'device-poll': { perMinute: limits.devicePollsPerMinuteMax, perDay: -1 },
  refresh: { perMinute: limits.refreshesPerMinuteMax, perDay: -1 },
  'signin-start': { perMinute: limits.signinStartsPerMinuteMax, perDay: limits.signinStartsPerDayMax },
  'signin-callback': { perMinute: limits.signinCallbacksPerMinuteMax, perDay: -1 },
  'domain-look': { perMinute: limits.domainLooksPerMinuteMax, perDay: limits.domainLooksPerDayMax },
  certify: { perMinute: limits.certificationsPerMinuteMax, perDay: limits.certificationsPerDayMax },
  invited: { perMinute: -1, perDay: limits.invitationsOfAddressPerDayMax },
  'signin-try': { perMinute: limits.signinTriesPerMinuteMax, perDay: limits.signinTriesPerDayMax },
} as const;

/**
 * Requests of an endpoint by what it counts them by (interface 8.2; decisions, Device flow and tokens): `device-poll` by the device code and
 * the remote address, `domain-look` by the person, `certify` by the organization, `invited` by the invited e-mail address, all others by the remote address.
 */
export const endpointAllowance = (endpoint: keyof typeof endpoints, ...by: readonly string[]): Allowance => ({
  org: 'platform',
  key: `${endpoint}:${createHash('sha256').update(JSON.stringify(by)).digest('hex')}`,
  ...endpoints[endpoint],
});
