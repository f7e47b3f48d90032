/** OpenAPI and AsyncAPI: whole, made of the tables, every reference leads somewhere. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import test from 'node:test';
import { asyncApi } from '../../contracts/asyncapi.ts';
import { errors } from '../../contracts/errors.ts';
import { openApi } from '../../contracts/openapi.ts';
import { deploymentRouteList } from '../../contracts/deployment-routes.ts';
import { platformRouteList } from '../../contracts/platform-routes.ts';
import { actorContracts, routeList } from '../../contracts/routes.ts';
import { outboundKinds } from '../../contracts/stream.ts';
import { root } from '../repo/source.ts';

type Tree = { readonly [key: string]: Tree } & Readonly<Record<string, unknown>>;
const tree = (value: unknown): Tree => JSON.parse(JSON.stringify(value)) as Tree;
const openapi = tree(openApi('1.2.3', 'https://edge.example'));
const asyncapi = tree(asyncApi('1.2.3'));

const at = (document: unknown, path: readonly string[]): unknown =>
  path.reduce<unknown>((value, key) => (typeof value === 'object' && value !== null && Object.hasOwn(value, key) ? (value as Tree)[key] : undefined), document);

const references = (value: unknown): string[] => {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) => (key === '$ref' && typeof inner === 'string' ? [inner] : references(inner)));
};

for (const [name, document] of [['OpenAPI', openapi], ['AsyncAPI', asyncapi]] as const) {
  test(`documents - every reference in the ${name} document leads somewhere`, () => {
    const found = references(document);
    assert.ok(found.length > 5);
    // JSON Pointer (RFC 6901): no key here holds ~ or /.
    for (const ref of found) assert.notEqual(at(document, ref.replace('#/', '').split('/')), undefined, ref);
  });
}

/** As OpenAPI writes a path's parameters. */
const documented = (path: string): string => path.replaceAll(/:(\w+)/g, '{$1}');

test('documents - OpenAPI has exactly the routes of the table', () => {
  assert.equal(openapi['openapi'], '3.1.0');
  const listed = Object.entries(openapi['paths'] ?? {}).flatMap(([path, methods]) => Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`));
  assert.deepEqual(listed.toSorted(), [...routeList, ...platformRouteList, ...deploymentRouteList].map((r) => `${r.method} ${documented(r.path)}`).toSorted());
});

test('documents - each operation names its answers, errors, body bound and token', () => {
  for (const route of routeList) {
    const operation = at(openapi, ['paths', route.path, route.method.toLowerCase()]) as Tree;
    assert.equal(operation['operationId'], route.id);
    const responses = operation['responses'] as unknown as Tree;
    const wanted = route.serve.by === 'stream' ? ['101'] : Object.keys(route.answers);
    for (const status of wanted) assert.ok(Object.hasOwn(responses, status), `${route.id} ${status}`);
    for (const code of route.errors) {
      const status = String(errors[code as keyof typeof errors].http);
      const codes = at(responses, [status, 'content', 'application/json', 'schema', 'allOf', '1', 'properties', 'error', 'enum']) as string[];
      assert.ok(codes.includes(code), `${route.id} ${code}`);
    }
    assert.ok(Object.hasOwn(responses, '429'), `${route.id} can be rate limited`);
    assert.equal(Object.hasOwn(operation, 'requestBody'), route.body !== undefined);
    if (route.body !== undefined) assert.match(String(at(operation, ['requestBody', 'description'])), new RegExp(`${route.bodyMaxBytes}`));
    assert.deepEqual(operation['security'], route.auth.kind === 'none' ? [] : route.auth.kind === 'tier1' ? [{ tier1: [] }] : [{ tier2: route.auth.scopes }]);
  }
});

test('documents - the chat operations say their two headers, and that their answer may be events, the processor\'s its signature; no other has either', () => {
  for (const route of platformRouteList) {
    const operation = at(openapi, ['paths', documented(route.path), route.method.toLowerCase()]) as Tree;
    const parameters = (operation['parameters'] ?? []) as unknown as readonly Tree[];
    const headers = parameters.flatMap((one) => (JSON.stringify(one['in']) === '"header"' ? [JSON.stringify(one['name'])] : []));
    const types = Object.keys((at(operation, ['responses', '200', 'content']) ?? {}) as object);
    const chats = route.id === 'chat_completions' || route.id === 'ui_chat';
    assert.deepEqual(headers, chats ? ['"troupe-organization"', '"x-session-id"'] : route.id === 'payment_events' ? ['"stripe-signature"'] : [], route.id);
    if (chats) assert.deepEqual(types, ['application/json', 'text/event-stream'], route.id);
    else assert.ok(!types.includes('text/event-stream'), route.id);
  }
});

test('documents - each platform operation names its answers, errors in its own shape, forms, token and CSRF proof', () => {
  for (const route of platformRouteList) {
    const operation = at(openapi, ['paths', documented(route.path), route.method.toLowerCase()]) as Tree;
    assert.equal(operation['operationId'], route.id);
    const responses = operation['responses'] as unknown as Tree;
    for (const status of Object.keys(route.answers)) assert.ok(Object.hasOwn(responses, status), `${route.id} ${status}`);
    for (const code of route.errors) {
      const status = code === 'validation_error' ? route.invalidStatus ?? 422 : errors[code as keyof typeof errors].http;
      const schema = at(responses, [String(status), 'content', 'application/json', 'schema', 'allOf', '1', 'properties', 'error']) as Tree;
      const codes = (route.errorShape === 'oauth' ? schema['enum'] : at(schema, ['properties', 'code', 'enum'])) as unknown as string[];
      assert.ok(codes.includes(code === 'invalid_refresh' ? 'invalid_grant' : code), `${route.id} ${code}`);
    }
    assert.ok(Object.hasOwn(responses, '429'), `${route.id} can be rate limited`);
    assert.equal(Object.hasOwn(operation, 'requestBody'), route.body !== undefined);
    if (route.body !== undefined) {
      const types = Object.keys(at(operation, ['requestBody', 'content']) as object);
      assert.deepEqual(types, ['application/json', ...(route.form === true ? ['application/x-www-form-urlencoded'] : [])]);
    }
    const csrf = (operation['parameters'] as unknown as { $ref?: string }[]).some((parameter) => parameter.$ref?.endsWith('/Csrf') === true);
    assert.equal(csrf, route.auth.kind === 'cookie' && route.method !== 'GET', route.id);
  }
});

test('documents - each operation of a deployment names its answers, its errors in the envelope, and its credential; malformed input is invalid_argument [ERR-015]', () => {
  for (const route of deploymentRouteList) {
    const operation = at(openapi, ['paths', documented(route.path), route.method.toLowerCase()]) as Tree;
    assert.equal(operation['operationId'], route.id);
    assert.deepEqual(operation['security'], route.auth.kind === 'none' ? [] : [{ deployment: [] }], route.id);
    const responses = operation['responses'] as unknown as Tree;
    for (const status of Object.keys(route.answers)) assert.ok(Object.hasOwn(responses, status), `${route.id} ${status}`);
    for (const code of [...route.errors, ...(route.body === undefined && route.query === undefined ? [] : ['invalid_argument'])]) {
      const codes = at(responses, [String(errors[code as keyof typeof errors].http), 'content', 'application/json', 'schema', 'allOf', '1', 'properties', 'error', 'properties', 'code', 'enum']) as unknown as string[];
      assert.ok(codes.includes(code), `${route.id} ${code}`);
    }
    assert.ok(!JSON.stringify(responses).includes('"validation_error"'), route.id);
  }
});

test('documents - bodies refuse unknown fields, and a stream\'s query says which field is required', () => {
  const body = at(openapi, ['paths', '/v1/agent/create_session', 'post', 'requestBody', 'content', 'application/json', 'schema']) as Tree;
  assert.equal(body['additionalProperties'], false);
  assert.deepEqual(body['required'], ['user_id', 'project_id']);
  const parameters = at(openapi, ['paths', '/v1/agent/stream', 'get', 'parameters']) as { name: string; required: boolean }[];
  assert.deepEqual(parameters.map(({ name, required }) => [name, required]), [['sid', true], ['last_seq_no', false]]);
  assert.equal(at(openapi, ['paths', '/healthz', 'get', 'responses', '200', 'content', 'text/plain', 'schema', 'const']), 'OK');
});

test('documents - AsyncAPI has every envelope of the stream under its direction, and every command of every actor', () => {
  assert.equal(asyncapi['asyncapi'], '3.0.0');
  const names = (operation: string): string[] => (at(asyncapi, ['operations', operation, 'messages']) as { $ref: string }[]).map(({ $ref }) => $ref.split('/').at(-1) ?? '');
  assert.deepEqual(names('client_sends').toSorted(), ['ApproveDispatch', 'CancelDispatch', 'Close', 'Ping', 'SendMessage']);
  assert.equal(outboundKinds.size, 5);
  assert.deepEqual(names('client_receives').toSorted(), ['AgentEvent', 'Closing', 'Pong']);
  for (const [type, commands] of Object.entries(actorContracts)) {
    for (const command of Object.keys(commands)) {
      const channel = at(asyncapi, ['channels', `${type}.${command}`]) as Tree;
      assert.equal(channel['address'], `actor.{org}.${type}.{key}.${command}`);
      assert.equal(at(channel, ['messages', 'request', 'payload', 'additionalProperties']), false);
      assert.notEqual(at(asyncapi, ['operations', `${type}.${command}`, 'reply']), undefined);
    }
  }
});

test('documents - run as programs, they print JSON and nothing else', () => {
  for (const name of ['openapi', 'asyncapi']) {
    const printed = execFileSync(process.execPath, [join(root, 'contracts', `${name}.ts`)], { encoding: 'utf8', maxBuffer: 16 * 1024 * 1024 });
    assert.ok(Object.hasOwn(JSON.parse(printed) as object, name));
  }
});
