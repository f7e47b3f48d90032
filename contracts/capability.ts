/**
 * Tier 2: the capability the gateway mints and the daemon verifies again (interface 5.2; decisions, Edge gateway).
 * ES256 JWT, `iss` = the gateway's name, `sub`, `iat`, `nbf`, `exp` at most 900 s after `iat`, `jti`, `scope` array.
 *
 * Two audiences, because agent and custody routes must not take each other's tokens: `custody.user-cap` (bootstrap, custody
 * routes, leaves the process) and `agent.user-cap` (minted inside the gateway for /v1/agent/*, seen by the daemon only).
 */
import { z } from 'zod';
import { limits } from './limits.ts';

export const audiences = { custody: 'custody.user-cap', agent: 'agent.user-cap' } as const;

export const scopes = {
  signAuth: 'custody.user.sign_auth',
  signWallet: 'custody.user.sign_wallet',
  getPubkey: 'custody.user.get_pubkey',
  mintSessionCap: 'custody.user.mint_session_cap',
  enrollPasskey: 'custody.user.enroll_passkey',
  agentSession: 'agent.session',
} as const;

export const bootstrapScopes: readonly string[] = [scopes.signAuth, scopes.signWallet, scopes.getPubkey, scopes.mintSessionCap, scopes.enrollPasskey];
export const sessionScopes: readonly string[] = [scopes.signAuth, scopes.signWallet, scopes.getPubkey];

export const capabilityClaims = z.object({
  iss: z.string(),
  aud: z.enum([audiences.custody, audiences.agent]),
  sub: z.string().min(1).max(limits.idMaxChars),
  iat: z.int(),
  nbf: z.int(),
  exp: z.int(),
  jti: z.string(),
  scope: z.array(z.string()).optional(),
  /** Organization whose actors the bearer may reach; from the Tier 1 token's `org`, else the user's personal one. */
  org: z.string().min(1).max(limits.idMaxChars + 'u-'.length),
  /** The platform's grant (login) behind the Tier 1 token; absent for identities of a foreign provider. */
  grant: z.string().max(limits.idMaxChars).optional(),
  /** `jti` of the access token that the Tier 1 token was made with: it ends with that one. */
  parent: z.string().max(limits.idMaxChars).optional(),
});
export type CapabilityClaims = z.infer<typeof capabilityClaims>;

/** Claims the gateway reads of a Tier 1 identity token. `org` is the organization the user acts for; absent = personal. */
export const identityClaims = z.object({
  sub: z.string().min(1),
  aud: z.union([z.string(), z.array(z.string())]),
  exp: z.int(),
  org: z.string().min(1).max(limits.idMaxChars).optional(),
});
export type IdentityClaims = z.infer<typeof identityClaims>;

/** Organization token of a user's personal workspace. */
export const personalOrg = (sub: string): string => `u-${sub}`;

/** Who calls a command. `role` is checked against the command's `access`. */
export type Principal =
  | { readonly kind: 'user'; readonly sub: string; readonly org: string; readonly scopes: readonly string[] }
  /** A NATS client; its permissions confine it to its organization's subjects. */
  | { readonly kind: 'integrator'; readonly org: string }
  /** Another actor, or the daemon itself. */
  | { readonly kind: 'system' }
  /** The actor's own effects, timers and reminders. */
  | { readonly kind: 'self' };
