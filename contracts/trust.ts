/**
 * Trust (interface 2.8-2.10, 4.4; decisions, Trust): scores, verifications, certifications; the certification actor's contract.
 *
 * A score is computed from facts when it is asked for and stored nowhere (actors/trust/score.ts has the curves). A certification's actor has
 * org `platform` and its id as key; who may submit and who may decide has been checked by the daemon.
 */
import { z } from 'zod';
import { limits } from './limits.ts';
import { by } from './platform.ts';

const unit = z.number().min(0).max(1);
const iso = z.iso.datetime();
/** An id of any text: one that cannot be an id is `not_found`, as an unknown one. */
const anyId = z.string().min(1).max(limits.idMaxChars);

export const trustLevel = z.enum(['unverified', 'basic', 'verified', 'trusted']);
export type TrustLevel = z.infer<typeof trustLevel>;

export const trustFactors = z.strictObject({ identity: unit, history: unit, reputation: unit, economic: unit });
export type TrustFactors = z.infer<typeof trustFactors>;

export const userScore = z.strictObject({ userId: z.string(), score: unit, level: trustLevel, factors: trustFactors, updatedAt: iso });
/** `deployedBy`: the organization's id; of an agent in a personal workspace, which only its owner sees, the workspace's (`u-<userId>`). */
export const agentScore = z.strictObject({ agentId: z.string(), score: unit, level: trustLevel, factors: trustFactors, deployedBy: z.string(), updatedAt: iso });

/** Where the TXT record of a domain's verification is: before the domain's name. */
export const domainRecordLabel = '_troupe';
const fullNameMax = 253;

/**
 * A domain's name in ASCII (another script in its `xn--` form), in lower case: at least two labels (RFC 1035 section 2.3.1), the last not all
 * digits, so that no IP address passes (RFC 1123 section 2.1); with the record's label before it at most 253 characters.
 */
export const domainName = z.string().trim().toLowerCase().max(fullNameMax)
  .regex(/^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])$/, { error: 'must be a domain name such as example.com' })
  .refine((name) => domainRecordLabel.length + 1 + name.length <= fullNameMax, { error: 'is too long' });

export const entityType = z.enum(['organization', 'agent']);
export const certType = z.enum(['platform-partner', 'agent-operator', 'security-reviewed']);
export const certificationStatus = z.enum(['pending', 'approved', 'rejected', 'revoked']);
export type CertificationStatus = z.infer<typeof certificationStatus>;
export const decision = certificationStatus.exclude(['pending']);

/** Kept with the certification as it came. */
export const evidence = z.record(z.string().max(limits.idMaxChars), z.unknown())
  .refine((value) => new TextEncoder().encode(JSON.stringify(value)).length <= limits.certificationEvidenceMaxBytes, { error: `has at most ${limits.certificationEvidenceMaxBytes} bytes as JSON` });

export const trustQueries = {
  score: z.strictObject({ userId: anyId.optional(), agentId: anyId.optional() })
    .refine(({ userId, agentId }) => userId === undefined || agentId === undefined, { error: 'either userId or agentId', path: ['agentId'] }),
} as const;

export const trustBodies = {
  verify: z.discriminatedUnion('type', [
    /** `token`: the code that was mailed to the account's address. */
    z.strictObject({ type: z.literal('email'), token: z.string().trim().min(1).max(limits.bearerMaxBytes) }),
    /** What counts is which sign-ins the account is linked to; a token adds nothing to that. */
    z.strictObject({ type: z.literal('oauth'), token: z.string().max(limits.bearerMaxBytes).optional() }),
    z.strictObject({ type: z.literal('domain'), domain: domainName }),
    z.strictObject({ type: z.literal('domain_confirm'), domain: domainName }),
  ]),
  certify: z.strictObject({ entityType, entityId: anyId, certType, evidence }),
  decide: z.strictObject({ decision, reason: z.string().max(limits.certificationReasonMaxChars).optional() }),
} as const;

export const verifyAnswer = z.strictObject({
  verified: z.boolean(), type: z.string(), newScore: unit,
  /** The record that proves the domain, for type `domain`. */
  txtRecord: z.strictObject({ name: z.string(), value: z.string() }).optional(),
});
export const certificationAnswer = z.strictObject({ certificationId: z.string(), status: certificationStatus, estimatedReview: iso });

export const certificationShown = certificationAnswer.extend({ entityType, entityId: z.string(), certType, evidence });

const certification = z.strictObject({ certification_id: z.string(), status: certificationStatus, submitted_at: z.int() });
const submitted = { entity_type: entityType, entity_id: z.string(), organization_id: z.string(), cert_type: certType, evidence, by };

export const certificationCommands = {
  /** `conflict` if the id is taken. */
  submit: { input: z.strictObject(submitted), output: certification },
  /** `not_found`; `conflict` for a move that there is not. */
  decide: { input: z.strictObject({ decision, reason: z.string().optional(), by }), output: certification },
  read: { input: z.strictObject({}), output: certification.extend({ entity_type: entityType, entity_id: z.string(), organization_id: z.string(), cert_type: certType, evidence }) },
} as const;

/** `at`: Unix milliseconds. */
export const certificationEvents = {
  CertificationSubmitted: z.strictObject({ ...submitted, at: z.int() }),
  CertificationDecided: z.strictObject({ from: certificationStatus, to: decision, reason: z.string().optional(), by, at: z.int() }),
} as const;
export type CertificationEvents = typeof certificationEvents;
