/**
 * The forms of a deployment's credentials (interface 5.3; decisions, Deployment services), and which deployment each is for: what gateway and
 * daemon must read alike. Nothing here verifies.
 *
 * Key: `trp_dk_<26 characters of the organization's id>_<26 of the deployment's>_<43 of base64url>`. Shared secret: `trp_ds_<43 of base64url>`,
 * its UTF-8 bytes are the HMAC key. Service JWT: HS256; deployment = header `kid`, else the first of the claims `aud`, `iss`, `sub` that is a
 * deployment's id, else the configured default. Agent JWT: EdDSA; deployment = `aud`.
 */
import { z } from 'zod';
import { deploymentId, organizationId } from './ids.ts';
import { limits } from './limits.ts';

const part = '[0-7][0-9a-hjkmnp-tv-z]{25}';
const keyForm = new RegExp(`^trp_dk_(${part})_(${part})_[A-Za-z0-9_-]{43}$`);
export const deploymentKeyHead = 'trp_dk_';
export const deploymentSecretHead = 'trp_ds_';

/** Whose key this says it is; undefined for what has not the form of one. */
export const deploymentOfKey = (text: string): { readonly organizationId: string; readonly deploymentId: string } | undefined => {
  const [, org, deployment] = keyForm.exec(text) ?? [];
  return org === undefined || deployment === undefined ? undefined : { organizationId: `org_${org}`, deploymentId: `dep_${deployment}` };
};

/** RFC 7515 section 4.1.11: who does not understand an extension that is marked critical must refuse the token. */
const head = z.object({ alg: z.enum(['HS256', 'EdDSA']), kid: z.string().max(limits.idMaxChars).optional(), crit: z.undefined().optional() });
const claims = z.object({
  aud: z.union([z.string(), z.array(z.string()).max(16)]).optional(), iss: z.string().optional(), sub: z.string().optional(),
  exp: z.number(), nbf: z.number().optional(), iat: z.number().optional(),
});
export type DeploymentJwtHead = z.infer<typeof head>;
export type DeploymentJwtClaims = z.infer<typeof claims>;

export interface DeploymentJwt {
  readonly head: DeploymentJwtHead;
  readonly claims: DeploymentJwtClaims;
  /** The deployment it says it is for; undefined = it names none (of a service: the default one). */
  readonly deploymentId: string | undefined;
  /** What the signature is over. */
  readonly signed: string;
  /** Base64url. */
  readonly signature: string;
}

const jwtForm = /^([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)$/;

const jsonOf = (text: string): unknown => {
  try {
    const bytes = Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (char) => char.charCodeAt(0));
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    // Neither base64url nor JSON: no schema takes it.
    return undefined;
  }
};

const isDeployment = (text: string | undefined): text is string => deploymentId.safeParse(text).success;
const audiences = ({ aud }: DeploymentJwtClaims): readonly string[] => (aud === undefined ? [] : typeof aud === 'string' ? [aud] : aud);

const namedIn = (header: DeploymentJwtHead, payload: DeploymentJwtClaims): string | undefined => {
  const audience = audiences(payload).find(isDeployment);
  if (header.alg === 'EdDSA') return audience;
  return [header.kid, audience, payload.iss, payload.sub].find(isDeployment);
};

/** Header and claims of a JWT, unverified; undefined for what is no service or agent JWT. */
export const readDeploymentJwt = (token: string): DeploymentJwt | undefined => {
  const [, headText, claimsText, signature] = jwtForm.exec(token) ?? [];
  if (headText === undefined || claimsText === undefined || signature === undefined) return undefined;
  const header = head.safeParse(jsonOf(headText));
  const payload = claims.safeParse(jsonOf(claimsText));
  if (!header.success || !payload.success) return undefined;
  return {
    head: header.data, claims: payload.data, deploymentId: namedIn(header.data, payload.data), signed: `${headText}.${claimsText}`, signature,
  };
};

/** Holder of the name `deployment:<id>`: its organization. Of `agent:<id>`: organization and deployment. */
export const agentHolder = (organization: string, deployment: string): string => `${organization}/${deployment}`;
export const readAgentHolder = (holder: string): { readonly organizationId: string; readonly deploymentId: string } | undefined => {
  const [organization, deployment, more] = holder.split('/');
  if (more !== undefined || !organizationId.safeParse(organization).success || !isDeployment(deployment)) return undefined;
  return { organizationId: organization as string, deploymentId: deployment };
};
