/**
 * The closed table of everything that can be asked over HTTP or the link: surface, method, path, authentication, schemas,
 * target. The gateway routes and validates from it, the daemon accepts nothing that is not in it, OpenAPI is made of it.
 *
 * Adding an endpoint = one entry here and one actor command. `wire` is the route's number on the link: never reused.
 */
import { z } from 'zod';
import { agentCommands } from './agent.ts';
import { allowanceCommands } from './allowance.ts';
import { audiences, scopes, sessionScopes, type Principal } from './capability.ts';
import { custodyAgrees, custodyAnswers, custodyBodies, custodyCommands } from './custody.ts';
import { limits } from './limits.ts';
import { nameCommands } from './name.ts';
import { chatSession, sessionCommands, sessionList } from './session.ts';
import { plainId, userId } from './validate.ts';
import { coded } from './errors.ts';
import type { ActorAddress } from './subjects.ts';

export type UserPrincipal = Extract<Principal, { kind: 'user' }>;

/** What an actor route asks, and how the answer becomes a body. */
export interface ActorCall {
  readonly actor: ActorAddress;
  readonly command: string;
  readonly input: unknown;
  readonly status?: number;
}

/** Who answers a route: the gateway alone, a handler of the daemon, an actor's command, or a stream of the daemon. */
export type Serve<Body> =
  | { readonly by: 'gateway' }
  | {
      readonly by: 'daemon';
      /**
       * The gateway adds `token` and `expires_at_unix` of a capability with these scopes to what the daemon answered, once it has
       * answered 200 with a body of `agrees`; the route's own `answers` are what the caller sees.
       */
      readonly mint?: { readonly scopes: readonly string[]; readonly agrees: z.ZodObject };
    }
  | { readonly by: 'stream' }
  | {
      readonly by: 'actor';
      /** `newSid` makes a fresh session id whose partition this daemon owns. Throws a refusal for a bad combination. */
      readonly call: (request: { readonly principal: UserPrincipal; readonly body: Body; readonly newSid: () => string }) => ActorCall;
    };

export type Auth =
  | { readonly kind: 'none' }
  /** Tier 1 bearer; the gateway mints the capability it forwards. */
  | { readonly kind: 'tier1' }
  /** Tier 2 bearer with this audience and at least one of these scopes. */
  | { readonly kind: 'tier2'; readonly audience: string; readonly scopes: readonly string[] };

export interface Route<Body = unknown> {
  readonly id: string;
  readonly wire: number;
  readonly surface: 'edge';
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly summary: string;
  readonly auth: Auth;
  /** Values of the address's query, as text. A route without a body gets them on the link as a JSON object in its place. */
  readonly query?: z.ZodType;
  /** JSON body; absent = no body, `'raw'` = bytes as they are. */
  readonly body?: z.ZodType<Body> | 'raw';
  readonly bodyMaxBytes: number;
  /** Success statuses with the schema of their body. */
  readonly answers: Readonly<Record<number, z.ZodType>>;
  /** Error codes a caller may meet, besides those of every route. */
  readonly errors: readonly string[];
  readonly serve: Serve<Body>;
}

const route = <Body>(r: Route<Body>): Route<Body> => r;

export const bootstrapBody = z.strictObject({ user_id: userId });
export const bootstrapToken = z.strictObject({
  access_token: z.string(), token_type: z.literal('Bearer'), user_id: z.string(), expires_in: z.int(), expires_at: z.iso.datetime(),
});

export const createSessionBody = z.strictObject({
  user_id: userId,
  project_id: plainId,
  label: plainId.optional(),
  resume_sid: z.string().max(limits.idMaxChars).optional(),
  model: z.string().max(limits.idMaxChars).optional(),
});

export const streamQuery = z.strictObject({
  sid: z.string().min(1).max(limits.idMaxChars),
  last_seq_no: z.string().regex(/^(0|[1-9]\d{0,15})$/).transform(Number).optional(),
});
/** Body of the link's `open` for a stream. `last_seq_no` absent = live from now plus the running turn so far. */
export const streamOpen = z.strictObject({ sid: z.string(), last_seq_no: z.int().nonnegative().optional() });

/** Query of the session list: values are text, as an address has them. */
export const sessionListQuery = z.strictObject({
  limit: z.string().regex(/^[1-9]\d{0,2}$/).transform(Number).refine((n) => n <= limits.sessionListMax).optional(),
  cursor: z.string().min(1).max(limits.cursorMaxChars).optional(),
});

const tier2 = (...required: string[]): Auth => ({ kind: 'tier2', audience: audiences.custody, scopes: required });

/** A sid as the server issues it: 26 lowercase base32 characters. */
export const sidPattern = /^[a-z2-7]{26}$/;

export const routes = {
  health: route({
    id: 'health', wire: 1, surface: 'edge', method: 'GET', path: '/healthz', summary: 'Answers 200 while the daemon answers.',
    auth: { kind: 'none' }, bodyMaxBytes: 0, answers: { 200: z.literal('OK') }, errors: ['upstream_unavailable'], serve: { by: 'daemon' },
  }),
  bootstrap: route({
    id: 'bootstrap', wire: 2, surface: 'edge', method: 'POST', path: '/troupe/v1/auth/bootstrap',
    summary: 'Exchanges a Tier 1 identity token for a capability of 15 minutes.',
    auth: { kind: 'tier1' }, body: bootstrapBody, bodyMaxBytes: limits.bodyMaxBytes,
    answers: { 200: bootstrapToken }, errors: ['bad_user_id', 'user_id_mismatch'], serve: { by: 'gateway' },
  }),
  createSession: route({
    id: 'create_session', wire: 3, surface: 'edge', method: 'POST', path: '/v1/agent/create_session',
    summary: 'Makes a chat session, or gives back the caller\'s own by resume_sid.',
    auth: { kind: 'tier1' }, body: createSessionBody, bodyMaxBytes: limits.bodyMaxBytes,
    answers: { 200: chatSession, 201: chatSession }, errors: ['bad_user_id', 'user_id_mismatch', 'session_not_found', 'model_not_supported'],
    serve: {
      by: 'actor',
      call: ({ principal, body, newSid }) => {
        if (body.resume_sid !== undefined) {
          if (!sidPattern.test(body.resume_sid)) throw coded('session_not_found');
          return {
            actor: { org: principal.org, type: 'session', key: body.resume_sid },
            command: 'resume', input: { user_id: principal.sub } satisfies z.input<typeof sessionCommands.resume.input>, status: 200,
          };
        }
        const model = body.model?.trim();
        return {
          actor: { org: principal.org, type: 'session', key: newSid() },
          command: 'create',
          input: {
            user_id: principal.sub, project_id: body.project_id,
            ...(body.label === undefined ? {} : { label: body.label }), ...(model ? { model } : {}),
          } satisfies z.input<typeof sessionCommands.create.input>,
          status: 201,
        };
      },
    },
  }),
  stream: route({
    id: 'stream', wire: 4, surface: 'edge', method: 'GET', path: '/v1/agent/stream',
    summary: 'WebSocket: the session\'s events from last_seq_no + 1, then live; messages and approvals the other way.',
    auth: { kind: 'tier1' }, query: streamQuery, bodyMaxBytes: 0, answers: {}, errors: ['bad_bearer', 'too_many_sockets'], serve: { by: 'stream' },
  }),
  putBlob: route({
    id: 'put_blob', wire: 5, surface: 'edge', method: 'POST', path: '/v1/agent/blobs',
    summary: 'Stores an attachment for send_message; the answer\'s hash is its attachment_blob_ref.',
    auth: { kind: 'tier1' }, body: 'raw', bodyMaxBytes: limits.attachmentMaxBytes,
    answers: { 201: z.strictObject({ hash: z.string(), size: z.int() }) }, errors: ['payload_too_large', 'rate_limited', 'overloaded'], serve: { by: 'daemon' },
  }),
  listSessions: route({
    id: 'list_sessions', wire: 6, surface: 'edge', method: 'GET', path: '/v1/agent/sessions',
    summary: 'The caller\'s own sessions, newest first, with what each is doing and has used.',
    auth: { kind: 'tier1' }, query: sessionListQuery, bodyMaxBytes: 0,
    answers: { 200: sessionList }, errors: ['bad_request', 'upstream_unavailable'], serve: { by: 'daemon' },
  }),

  signAuth: route({
    id: 'sign_auth', wire: 10, surface: 'edge', method: 'POST', path: '/custody/sign_auth', summary: 'Signs a 32-byte digest with the Ed25519 key.',
    auth: tier2(scopes.signAuth), body: custodyBodies.sign, bodyMaxBytes: limits.bodyMaxBytes,
    answers: { 200: custodyAnswers.signature }, errors: ['bad_digest'], serve: { by: 'daemon' },
  }),
  signWallet: route({
    id: 'sign_wallet', wire: 11, surface: 'edge', method: 'POST', path: '/custody/sign_wallet', summary: 'Signs a 32-byte digest with the secp256k1 key (low-s).',
    auth: tier2(scopes.signWallet), body: custodyBodies.sign, bodyMaxBytes: limits.bodyMaxBytes,
    answers: { 200: custodyAnswers.signature }, errors: ['bad_digest'], serve: { by: 'daemon' },
  }),
  getAuthPubkey: route({
    id: 'get_auth_pubkey', wire: 12, surface: 'edge', method: 'POST', path: '/custody/get_auth_pubkey', summary: 'The Ed25519 public key (32 bytes).',
    auth: tier2(scopes.getPubkey), body: custodyBodies.user, bodyMaxBytes: limits.bodyMaxBytes,
    answers: { 200: custodyAnswers.pubkey }, errors: [], serve: { by: 'daemon' },
  }),
  getWalletPubkey: route({
    id: 'get_wallet_pubkey', wire: 13, surface: 'edge', method: 'POST', path: '/custody/get_wallet_pubkey', summary: 'The secp256k1 public key (65 bytes, uncompressed).',
    auth: tier2(scopes.getPubkey), body: custodyBodies.user, bodyMaxBytes: limits.bodyMaxBytes,
    answers: { 200: custodyAnswers.pubkey }, errors: [], serve: { by: 'daemon' },
  }),
  mintSessionCap: route({
    id: 'mint_session_cap', wire: 14, surface: 'edge', method: 'POST', path: '/custody/mint_session_cap',
    summary: 'A session capability: sign and read keys, no more. With a passkey enrolled, an assertion is required.',
    auth: tier2(scopes.mintSessionCap), body: custodyBodies.mint, bodyMaxBytes: limits.bodyMaxBytes,
    answers: { 200: custodyAnswers.minted }, errors: ['bad_assertion'], serve: { by: 'daemon', mint: { scopes: sessionScopes, agrees: custodyAgrees.mint } },
  }),
  enrollPasskey: route({
    id: 'enroll_passkey', wire: 15, surface: 'edge', method: 'POST', path: '/custody/enroll_passkey',
    summary: 'Enrolls a passkey over a challenge; answers a session capability and the did:key of the Ed25519 key.',
    auth: tier2(scopes.enrollPasskey), body: custodyBodies.enroll, bodyMaxBytes: limits.bodyMaxBytes,
    answers: { 200: custodyAnswers.enrolled }, errors: ['bad_attestation'], serve: { by: 'daemon', mint: { scopes: sessionScopes, agrees: custodyAgrees.enroll } },
  }),
  challenge: route({
    id: 'challenge', wire: 16, surface: 'edge', method: 'POST', path: '/custody/challenge', summary: 'A WebAuthn challenge of the user: valid once.',
    auth: tier2(scopes.mintSessionCap, scopes.enrollPasskey), body: custodyBodies.user, bodyMaxBytes: limits.bodyMaxBytes,
    answers: { 200: custodyAnswers.challenge }, errors: [], serve: { by: 'daemon' },
  }),
} as const;

export type RouteName = keyof typeof routes;
// Erases each entry's body type: the gateway and the daemon hold validated values of type unknown.
export const routeList: readonly Route[] = Object.values(routes) as unknown as readonly Route[];
export const routeByWire: ReadonlyMap<number, Route> = new Map(routeList.map((r) => [r.wire, r]));

/** Schemas of actor commands by type, for NATS service metadata and AsyncAPI. */
export const actorContracts = {
  session: sessionCommands, agent: agentCommands, custody: custodyCommands, name: nameCommands, allowance: allowanceCommands,
} as const;
