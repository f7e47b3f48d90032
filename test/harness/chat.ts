/** Public chat for tests: people who may chat, the official client over the stack's TLS, and commands that only the system may give (plans). */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { connect } from 'nats';
import OpenAI from 'openai';
import { Agent, fetch as undiciFetch } from 'undici';
import { z } from 'zod';
import { authRoutes, tokenAnswer } from '../../contracts/auth-routes.ts';
import { chatRoutes } from '../../contracts/chat-routes.ts';
import { limits } from '../../contracts/limits.ts';
import { organizationCommands } from '../../contracts/organization.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { ownerSubject, partitionOf, streams, wildcards, type ActorAddress } from '../../contracts/subjects.ts';
import { decodeAnswer, encodeOwnerRequest } from '../../actors/runtime/cluster/wire.ts';
import { decodeCommit } from '../../actors/runtime/commit.ts';
import { forward } from '../../actors/runtime/nats/read.ts';
import { createNatsStores } from '../../actors/runtime/nats/stores.ts';
import { organizationClient, type OrganizationClient } from './organization.ts';
import { answered, type ApiReply, type Person, type TestPlatform } from './platform.ts';

export const completionsPath = chatRoutes.completions.path;
export const say = (content: string): { role: 'user'; content: string }[] => [{ role: 'user', content }];

export interface ChatWorld {
  readonly organizations: OrganizationClient;
  /** Signs up and accepts the terms; the token is made after that. */
  person(email: string): Promise<Person>;
  /** Accepts the manifest in force; a token made after that. */
  accept(person: Person): Promise<string>;
  /** The official client, unmodified but for the test's certificate authority; it tries once. */
  client(token: string, options?: { readonly gateway?: number; readonly headers?: Readonly<Record<string, string>> }): OpenAI;
  post(token: string, body: unknown, options?: { readonly gateway?: number; readonly headers?: Readonly<Record<string, string>> }): Promise<ApiReply>;
  /** One small answer's status. */
  status(token: string, options?: { readonly gateway?: number; readonly headers?: Readonly<Record<string, string>> }): Promise<number>;
  /** Asks an actor as the system does. */
  system(address: ActorAddress, command: string, input: unknown): Promise<unknown>;
  /** What the completion actors (of an organization, or of all) have journaled, in order. */
  journaled(org?: string): Promise<StoredEvent[]>;
  setPlan(orgId: string, input: Omit<z.input<typeof organizationCommands.set_plan.input>, 'reason'>): Promise<void>;
  stop(): Promise<void>;
}

const manifest = z.object({ hash: z.string() });

export const chatWorld = async (platform: TestPlatform): Promise<ChatWorld> => {
  const dispatcher = new Agent({ connect: { ca: platform.ca } });
  const nc = await connect({ servers: platform.nats.url });
  const { lean } = createNatsStores(nc, { partitions: limits.partitions, journalStreams: 1, replicas: 1 });
  // The client's own type of fetch is the browser's; undici's is the same thing.
  const fetchThere = ((url: string, init: object) => undiciFetch(url, { ...init, dispatcher })) as unknown as typeof globalThis.fetch;

  const accept: ChatWorld['accept'] = async ({ accessToken, cookie, csrf }) => {
    const { hash } = answered(await platform.api('GET', '/api/legal/manifest'), 200, manifest);
    const given = await platform.api('POST', authRoutes.acceptance.path, { token: accessToken, json: { hash, terms: true, privacy: true, processing: true, age: true } });
    assert.equal(given.status, 200, given.body);
    return answered(await platform.api('POST', authRoutes.sessionToken.path, { cookie, csrf, json: {} }), 200, tokenAnswer).access_token;
  };
  const post: ChatWorld['post'] = (token, body, { gateway = 0, headers = {} } = {}) => platform.api('POST', completionsPath, { token, json: body, gateway, headers });
  const system: ChatWorld['system'] = async (address, command, input) => {
    const data = encodeOwnerRequest({ input, principal: { kind: 'system' }, id: randomUUID(), deadlineMs: limits.askDeadlineMs });
    return decodeAnswer(await nc.request(ownerSubject(partitionOf(address, limits.partitions), address, command), data, { timeout: limits.askDeadlineMs }));
  };
  return {
    organizations: organizationClient(platform), accept, post, system,
    person: async (email) => {
      const person = await platform.signUp(email);
      return { ...person, accessToken: await accept(person) };
    },
    client: (token, { gateway = 0, headers = {} } = {}) => {
      const at = platform.gateways[gateway];
      assert.ok(at !== undefined);
      return new OpenAI({ apiKey: token, baseURL: `${at.url}/api/v1`, maxRetries: 0, fetch: fetchThere, defaultHeaders: headers });
    },
    journaled: async (org) => {
      const events: StoredEvent[] = [];
      for await (const batch of forward(lean, streams.journal(0, 1), wildcards.journals('completion', org), 1, Number.MAX_SAFE_INTEGER)) {
        for (const { data } of batch) events.push(...decodeCommit(data).ev);
      }
      return events;
    },
    status: async (token, options) => (await post(token, { model: 'mock', messages: say('/say x') }, options)).status,
    setPlan: async (orgId, input) => {
      await system({ org: orgId, type: 'organization', key: orgId }, 'set_plan', { ...input, reason: 'test' });
    },
    stop: async () => {
      await dispatcher.destroy();
      await nc.close();
    },
  };
};
