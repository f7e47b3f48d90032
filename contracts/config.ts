/**
 * Configuration files (TOML) of the gateway and the daemon: every key with its default. Unknown keys are refused, so that a
 * misspelt one is found at start. Secrets are given by file path, never inline, never as a process argument.
 */
import { z } from 'zod';
import { deploymentId } from './ids.ts';
import { limits } from './limits.ts';

const path = z.string().min(1);
const logLevel = z.enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent']).default('info');
const positive = z.number().positive();
/** `a@b` or `Name <a@b>`; no line break, quote or comma, so that it is one header value and one address. */
const mailFrom = /^(?:[^\p{Cc}<>"@,;:\\]{1,128} <[^\s<>"@,;:\\]+@[^\s<>"@,;:\\]+>|[^\s<>"@,;:\\]+@[^\s<>"@,;:\\]+)$/u;

/** What one listener can serve: the platform (`/api`, its pages), the edge (`/v1/agent`, `/troupe/v1`, `/custody`), the console's files, the services of deployments (`/v1`). */
export const surfaces = ['platform', 'edge', 'console', 'deployment'] as const;
export type Surface = (typeof surfaces)[number];
const servedSurfaces = z.array(z.enum(surfaces)).min(1).default([...surfaces]);
/** Host names in lower case, without port. */
const hostNames = z.array(z.string().regex(/^[a-z0-9.:[\]-]{1,253}$/)).min(1).optional();

export const gatewayConfig = z.strictObject({
  /** `iss` of capabilities and the `aud` a Tier 1 token must carry. */
  name: z.string().min(1).default('troupe-gateway'),
  log_level: logLevel,
  listen: z.strictObject({
    host: z.string().default('127.0.0.1'),
    port: z.int().min(0).max(65_535),
    /** Paths of other surfaces are `not_found` there. */
    surfaces: servedSurfaces,
  }),
  /** Further listeners of the same process, with the same certificate. */
  listeners: z.array(z.strictObject({ host: z.string().default('127.0.0.1'), port: z.int().min(0).max(65_535), surfaces: servedSurfaces })).max(16).default([]),
  /** Host names of a surface: a name listed here serves only the surfaces that list it; a surface with a list is served under no other name. */
  hosts: z.strictObject({ platform: hostNames, edge: hostNames, console: hostNames, deployment: hostNames }).prefault({}),
  /** Local plain-HTTP listener with /readyz and /metrics; port 0 = off. */
  ops: z.strictObject({ host: z.string().default('127.0.0.1'), port: z.int().min(0).max(65_535).default(0) }).prefault({}),
  tls: z.strictObject({ cert_path: path, key_path: path, poll_ms: z.int().positive().default(limits.certificatePollMs) }),
  auth: z.strictObject({
    jwks_url: z.url().optional(),
    /** Accepts HS256 tokens signed with the secret in `dev_secret_path`. */
    dev_mode: z.boolean().default(false),
    dev_secret_path: path.optional(),
    /** Believes gateway tokens of the platform (POST /api/auth/gateway-token), with the daemon's public keys. Needs `platform`. */
    platform: z.boolean().default(false),
    jwks_ttl_ms: z.int().positive().default(limits.jwksTtlMs),
    jwks_cooldown_ms: z.int().positive().default(limits.jwksCooldownMs),
  }),
  /** Absent = neither platform nor deployments: their paths are `not_found`. */
  platform: z.strictObject({
    /** The daemons' `platform.base_url`: `iss` of access tokens. */
    base_url: z.url().refine((url) => new URL(url).origin === url),
  }).optional(),
  /** ES256 private key (PEM, PKCS 8) that signs capabilities; the daemon holds the public half. */
  capability: z.strictObject({ key_path: path }),
  upstream: z.strictObject({
    /** A daemon's socket, or a folder of numbered ones (`d0.sock`, `d1.sock` …). */
    socket_path: path,
    deadline_ms: z.int().positive().default(limits.upstreamDeadlineMs),
  }),
  limits: z.strictObject({
    per_user_capacity: positive.default(100),
    per_user_refill_per_sec: positive.default(10),
    per_ip_capacity: positive.default(200),
    per_ip_refill_per_sec: positive.default(20),
    sockets_per_user: z.int().positive().default(limits.socketsPerUser),
  }).prefault({}),
  /** Addresses or CIDR blocks whose X-Forwarded-For is believed. */
  trusted_proxies: z.array(z.string()).default([]),
  heartbeat_ms: z.int().positive().default(limits.heartbeatMs),
  slow_consumer_ms: z.int().positive().default(limits.slowConsumerMs),
  /** Absent = no admin socket. */
  admin: z.strictObject({ socket_path: path, group: z.string().min(1).optional() }).optional(),
  /** Serve the web console's static files. */
  console: z.boolean().default(true),
});
export type GatewayConfig = z.infer<typeof gatewayConfig>;

const priceIds = z.array(z.string().regex(/^[A-Za-z0-9_-]{1,128}$/)).max(32).default([]);

export const modelEntry = z.strictObject({
  id: z.string().min(1),
  provider: z.enum(['mock', 'openai', 'anthropic']),
  /** The vendor's name of the model; default = `id`. */
  upstream_model: z.string().optional(),
  context_tokens: z.int().positive().default(128_000),
  max_output_tokens: z.int().positive().default(4_096),
  /** US dollars per million tokens. */
  input_usd_per_mtok: z.number().nonnegative().default(0),
  output_usd_per_mtok: z.number().nonnegative().default(0),
});
export type ModelEntry = z.infer<typeof modelEntry>;

export const daemonConfig = z.strictObject({
  /** Unique among the hosts of a cluster; a restarted daemon keeps it and takes its own partitions back at once. */
  host: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/),
  log_level: logLevel,
  socket_path: path,
  /** Numeric ids admitted on the socket besides the daemon's own uid. */
  allowed_uids: z.array(z.int().nonnegative()).default([]),
  allowed_gids: z.array(z.int().nonnegative()).default([]),
  nats: z.strictObject({
    url: z.string(),
    user: z.string().optional(),
    password_path: path.optional(),
    /** `always` = acknowledged means synced; `default` = acknowledged means written. Checked against nothing: it names what the server was configured with. */
    sync: z.enum(['default', 'always']).default('default'),
    journal_streams: z.int().min(1).max(64).default(1),
    replicas: z.int().min(1).max(5).default(1),
  }),
  postgres: z.strictObject({ url_path: path }).optional(),
  partitions: z.int().min(1).max(4_096).default(limits.partitions),
  lease_ttl_ms: z.int().min(500).default(limits.leaseTtlMs),
  drain_ms: z.int().positive().default(limits.drainMs),
  /** ES256 public key (PEM, SPKI) of the gateways' capabilities. */
  capability: z.strictObject({ public_key_path: path, issuer: z.string().default('troupe-gateway') }),
  /** 32 bytes, base64: wraps the data keys of private keys at rest. */
  master_key_path: path,
  /** Absent = no passkeys: enrolling one is refused. The same on every daemon. */
  webauthn: z.strictObject({
    /** Relying party id: the domain of the pages that use passkeys, or a parent of it. A passkey is bound to it for ever. */
    rp_id: z.string().min(1).max(253),
    /** Origins of these pages (`https://chat.example.com`), exactly as a browser states them. */
    origins: z.array(z.string().min(1)).min(1),
  }).optional(),
  session_idle_ms: z.int().positive().default(limits.sessionIdleMs),
  /** Accounts, organizations and what belongs to them. Absent = no platform surface: its routes are `not_found`. Needs postgres. The same on every daemon. */
  platform: z.strictObject({
    /** Address people and clients use, without a slash at the end: `iss` of tokens, base of links. */
    base_url: z.url().refine((url) => new URL(url).origin === url),
    /** ES256 private key (PEM, PKCS 8) that signs access tokens and gateway tokens. */
    signing_key_path: path,
    /** Keys that signed before it (PEM, SPKI): still believed. */
    former_key_paths: z.array(path).max(8).default([]),
    /** `aud` of gateway tokens: the gateways' `name`. */
    gateway_name: z.string().min(1).default('troupe-gateway'),
    /** Milliseconds an access token lives; the environment's JWT_ACCESS_EXPIRY_MS goes before it. */
    access_expiry_ms: z.int().min(1_000).default(limits.accessTtlMs),
    /** JSON {version, documents: [{id, title, url, sha256}]}; absent = the built-in development manifest. */
    legal_manifest_path: path.optional(),
    /** Account ids or e-mail addresses (lower case) of the people who decide about certifications. */
    staff: z.array(z.string().min(1)).max(256).optional(),
    google: z.strictObject({
      issuer: z.url().default('https://accounts.google.com'), client_id: z.string().min(1), client_secret_path: path,
      /** Development and tests: an issuer without TLS. */
      allow_insecure: z.boolean().default(false),
    }).optional(),
    github: z.strictObject({
      authorize_url: z.url().default('https://github.com/login/oauth/authorize'), token_url: z.url().default('https://github.com/login/oauth/access_token'),
      api_url: z.url().default('https://api.github.com'), client_id: z.string().min(1), client_secret_path: path, allow_insecure: z.boolean().default(false),
    }).optional(),
  }).optional(),
  /** Managed deployments: served where `platform` is. The same on every daemon. */
  deployments: z.strictObject({
    /** `{deployment_url}`: address of their services, without a slash at the end. Default `platform.base_url`. */
    url: z.url().refine((url) => new URL(url).origin === url).optional(),
    /** The deployment that a service JWT is for which names none. */
    default_id: deploymentId.optional(),
    /** Milliseconds for which a deployment's credits must stay past a threshold before its economic mode changes; holds for deployments made from then on. Less than the default is for tests. */
    mode_hold_ms: z.int().nonnegative().max(limits.regulationHoldMs).default(limits.regulationHoldMs),
  }).prefault({}),
  trust: z.strictObject({
    /** Name servers asked for domains' TXT records: IP addresses, `address:port` for another port than 53. Empty = the system's. */
    name_servers: z.array(z.string().min(1)).max(8).default([]),
  }).prefault({}),
  /** Paid plans. Absent = none can be bought and no event of a processor is taken. Needs platform. The same on every daemon. */
  billing: z.strictObject({
    stripe: z.strictObject({
      /** Where its API is; another one than Stripe's for tests. */
      api_url: z.url().refine((url) => new URL(url).origin === url).default('https://api.stripe.com'),
      secret_key_path: path,
      /** Signing secret of the webhook endpoint `{base_url}/api/payments/webhooks`. */
      webhook_secret_path: path,
    }),
    /** Ids of monthly prices by plan: the first is sold, the others are of subscriptions made before. */
    prices: z.strictObject({ pro: priceIds, team: priceIds, enterprise: priceIds }).prefault({}),
  }).optional(),
  models: z.strictObject({
    default: z.string(),
    registry: z.array(modelEntry).min(1),
  }),
  providers: z.strictObject({
    openai: z.strictObject({ base_url: z.url().optional(), api_key_path: path }).optional(),
    anthropic: z.strictObject({ base_url: z.url().optional(), api_key_path: path }).optional(),
  }).prefault({}),
  /** Absent = no mail: sign-in codes and invitations wait (`mail_unavailable`, tried again). The same on every daemon. */
  mail: z.strictObject({
    /** Sender: an address, or `Name <address>`. */
    from: z.string().max(512).regex(mailFrom),
    smtp: z.strictObject({
      host: z.string().min(1),
      port: z.int().min(1).max(65_535),
      /** True = TLS from the first byte (465). False = STARTTLS, which must succeed unless the host is this machine (localhost, 127.0.0.0/8, ::1). */
      secure: z.boolean().default(false),
      user: z.string().min(1).optional(),
      password_path: path.optional(),
      /** Further certificate authorities (PEM). */
      ca_path: path.optional(),
    }).optional(),
    /** Development: folder where mails are kept in place of being sent. */
    outbox_path: path.optional(),
  }).refine((mail) => (mail.smtp === undefined) !== (mail.outbox_path === undefined), 'needs either smtp or outbox_path').optional(),
  webhooks: z.strictObject({
    /** Development and tests: webhooks may lead to private and loopback addresses. */
    allow_private: z.boolean().default(false),
    /** Further certificate authorities (PEM) that receivers' certificates may come from. */
    ca_path: path.optional(),
  }).prefault({}),
  tools: z.strictObject({
    /** Hosts (or `host:port`) the fetch tool may reach. */
    fetch_allow: z.array(z.string()).default([]),
    /** Tools that run for `/api/chat`, by name; sessions have all. The same on every daemon. */
    chat: z.array(z.string().min(1)).max(limits.chatToolsMax).default([]),
  }).prefault({}),
});
export type DaemonConfig = z.infer<typeof daemonConfig>;

/** `.troupe/dev.json`, written by `npm start` (mode 0600), for tools and tests. */
export const devFile = z.object({
  baseUrl: z.string(),
  gatewayUrl: z.string(),
  deploymentUrl: z.string(),
  natsUrl: z.string(),
  caPath: z.string(),
  adminSocket: z.string(),
  user: z.object({ id: z.string(), email: z.string(), accessToken: z.string(), gatewayToken: z.string() }),
  /** `apiKey`: with every scope of the admin role. */
  org: z.object({ id: z.string(), slug: z.string(), apiKey: z.string().optional() }),
  /** Of that organization; the one that service JWTs are for which name none. Absent in files of before there were any. */
  deployment: z.object({ id: z.string(), key: z.string(), secret: z.string() }).optional(),
});
export type DevFile = z.infer<typeof devFile>;
