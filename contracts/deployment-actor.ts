/**
 * The deployment actor's contract: what a managed deployment is, what holds its credentials, who its agent is. Org = the organization, key = the
 * deployment's id. All commands are for the daemon and other actors (access `system`); who may do what has been decided by the organization.
 *
 * Guarantee: nothing here has room for a secret in the clear. The key stands as SHA-256, the shared secret and the agent's private keys sealed
 * (actors/custody/vault.ts) under a data key of the deployment's own.
 */
import { z } from 'zod';
import { custodyKeys } from './custody.ts';
import { deploymentStatus } from './deployment.ts';
import { deploymentAgentId, deploymentId, organizationId } from './ids.ts';
import { by } from './platform.ts';

const iso = z.iso.datetime();
const sha256 = z.string().regex(/^[0-9a-f]{64}$/);

/** The agent's genesis record (decisions, Agent identity): made once, never changed. `hash` = SHA-256, hex, of the rest in canonical JSON (RFC 8785). */
export const soul = z.strictObject({ name: z.string(), purpose: z.string(), creator: z.string(), created_at: iso, hash: sha256 });
export type Soul = z.infer<typeof soul>;

export const deploymentAgent = z.strictObject({ id: deploymentAgentId, did: z.string().max(128), soul, keys: custodyKeys });
export type DeploymentAgent = z.infer<typeof deploymentAgent>;

/** As the actor gives it; its url is the daemon's to add. */
export const deploymentRecord = z.strictObject({
  id: deploymentId, organizationId, name: z.string(), status: deploymentStatus, createdAt: iso, updatedAt: iso,
  agent: z.strictObject({ id: z.string(), did: z.string() }),
});
export type DeploymentRecord = z.infer<typeof deploymentRecord>;

const key = { key_prefix: z.string().max(80), key_sha256: sha256 } as const;
const nothing = z.strictObject({});
/** AES-256-GCM, base64. */
const sealed = z.base64().max(512);

export const deploymentCommands = {
  /** Makes it, `provisioning`; it becomes `running` by itself. A place for it was reserved at the organization. `conflict` if it is there. */
  provision: {
    input: z.strictObject({ by, name: z.string(), agent: deploymentAgent, secret: sealed, ...key }),
    output: deploymentRecord,
  },
  /** `not_found` for one that was never made or whose data is erased. */
  read: { input: nothing, output: deploymentRecord },
  /** `unauthorized` for another key than the one that holds now, and for a deployment that has ended; `plan_limit` while it is stopped. */
  verify_key: { input: z.strictObject({ key_sha256: z.string().max(64) }), output: z.strictObject({ agent_id: z.string() }) },
  /** What JWTs are checked with, and signed with. `served` false: whoever proves to be somebody is refused with `plan_limit`. `unauthorized` for one that has ended. */
  credentials: { input: nothing, output: z.strictObject({ agent: deploymentAgent, secret: sealed, served: z.boolean() }) },
  restart: { input: z.strictObject({ by }), output: deploymentRecord },
  /** From this turn on the old key is refused. */
  rotate_key: { input: z.strictObject({ by, ...key }), output: deploymentRecord },
  /** From this turn on every credential is refused; data is erased durably after it. A repeat changes nothing. */
  deprovision: { input: z.strictObject({ by }), output: deploymentRecord },
  /** The organization says whether its plan has deployments. Of several, the one with the greatest `revision` (a ULID) counts. */
  plan: { input: z.strictObject({ managed: z.boolean(), revision: z.string() }), output: nothing },
  /** The organization was deleted: it erases everything itself. */
  end: { input: nothing, output: nothing },
} as const;

/** What an actor does until it is done, over any failure. */
export const deploymentWork = z.enum(['settle', 'restart', 'erase']);
export type DeploymentWork = z.infer<typeof deploymentWork>;

export const deploymentEvents = {
  DeploymentProvisioned: z.strictObject({ by, name: z.string(), agent: deploymentAgent, secret: sealed, ...key }),
  /** Its names are its own, and the organization counts it. */
  DeploymentSettled: z.strictObject({ managed: z.boolean() }),
  /** The organization has no place for it. */
  DeploymentFailed: z.strictObject({ code: z.string() }),
  RestartRequested: z.strictObject({ by }),
  DeploymentRestarted: z.strictObject({ /** Activations that were put down. */ activations: z.int() }),
  DeploymentKeyRotated: z.strictObject({ by, ...key }),
  /** Stopped while false. */
  DeploymentPlan: z.strictObject({ managed: z.boolean(), revision: z.string() }),
  /** By the organization's end: nobody. */
  DeprovisionRequested: z.strictObject({ by: by.optional() }),
  /** `due`: Unix milliseconds of the next pass; null = the last is done. */
  DeploymentErased: z.strictObject({ pass: z.int(), due: z.int().nullable() }),
  WorkStarted: z.strictObject({ work: deploymentWork }),
  /** `due`: Unix milliseconds of the next try. */
  WorkFailed: z.strictObject({ work: deploymentWork, code: z.string(), due: z.int() }),
} as const;
export type DeploymentEvents = typeof deploymentEvents;
