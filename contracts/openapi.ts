/**
 * The OpenAPI 3.1 document of the edge surface, made of the route table: what is not in `routes.ts` is not in it, and what is
 * there cannot be missing. `node contracts/openapi.ts` prints it.
 *
 * Bodies and answers are zod's own JSON Schemas (draft 2020-12, the dialect of OpenAPI 3.1). It adds what every route shares:
 * the error body, the rate limit's headers, the two kinds of bearer token.
 */
import { z } from 'zod';
import { errors, type ErrorEntry } from './errors.ts';
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

const schemaOf = (schema: z.ZodType, io: 'input' | 'output'): Json => {
  const { $schema: _dialect, ...rest } = z.toJSONSchema(schema, { io, unrepresentable: 'any' }) as Json;
  return rest;
};

const securityOf = (auth: Auth): readonly Json[] => {
  switch (auth.kind) {
    case 'none': return [];
    case 'tier1': return [{ tier1: [] }];
    case 'tier2': return [{ tier2: [...auth.scopes] }];
  }
};

const contentOf = (schema: z.ZodType): Json => {
  const json = schemaOf(schema, 'output');
  return { [json['const'] !== undefined || json['type'] === 'string' ? 'text/plain' : 'application/json']: { schema: json } };
};

/** One answer per status, naming the codes behind it. */
const errorAnswers = (route: Route): Json => {
  const table: Readonly<Record<string, ErrorEntry>> = errors;
  const byStatus = new Map<number, string[]>();
  for (const code of new Set([...sharedErrors(route), ...route.errors])) {
    const entry = table[code];
    if (entry === undefined) throw new TypeError(`${route.id} names ${code}, which is not in the error table`);
    byStatus.set(entry.http, [...byStatus.get(entry.http) ?? [], code]);
  }
  return Object.fromEntries([...byStatus].toSorted(([a], [b]) => a - b).map(([status, codes]) => [String(status), {
    description: codes.map((code) => `\`${code}\`: ${table[code]?.message ?? ''}`).join(' '),
    ...(status === 429 ? { headers: { 'Retry-After': { $ref: '#/components/headers/RetryAfter' } } } : {}),
    content: { 'application/json': { schema: { allOf: [{ $ref: '#/components/schemas/Error' }, { properties: { error: { enum: codes } } }] } } },
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

/** Builds the document. `version` is the product's; `serverUrl` the edge's address. */
export const openApi = (version: string, serverUrl = 'https://localhost:8443'): Json => {
  const paths: Record<string, Record<string, Json>> = {};
  for (const route of routeList) (paths[route.path] ??= {})[route.method.toLowerCase()] = operationOf(route);
  return {
    openapi: '3.1.0',
    info: { title: 'Troupe edge', version, license: { name: 'Apache-2.0', identifier: 'Apache-2.0' } },
    servers: [{ url: serverUrl }],
    paths,
    components: {
      securitySchemes: {
        tier1: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT', description: 'Identity token (ES256, `aud` = the gateway\'s name).' },
        tier2: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT', description: 'Capability of 15 minutes from bootstrap, with scopes.' },
      },
      headers: { RetryAfter: { description: 'Whole seconds until another try can pass.', schema: { type: 'integer', minimum: 1 } } },
      schemas: {
        Error: {
          type: 'object', required: ['error', 'message'],
          properties: { error: { type: 'string', description: 'The code: stable, the contract.' }, message: { type: 'string', description: 'Prose: may change.' } },
        },
      },
    },
  };
};

// Run as a program, not imported (a browser has no process).
if (typeof process === 'object' && process.argv[1]?.endsWith('contracts/openapi.ts') === true) {
  process.stdout.write(`${JSON.stringify(openApi('0.1.0'), null, 2)}\n`);
}
