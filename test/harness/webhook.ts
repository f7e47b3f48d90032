/**
 * A webhook actor on the real engine with a scripted network: the test sees every attempt, ends it as it likes, moves time and loses the
 * host. Waiting is by attempt or by what the journal holds.
 */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { PostRequest, PostResult } from '../../actors/webhook/post.ts';
import { webhook, type WebhookDeps } from '../../actors/webhook/webhook.ts';
import { coded, CodedError } from '../../contracts/errors.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { deliveredEvent, webhookCommands, type DeadLetter } from '../../contracts/webhook.ts';
import { actorHost, type ActorHost } from './actor-host.ts';
import { recorder } from './log.ts';

export const org = 'org_01jtest';
export const address = { org, type: 'webhook', key: org };
export const url = 'https://hooks.example.com/troupe';
/** Followed by the organization and the version. */
export const secret = 'whsec_not-in-any-journal';

export interface Try extends PostRequest {
  /** The host's time. */
  readonly at: number;
  give(result: PostResult): void;
  fail(error: Error): void;
}

export interface Setting {
  readonly host: ActorHost;
  readonly log: ReturnType<typeof recorder>;
  readonly tries: readonly Try[];
  /** The n-th attempt, from 1, when it begins. */
  attempt(nth: number): Promise<Try>;
  /** From now on every attempt ends so. */
  always(by: ((request: Try) => PostResult) | undefined): void;
  configure(to: string | null, more?: object): Promise<unknown>;
  notify(id: string, data?: object): Promise<unknown>;
  dead(): Promise<readonly DeadLetter[]>;
  pending(): Promise<number>;
  /** Resolves when the journal holds so many events of a kind. */
  seen(kind: string, count: number): Promise<readonly StoredEvent[]>;
}

export const ok: PostResult = { ok: true, status: 200 };
export const status = (code: number): PostResult => ({ ok: false, failure: 'status', status: code });

export const setting = (t: TestContext): Setting => {
  const tries: Try[] = [];
  const waits: { readonly nth: number; readonly give: (one: Try) => void }[] = [];
  let answer: ((request: Try) => PostResult) | undefined;
  const deps: WebhookDeps = {
    now: () => host.now(),
    secret: (orgId, version) => `${secret}.${orgId}.${version}`,
    post: async (request) => {
      const ended = Promise.withResolvers<PostResult>();
      const one: Try = { ...request, at: host.now(), give: ended.resolve, fail: ended.reject };
      request.signal.addEventListener('abort', () => ended.reject(coded('aborted')));
      tries.push(one);
      if (answer !== undefined) ended.resolve(answer(one));
      for (const wait of waits) if (tries.length === wait.nth) wait.give(one);
      return ended.promise;
    },
  };
  const log = recorder();
  const host = actorHost([webhook(deps)], { log });
  t.after(() => host.stop());
  return {
    host, log, tries,
    attempt: async (nth) => tries[nth - 1] ?? new Promise((give) => { waits.push({ nth, give }); }),
    always: (by) => { answer = by; },
    configure: async (to, more = {}) => host.ask(address, 'configure', { url: to, ...more }),
    notify: async (id, data = {}) => host.ask(address, 'notify', { id, type: 'member.joined', created: '2030-01-01T00:00:00.000Z', data }),
    dead: async () => webhookCommands.dead_letters.output.parse(await host.ask(address, 'dead_letters', {})).dead_letters,
    pending: async () => webhookCommands.describe.output.parse(await host.ask(address, 'describe', {})).pending,
    seen: async (kind, count) => (await host.until(address, (events) => events.filter(({ k }) => k === kind).length >= count)).filter(({ k }) => k === kind),
  };
};

export const idOf = (one: Try): string => deliveredEvent.parse(JSON.parse(one.body)).id;
export const codeOf = async (promise: Promise<unknown>): Promise<string> => {
  const error: unknown = await promise.then(() => assert.fail('it was taken'), (cause: unknown) => cause);
  assert.ok(error instanceof CodedError, String(error));
  return error.code;
};
export const dueOf = (event: StoredEvent | undefined): number => Number(event?.d['due']);
