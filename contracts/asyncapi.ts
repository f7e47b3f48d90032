/**
 * The AsyncAPI 3.0 document: the session WebSocket, and on NATS the actors' commands and their live feed. Made of the same
 * schemas that validate. `node contracts/asyncapi.ts` prints it.
 *
 * The NATS side describes the public addresses only: `part`, `journal`, `inbox` and the rest belong to the hosts. It lists every
 * command of a contract; which of them an integrator may call is the actor's definition (others answer `forbidden`).
 */
import { z } from 'zod';
import { actorContracts, routes, streamQuery } from './routes.ts';
import { closeCodes, subprotocols, wireInbound, wireOutbound } from './stream.ts';

type Json = Readonly<Record<string, unknown>>;

const schemaOf = (schema: z.ZodType, io: 'input' | 'output' = 'input'): Json => {
  const { $schema: _dialect, ...rest } = z.toJSONSchema(schema, { io, unrepresentable: 'any' }) as Json;
  return rest;
};

/** `send_message` → `SendMessage`: the envelope names of the interface. */
const envelopeName = (kind: string): string => kind.split('_').map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join('');

const envelopes = (union: typeof wireOutbound | typeof wireInbound): readonly (readonly [string, Json])[] =>
  union.options.map((option) => [envelopeName(option.shape.kind.value), { contentType: 'application/json', payload: schemaOf(option, 'output') }] as const);

const reference = (path: string): Json => ({ $ref: `#/${path}` });

interface CommandSchemas { readonly input: z.ZodType; readonly output: z.ZodType }

const commandsOf = (type: string, commands: Readonly<Record<string, CommandSchemas>>): { channels: Record<string, Json>; operations: Record<string, Json> } => {
  const channels: Record<string, Json> = {};
  const operations: Record<string, Json> = {};
  for (const [name, command] of Object.entries(commands)) {
    const id = `${type}.${name}`;
    channels[id] = {
      address: `actor.{org}.${type}.{key}.${name}`, servers: [reference('servers/nats')],
      parameters: { org: reference('components/parameters/org'), key: reference('components/parameters/key') },
      messages: {
        request: { contentType: 'application/json', payload: schemaOf(command.input) },
        reply: { contentType: 'application/json', payload: schemaOf(command.output, 'output'), headers: reference('components/schemas/ServiceErrorHeaders') },
      },
    };
    operations[id] = {
      action: 'receive', channel: reference(`channels/${id}`), messages: [reference(`channels/${id}/messages/request`)],
      reply: { address: { location: '$message.header#/reply' }, channel: reference(`channels/${id}`), messages: [reference(`channels/${id}/messages/reply`)] },
    };
  }
  return { channels, operations };
};

/** Builds the document. `version` is the product's. */
export const asyncApi = (version: string, hosts: { readonly edge: string; readonly nats: string } = { edge: 'localhost:8443', nats: '127.0.0.1:4222' }): Json => {
  const outbound = envelopes(wireOutbound);
  const inbound = envelopes(wireInbound);
  const actors = Object.entries(actorContracts).map(([type, commands]) => commandsOf(type, commands));
  const stream = 'channels/session_stream';
  const messages = (of: typeof outbound): readonly Json[] => of.map(([name]) => reference(`${stream}/messages/${name}`));
  return {
    asyncapi: '3.0.0',
    info: { title: 'Troupe streams and actors', version, license: { name: 'Apache-2.0' } },
    defaultContentType: 'application/json',
    servers: {
      edge: { host: hosts.edge, protocol: 'wss', description: 'TLS 1.3. The token goes as Authorization header or as a subprotocol.' },
      nats: { host: hosts.nats, protocol: 'nats', description: 'Credentials confine an integrator to the subjects of its organization.' },
    },
    channels: {
      session_stream: {
        address: routes.stream.path, title: routes.stream.summary, servers: [reference('servers/edge')],
        description: `JSON text frames. Close codes: ${Object.values(closeCodes).map(({ code, reason }) => `${code} ${reason}`).join(', ')}.`,
        bindings: { ws: { method: 'GET', query: schemaOf(streamQuery), headers: {
          type: 'object', properties: { 'Sec-WebSocket-Protocol': { type: 'string', description: `${subprotocols.bearerPrefix}<token>, ${subprotocols.plain}` } },
        } } },
        messages: Object.fromEntries([...outbound, ...inbound]),
      },
      actor_feed: {
        address: 'events.{org}.{type}.{key}', servers: [reference('servers/nats')],
        description: 'Every commit of an actor, after it is journaled, once and in order. Nats-Sequence and Nats-Last-Sequence show a watcher any hole.',
        parameters: { org: reference('components/parameters/org'), type: { description: 'Actor type.' }, key: reference('components/parameters/key') },
        messages: { commit: { contentType: 'application/json', payload: { type: 'object', description: 'A Commit (contracts/event.ts).' } } },
      },
      ...Object.assign({}, ...actors.map((actor) => actor.channels)) as Json,
    },
    operations: {
      client_sends: { action: 'receive', channel: reference(stream), messages: messages(outbound) },
      client_receives: { action: 'send', channel: reference(stream), messages: messages(inbound) },
      actor_commits: { action: 'send', channel: reference('channels/actor_feed'), messages: [reference('channels/actor_feed/messages/commit')] },
      ...Object.assign({}, ...actors.map((actor) => actor.operations)) as Json,
    },
    components: {
      parameters: {
        org: { description: 'Organization, encoded as a subject token (contracts/subjects.ts).' },
        key: { description: 'The actor\'s key, encoded as a subject token.' },
      },
      schemas: {
        ServiceErrorHeaders: {
          type: 'object', description: 'NATS ADR-32: present when the command was refused or failed.',
          properties: { 'Nats-Service-Error-Code': { type: 'string' }, 'Nats-Service-Error': { type: 'string' } },
        },
      },
    },
  };
};

// Run as a program, not imported (a browser has no process).
if (typeof process === 'object' && process.argv[1]?.endsWith('contracts/asyncapi.ts') === true) {
  process.stdout.write(`${JSON.stringify(asyncApi('0.1.0'), null, 2)}\n`);
}
