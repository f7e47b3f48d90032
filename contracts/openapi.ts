/**
 * The OpenAPI 3.1 document of the edge, the platform and the deployments' services, made of their route tables: what is not in `routes.ts`,
 * `platform-routes.ts` or `deployment-routes.ts` is not in it, and what is there cannot be missing (the console's mirrors are left out).
 * `node contracts/openapi.ts` prints it.
 *
 * Bodies and answers are zod's own JSON Schemas (draft 2020-12, the dialect of OpenAPI 3.1). It adds what every route shares:
 * the error bodies, the rate limit's headers, the kinds of token.
 */
import { z } from 'zod';
import { chatHeaders } from './chat.ts';
import { errors, type ErrorEntry } from './errors.ts';
import { documentPathHeader } from './blob-routes.ts';
import { deploymentRouteList } from './deployment-routes.ts';
import { cookieNames } from './platform.ts';
import { platformRouteList, type AnyRoute, type EnvelopeRoute } from './platform-routes.ts';
import { routeList, type Auth, type Route } from './routes.ts';
import { subprotocols } from './stream.ts';

type Json = Readonly<Record<string, unknown>>;

/** Error codes that any route may answer with, by what it needs. */
const sharedErrors = (route: Route): readonly string[] => [
  'rate_limited', 'internal',
  ...(route.serve.by === 'gateway' ? [] : ['upstream_error', 'upstream_unavailable', 'upstream_timeout', 'draining']),
  ...(route.auth.kind === 'none' ? [] : ['unauthorized', 'bad_bearer', 'wrong_audience']),
  ...(route.auth.kind === 'tier2' ? ['scope_insufficient', 'user_id_mismatch'] : []),
  ...(route.body === undefined ? [] : ['bad_request', 'payload_too_large']),
  ...(route.body instanceof z.ZodType ? ['validation_error', 'bad_user_id'] : []),
];

const sharedPlatformErrors = (route: EnvelopeRoute): readonly string[] => {
  const upstream = ['internal_error', 'upstream_unavailable', 'upstream_timeout', 'draining'];
  const limited = route.errorShape === 'oauth' ? ['rate_limit_exceeded'] : ['rate_limited'];
  const body = route.body === undefined && route.query === undefined ? [] : route.errorShape === 'oauth' ? ['invalid_request']
    : [route.surface === 'deployment' ? 'invalid_argument' : 'validation_error', 'payload_too_large'];
  return [
    ...limited, ...upstream, ...body,
    ...(route.auth.kind === 'none' || (route.auth.kind === 'cookie' && route.auth.optional === true) ? [] : ['unauthorized']),
    ...(route.auth.kind === 'cookie' && route.method !== 'GET' ? ['forbidden'] : []),
  ];
};

const schemaOf = (schema: z.ZodType, io: 'input' | 'output'): Json => {
  const { $schema: _dialect, ...rest } = z.toJSONSchema(schema, { io, unrepresentable: 'any' }) as Json;
  return rest;
};

const securityOf = (auth: Auth | EnvelopeRoute['auth']): readonly Json[] => {
  switch (auth.kind) {
    case 'none': return [];
    case 'access': return [{ access: [] }];
    case 'cookie': return auth.optional === true ? [{}, { session: [] }] : [{ session: [] }];
    case 'person': return [{ access: [] }, { session: [] }];
    case 'deployment': return [{ deployment: [] }];
    case 'tier1': return [{ tier1: [] }];
    case 'tier2': return [{ tier2: [...auth.scopes] }];
  }
};

const contentOf = (schema: z.ZodType): Json => {
  const json = schemaOf(schema, 'output');
  return { [json['const'] !== undefined || json['type'] === 'string' ? 'text/plain' : 'application/json']: { schema: json } };
};

const statusOf = (route: AnyRoute, code: string, entry: ErrorEntry): number =>
  (route.surface === 'platform' && code === 'validation_error' ? route.invalidStatus ?? entry.http : entry.http);

const errorBody = (route: AnyRoute, codes: readonly string[]): Json => {
  const shape = route.surface === 'edge' ? 'edge' : route.errorShape ?? 'envelope';
  switch (shape) {
    case 'edge': return { allOf: [{ $ref: '#/components/schemas/Error' }, { properties: { error: { enum: codes } } }] };
    // At the refresh endpoint a bad token is `invalid_grant` too, with 401 (decisions, Device flow and tokens).
    case 'oauth': return { allOf: [{ $ref: '#/components/schemas/OAuthError' }, { properties: { error: { enum: codes.map((code) => (code === 'invalid_refresh' ? 'invalid_grant' : code)) } } }] };
    case 'envelope': return { allOf: [{ $ref: '#/components/schemas/PlatformError' }, { properties: { error: { properties: { code: { enum: codes } } } } }] };
    case 'openai': return { allOf: [{ $ref: '#/components/schemas/ChatError' }, { properties: { error: { properties: { code: { enum: codes } } } } }] };
  }
};

/** One answer per status, naming the codes behind it. */
const errorAnswers = (route: AnyRoute): Json => {
  const table: Readonly<Record<string, ErrorEntry>> = errors;
  const byStatus = new Map<number, string[]>();
  const shared = route.surface === 'edge' ? sharedErrors(route) : sharedPlatformErrors(route);
  for (const code of new Set([...shared, ...route.errors])) {
    const entry = table[code];
    if (entry === undefined) throw new TypeError(`${route.id} names ${code}, which is not in the error table`);
    const status = statusOf(route, code, entry);
    byStatus.set(status, [...byStatus.get(status) ?? [], code]);
  }
  return Object.fromEntries([...byStatus].toSorted(([a], [b]) => a - b).map(([status, codes]) => [String(status), {
    description: codes.map((code) => `\`${code}\`: ${table[code]?.message ?? ''}`).join(' '),
    ...(status === 429 ? { headers: { 'Retry-After': { $ref: '#/components/headers/RetryAfter' } } } : {}),
    content: { 'application/json': { schema: errorBody(route, codes) } },
  }]));
};

const parametersOf = (query: z.ZodType): readonly Json[] => {
  const schema = schemaOf(query, 'input');
  const required = new Set(schema['required'] as readonly string[] | undefined);
  return Object.entries(schema['properties'] as Readonly<Record<string, Json>>).map(([name, inner]) =>
    ({ name, in: 'query', required: required.has(name), schema: inner }));
};

const operationOf = (route: Route): Json => ({
  operationId: route.id,
  summary: route.summary,
  security: securityOf(route.auth),
  ...(route.query === undefined ? {} : { parameters: parametersOf(route.query) }),
  ...(route.body === undefined ? {} : {
    requestBody: {
      required: true, description: `At most ${route.bodyMaxBytes} bytes.`,
      content: route.body === 'raw' ? { 'application/octet-stream': { schema: {} } } : { 'application/json': { schema: schemaOf(route.body, 'input') } },
    },
  }),
  responses: {
    ...(route.serve.by === 'stream'
      ? { 101: { description: `The WebSocket opens; its messages are in the AsyncAPI document. Subprotocols: ${subprotocols.bearerPrefix}<token>, ${subprotocols.plain}.` } }
      : Object.fromEntries(Object.entries(route.answers).map(([status, schema]) => [status, { description: 'Done.', content: contentOf(schema) }]))),
    ...errorAnswers(route),
  },
});

/** Of a header that is only for the daemon to choose by, there is nothing to say: OpenAPI has `Accept` and `Content-Type` in the media types. */
const headersOf = (route: EnvelopeRoute): readonly Json[] => (route.headers ?? []).filter((name) => name !== 'accept' && name !== 'content-type')
  .map((name) => ({ name, in: 'header', required: false, schema: { type: 'string' }, ...(headerWords[name] === undefined ? {} : { description: headerWords[name] }) }));

const headerWords: Readonly<Record<string, string>> = {
  [chatHeaders.organization]: 'Who pays: an organization (`org_…`) of the caller, or `personal`. Without it the oldest membership, or the own workspace.',
  [chatHeaders.session]: 'Name of the conversation: keeps its requests on one actor.',
  [documentPathHeader]: 'Of `text/markdown`: its path in the knowledge index, percent-encoded where it has to be.',
  'stripe-signature': 'Time and HMAC-SHA256 of the body, as Stripe signs it.',
};

/** A path as OpenAPI writes it: `{id}` for `:id`. */
const documentedPath = (route: EnvelopeRoute): string => route.path.replaceAll(/:(\w+)/g, '{$1}');

/** An answer in pieces may be asked for as events. */
const eventsOf = (route: EnvelopeRoute): Json => (route.serve.by === 'stream' && route.upload !== true ? { 'text/event-stream': { schema: { type: 'string', description: 'Server-sent events.' } } } : {});

const platformOperationOf = (route: EnvelopeRoute): Json => ({
  operationId: route.id,
  summary: route.summary,
  security: securityOf(route.auth),
  parameters: [
    ...[...route.path.matchAll(/:(\w+)/g)].map(([, name = '']) => ({ name, in: 'path', required: true, schema: { type: 'string' } })),
    ...(route.query === undefined ? [] : parametersOf(route.query)),
    ...headersOf(route),
    ...(route.auth.kind === 'cookie' && route.method !== 'GET' ? [{ $ref: '#/components/parameters/Csrf' }] : []),
  ],
  ...(route.body === undefined ? {} : {
    requestBody: {
      required: true, description: `At most ${route.bodyMaxBytes} bytes.`,
      content: Object.fromEntries(['application/json', ...(route.form === true ? ['application/x-www-form-urlencoded'] : [])].map((type) => [type, { schema: schemaOf(route.body as z.ZodType, 'input') }])),
    },
  }),
  ...(route.upload === true ? {
    requestBody: {
      required: true, description: `As it is, of any type, or multipart with one file. At most ${route.bodyMaxBytes} bytes.`,
      content: { '*/*': { schema: {} }, 'multipart/form-data': { schema: { type: 'object', properties: { file: { type: 'string', contentMediaType: 'application/octet-stream' } } } } },
    },
  } : {}),
  responses: {
    ...Object.fromEntries(Object.entries(route.answers).map(([status, schema]) => [status, {
      description: 'Done.',
      ...(schema === 'empty' ? {} : { content: schema === 'text' ? { '*/*': { schema: { type: 'string' } } } : { 'application/json': { schema: schemaOf(schema, 'output') }, ...eventsOf(route) } }),
    }])),
    ...errorAnswers(route),
  },
});

/** Builds the document. `version` is the product's; `serverUrl` the address of both surfaces. */
export const openApi = (version: string, serverUrl = 'https://localhost:8443'): Json => {
  const paths: Record<string, Record<string, Json>> = {};
  for (const route of routeList) (paths[route.path] ??= {})[route.method.toLowerCase()] = operationOf(route);
  for (const route of [...platformRouteList, ...deploymentRouteList]) (paths[documentedPath(route)] ??= {})[route.method.toLowerCase()] = platformOperationOf(route);
  return {
    openapi: '3.1.0',
    info: { title: 'Troupe', version, license: { name: 'Apache-2.0', identifier: 'Apache-2.0' } },
    servers: [{ url: serverUrl }],
    paths,
    components: {
      securitySchemes: {
        tier1: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT', description: 'Identity token (ES256, `aud` = the gateway\'s name).' },
        tier2: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT', description: 'Capability of 15 minutes from bootstrap, with scopes.' },
        access: { type: 'http', scheme: 'bearer', description: 'Access token (ES256 JWT, `aud` = `troupe-platform`) or API key (`trp_sk_…`).' },
        deployment: { type: 'http', scheme: 'bearer', description: 'Deployment key (`trp_dk_…`), service JWT (HS256 with the shared secret) or agent JWT (EdDSA).' },
        session: { type: 'apiKey', in: 'cookie', name: cookieNames.session, description: 'Browser session. Every method but GET also needs the CSRF proof.' },
      },
      parameters: {
        Csrf: { name: 'x-csrf-token', in: 'header', required: true, schema: { type: 'string' }, description: 'From `GET /api/auth/session`; a form has it in its field `csrf`.' },
      },
      headers: { RetryAfter: { description: 'Whole seconds until another try can pass.', schema: { type: 'integer', minimum: 1 } } },
      schemas: {
        Error: {
          type: 'object', required: ['error', 'message'],
          properties: { error: { type: 'string', description: 'The code: stable, the contract.' }, message: { type: 'string', description: 'Prose: may change.' } },
        },
        PlatformError: {
          type: 'object', required: ['error'],
          properties: {
            error: {
              type: 'object', required: ['code', 'message'],
              properties: { code: { type: 'string' }, message: { type: 'string' }, details: { type: 'object', description: 'Where there is something to say, e.g. field and constraint.' } },
            },
          },
        },
        OAuthError: {
          type: 'object', required: ['error', 'error_description'], description: 'RFC 6749 section 5.2.',
          properties: { error: { type: 'string' }, error_description: { type: 'string' } },
        },
        ChatError: {
          type: 'object', required: ['error'],
          properties: {
            error: {
              type: 'object', required: ['message', 'type', 'code', 'param'],
              properties: { message: { type: 'string' }, type: { type: 'string' }, code: { type: ['string', 'null'] }, param: { type: ['string', 'null'] } },
            },
          },
        },
      },
    },
  };
};

// Run as a program, not imported (a browser has no process).
if (typeof process === 'object' && process.argv[1]?.endsWith('contracts/openapi.ts') === true) {
  process.stdout.write(`${JSON.stringify(openApi('0.1.0'), null, 2)}\n`);
}
