/**
 * Deployments with their organization, names and regulation on the real engine, the product's own handlers and callers before them; putting
 * down and erasing is in the test's hands.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { z } from 'zod';
import { readMasterKey, createVault, type Vault } from '../../actors/custody/vault.ts';
import { createDeploymentCallers, type DeploymentCallers } from '../../actors/daemon/deployment/callers.ts';
import { deploymentsHandlers } from '../../actors/daemon/platform/deployments.ts';
import type { PlatformResult } from '../../actors/daemon/platform/serve.ts';
import { deployment } from '../../actors/deployment/deployment.ts';
import { name } from '../../actors/name/name.ts';
import { organization } from '../../actors/organization/organization.ts';
import { regulation } from '../../actors/regulation/regulation.ts';
import { Ulids } from '../../actors/runtime/ulid.ts';
import { wallet } from '../../actors/wallet/wallet.ts';
import { agentTokenRoutes } from '../../contracts/agent-token-routes.ts';
import { deployment as deploymentSchema, deploymentAddress } from '../../contracts/deployment.ts';
import { deploymentsRoutes as routes } from '../../contracts/deployments-routes.ts';
import { coded } from '../../contracts/errors.ts';
import type { DeploymentCaller } from '../../contracts/deployment.ts';
import type { PlanName } from '../../contracts/organization.ts';
import type { Role } from '../../contracts/permissions.ts';
import type { Caller } from '../../contracts/platform.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';
import { actorHost, type ActorHost } from './actor-host.ts';
import { person } from './organization-actor.ts';
import { keptWebhook } from './paid.ts';

const made = deploymentSchema.extend({ key: z.string(), secret: z.string() });
export type Made = z.output<typeof made>;

/** A person as callers.ts gives them. */
export const callerOf = (who: string): Caller =>
  ({ kind: 'user', userId: `usr_${who}`, email: `${who}@example.com`, name: who, grantId: 'grt_1', policy: '', accepted: '', expiresAtMs: 0 });

export interface DeploymentWorld {
  readonly host: ActorHost;
  readonly vault: Vault;
  readonly callers: DeploymentCallers;
  /** Work of deployments that was begun, in order: `restart <id>`, `erase <id>`. */
  readonly work: string[];
  /** Work fails with this code from now on. */
  workFails: string | undefined;
  /** Moves the callers' clock. */
  offsetMs: number;
  /** An organization by `owner`, on a plan, with members. */
  found(orgId: string, plan?: PlanName, members?: Readonly<Record<string, Exclude<Role, 'owner'>>>): Promise<void>;
  plan(orgId: string, plan: PlanName): Promise<void>;
  /** One request of `/api/deployments`. Rejects with the refusal. */
  call(route: keyof typeof routes, who: string | Caller, input: Readonly<Record<string, unknown>>): Promise<PlatformResult>;
  /** A running deployment. */
  create(orgId: string, name?: string): Promise<Made>;
  /** Who a bearer is, as the daemon decides it. */
  who(token: string): Promise<DeploymentCaller | undefined>;
  /** Kinds of an actor's own events. */
  kinds(address: ActorAddress): Promise<string[]>;
}

export const deploymentWorld = async (t: { after(fn: () => void): void }, options: { readonly defaultId?: string; readonly modeHoldMs?: number } = {}): Promise<DeploymentWorld> => {
  const vault = createVault(readMasterKey(randomBytes(32).toString('base64')));
  const work: string[] = [];
  const ulids = new Ulids(Date.now);
  const did = async (what: string): Promise<void> => {
    work.push(what);
    if (self.workFails !== undefined) throw coded('journal_unavailable', self.workFails);
  };
  const host = actorHost([
    deployment({
      restart: async ({ key }) => {
        await did(`restart ${key}`);
        return 3;
      },
      erase: async ({ key }) => did(`erase ${key}`),
      ...(options.modeHoldMs === undefined ? {} : { modeHoldMs: options.modeHoldMs }),
    }),
    organization({ mailer: { send: async () => undefined }, invitationLink: () => '', now: () => host.now(), erase: async () => undefined, retain: async () => ({ more: false }) }),
    name(), regulation(), wallet(), keptWebhook,
  ]);
  t.after(() => host.stop());
  const actors = { ask: ({ address, command, input, principal, id }: { address: ActorAddress; command: string; input: unknown; principal: Parameters<ActorHost['ask']>[3]; id?: string }) => host.ask(address, command, input, principal, id) };
  const handlers = deploymentsHandlers({ actors: actors as never, vault, url: 'https://deployments.example', now: () => host.now(), newUlid: () => ulids.next() });
  const callers = createDeploymentCallers({ actors: actors as never, vault, defaultId: options.defaultId, now: () => host.now() + self.offsetMs });
  const signal = new AbortController().signal;

  const self: DeploymentWorld = {
    host, vault, callers, work, workFails: undefined, offsetMs: 0,
    found: async (orgId, plan = 'team', members = {}) => {
      const at = { org: orgId, type: 'organization', key: orgId };
      await host.ask(at, 'create', { name: 'Acme', slug: orgId.slice(-12), default_model: 'mock', by: person('owner') });
      await host.ask(at, 'set_plan', { plan: 'team', reason: 'test' });
      for (const [who, role] of Object.entries(members)) {
        await host.ask(at, 'invite', { id: `inv_${who}`, email: `${who}@example.com`, role, by: person('owner') });
        await host.ask(at, 'accept', { invitation_id: `inv_${who}`, by: person(who) });
      }
      await self.plan(orgId, plan);
    },
    plan: async (orgId, plan) => {
      await host.ask({ org: orgId, type: 'organization', key: orgId }, 'set_plan', { plan, reason: 'test' });
    },
    call: async (route, who, input) => {
      const { id, body, query } = routes[route];
      const handler = handlers[id];
      assert.ok(handler !== undefined);
      const caller = typeof who === 'string' ? callerOf(who) : who;
      const parsed = (body ?? query)?.parse(input);
      return handler.run({ caller, token: '', context: { ip: '192.0.2.1', user_agent: 'test' }, query: query === undefined ? undefined : parsed, body: body === undefined ? undefined : parsed, deadlineAt: Number.POSITIVE_INFINITY, signal });
    },
    create: async (orgId, named = 'One') => {
      const { status, body } = await self.call('createDeployment', 'owner', { orgId, name: named, purpose: 'To be tested' });
      assert.equal(status, 201);
      return made.parse(body);
    },
    who: (token) => callers.authorise(agentTokenRoutes.agentToken as never, token),
    kinds: async (address) => (await host.events(address)).map(({ k }) => k).filter((k) => !k.startsWith('$')),
  };
  return self;
};

export const deploymentAt = (of: { readonly organizationId: string; readonly id: string }): ActorAddress => deploymentAddress(of.organizationId, of.id);
