/**
 * Managed deployments (interface 1, 2.16, 4.7, 5.3; decisions, Deployment services): what one is, who calls its services, where its actors live.
 *
 * A deployment belongs to an organization and is recognised by its credential: a deployment key, a service JWT (HS256 with the shared secret) or an
 * agent JWT (EdDSA, signed with the agent's own key). Guarantee: every address of a deployment's actors is made here, from its id and the
 * caller's name for the thing, injectively; so no name from outside reaches another deployment's actors.
 */
import { z } from 'zod';
import { deploymentId, displayName, organizationId } from './ids.ts';
import { limits } from './limits.ts';
import type { ActorAddress } from './subjects.ts';
import type { PlatformRoute } from './platform.ts';

export { deploymentAgentId, deploymentId } from './ids.ts';

export const deploymentStatus = z.enum(['provisioning', 'running', 'stopped', 'degraded', 'failed', 'deprovisioning']);
export type DeploymentStatus = z.infer<typeof deploymentStatus>;

export const deploymentName = displayName;
/** What the agent is for, as its maker says: a part of its soul. May be empty. */
export const deploymentPurpose = z.string().max(limits.deploymentPurposeMaxChars).refine((text) => text.isWellFormed(), { error: 'must be well-formed Unicode' });

/** A deployment as people see it (decisions, Small print). `url`: `{deployment_url}` of its services. */
export const deployment = z.strictObject({
  id: deploymentId, organizationId, name: z.string(), status: deploymentStatus, url: z.string(),
  createdAt: z.iso.datetime(), updatedAt: z.iso.datetime(),
  /** Its agent: id and `did:key` of the Ed25519 key. */
  agent: z.strictObject({ id: z.string(), did: z.string() }),
});
export type Deployment = z.infer<typeof deployment>;

/** Who calls a deployment's services, as the daemon has verified it. */
export interface DeploymentCaller {
  readonly organizationId: string;
  readonly deploymentId: string;
  readonly agentId: string;
  /** `key` = deployment key, `service` = HS256 JWT, `agent` = EdDSA JWT, `person` = a member in the console (routes under `/api/deployments/…`). */
  readonly by: 'key' | 'service' | 'agent' | 'person';
  /** Who is metered and audited: `dep_…` for the first three, `usr_…` for a person. */
  readonly subject: string;
  /** False: may look only (a viewer in the console). */
  readonly writes: boolean;
}

/** A session's id as its client chooses it (RUN-003). */
export const clientSessionId = z.string().regex(/^[A-Za-z0-9_.-]{1,128}$/, { error: 'must be 1 to 128 of A-Z a-z 0-9 _ - and dot' });
/** A branch's name; `main` is the session itself. */
export const branchName = z.string().regex(/^[A-Za-z0-9_.-]{1,64}$/, { error: 'must be 1 to 64 of A-Z a-z 0-9 _ - and dot' });
export const mainBranch = 'main';

export const deploymentAddress = (org: string, id: string): ActorAddress => ({ org, type: 'deployment', key: id });
export const knowledgeAddress = (org: string, id: string): ActorAddress => ({ org, type: 'knowledge', key: id });
export const regulationAddress = (org: string, id: string): ActorAddress => ({ org, type: 'regulation', key: id });

/**
 * Text whose SHA-256 names a session of a deployment: its first 130 bits in base32 are the session's sid (sidPattern), so that a member can watch
 * it over the gateway's WebSocket as any other. Neither part may hold a line end, so no two triples meet.
 */
export const sessionSeed = (id: string, session: string, branch: string): string => `${id}\n${session}\n${branch}`;
/** Text whose SHA-256 names a client stream's actor. The id of a deployment has a fixed length. */
export const streamSeed = (id: string, stream: string): string => `${id}\n${stream}`;

/** A route of a deployment's services: a platform route that is told who calls by `DeploymentCaller`. Errors have the platform's envelope. */
export type DeploymentAuth = { readonly kind: 'deployment' } | { readonly kind: 'none' };
export interface DeploymentRoute<Query = unknown, Body = unknown> extends Omit<PlatformRoute<Query, Body>, 'surface' | 'auth' | 'serve'> {
  readonly surface: 'deployment';
  readonly auth: DeploymentAuth;
  readonly serve: { readonly by: 'daemon' } | { readonly by: 'stream' };
  /** Also a route of the console for the organization's members (`/api/deployments/:deployment` + path), under this number on the link. */
  readonly console?: number;
  /** The console's caller must be one who may write (member and up). */
  readonly writes?: boolean;
}
export const deploymentRoute = <Query = undefined, Body = undefined>(route: DeploymentRoute<Query, Body>): DeploymentRoute<Query, Body> => route;
