/**
 * A whole Troupe with one managed deployment, made by the product's own routes: an owner with an organization on plan `team`, the deployment's
 * key, secret and agent, and a client that speaks to its services over TLS at a listener of their own.
 *
 * Guarantee: as `startPlatform`: when the test ends nothing is left. Start-up takes seconds: share one among the tests of a file.
 */
import assert from 'node:assert/strict';
import type { IncomingMessage } from 'node:http';
import { Agent, request as httpsRequest } from 'node:https';
import { SignJWT } from 'jose';
import { z } from 'zod';
import { deployment, type Deployment } from '../../contracts/deployment.ts';
import { deploymentsRoutes } from '../../contracts/deployments-routes.ts';
import type { organizationCommands } from '../../contracts/organization.ts';
import { freePort } from '../../deploy/start/port.ts';
import { organizationClient, type OrganizationClient } from './organization.ts';
import { answered, startPlatform, type ApiReply, type Method, type Person, type PlatformOptions, type TestPlatform } from './platform.ts';
import type { TestScope } from './stack.ts';
import { systemClient, type SystemClient } from './system.ts';

const made = deployment.extend({ key: z.string(), secret: z.string() });

export interface ServiceCall {
  /** Bearer. Default the deployment's key; null = none. */
  readonly token?: string | null;
  readonly json?: unknown;
  /** Body as it is; takes the place of `json`. */
  readonly body?: Uint8Array | string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Which gateway. Default 0. */
  readonly gateway?: number;
  readonly localAddress?: string;
}

/** A deployment with what its clients hold. */
export interface Held {
  readonly shown: Deployment;
  readonly id: string;
  readonly key: string;
  readonly secret: string;
}

export interface TestDeployment extends TestPlatform, Held {
  /** `{deployment_url}` of the first gateway, and each gateway's port of it. */
  readonly deploymentUrl: string;
  readonly deploymentPorts: readonly number[];
  readonly org: { readonly id: string; readonly slug: string };
  readonly owner: Person;
  readonly organizations: OrganizationClient;
  /** Asks actors as the system does, over NATS. */
  readonly system: SystemClient;
  /** One request to the services; the whole answer. */
  service(method: Method, path: string, call?: ServiceCall): Promise<ApiReply>;
  /** The same, its answer as it comes (streams); the caller reads it to its end or destroys it. */
  open(method: Method, path: string, call?: ServiceCall): Promise<IncomingMessage>;
  /** A further deployment of an organization. */
  provision(owner?: Person, orgId?: string, name?: string): Promise<Held>;
  /** A further organization of a new owner, on a plan. */
  organization(plan?: z.input<typeof organizationCommands.set_plan.input>['plan']): Promise<{ readonly owner: Person; readonly id: string }>;
  /** A service JWT (HS256) with the shared secret. `claims` replace `aud` (the deployment) and `exp` (in 5 minutes). */
  serviceToken(claims?: Readonly<Record<string, unknown>>, held?: Pick<Held, 'id' | 'secret'>): Promise<string>;
}

const jsonOf = (text: string): unknown => {
  try {
    return JSON.parse(text);
  } catch {
    // A stream or bytes: `body` is what there is.
    return undefined;
  }
};

export const serviceJwt = (secret: string, claims: Readonly<Record<string, unknown>>, header: Readonly<Record<string, unknown>> = {}): Promise<string> =>
  new SignJWT({ exp: Math.floor(Date.now() / 1_000) + 300, ...claims }).setProtectedHeader({ alg: 'HS256', ...header }).sign(new TextEncoder().encode(secret));

export const startDeployment = async (scope: TestScope | undefined, options: PlatformOptions = {}): Promise<TestDeployment> => {
  const ports = await Promise.all(Array.from({ length: options.gateways ?? 1 }, () => freePort()));
  const deploymentUrl = `https://localhost:${ports[0]}`;
  const port = options.port ?? await freePort();
  const platform = await startPlatform(scope, {
    ...options, port,
    daemon: { ...options.daemon, deployments: { url: deploymentUrl, ...options.daemon?.deployments } },
    gateway: (index) => ({
      // The page of the console is not built: half a second a gateway. Tests that look at it say `console: true`.
      console: false,
      listeners: [{ host: '127.0.0.1', port: ports[index] ?? 0, surfaces: ['deployment'] }],
      ...(options.gateway instanceof Function ? options.gateway(index) : options.gateway),
    }),
  });
  const agent = new Agent({ ca: platform.ca, keepAlive: false });
  const organizations = organizationClient(platform);
  const system = await systemClient(platform);

  const open: TestDeployment['open'] = (method, path, call = {}) => new Promise((resolve, reject) => {
    const bytes = call.body ?? (call.json === undefined ? undefined : JSON.stringify(call.json));
    const token = call.token === undefined ? first.key : call.token;
    const request = httpsRequest({
      host: '127.0.0.1', servername: 'localhost', port: ports[call.gateway ?? 0], method, path, agent, localAddress: call.localAddress,
      headers: {
        host: `localhost:${ports[call.gateway ?? 0]}`,
        ...(token === null ? {} : { authorization: `Bearer ${token}` }),
        ...(bytes === undefined ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(bytes) }),
        ...call.headers,
      },
    }, resolve);
    request.on('error', reject);
    request.end(bytes);
  });
  const service: TestDeployment['service'] = async (method, path, call = {}) => {
    const answer = await open(method, path, call);
    const chunks: Buffer[] = [];
    for await (const chunk of answer) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks).toString('utf8');
    return { status: answer.statusCode ?? 0, headers: answer.headers, body, json: jsonOf(body) };
  };

  let people = 0;
  const organization: TestDeployment['organization'] = async (plan = 'team') => {
    const owner = await platform.signUp(`owner-${people++}@example.com`);
    const { id } = await organizations.create(owner);
    await system.ask({ org: id, type: 'organization', key: id }, 'set_plan', { plan, reason: 'test' });
    return { owner, id };
  };
  const provisionFor = async (owner: Person, orgId: string, name = 'Test'): Promise<Held> => {
    const reply = await platform.api('POST', deploymentsRoutes.createDeployment.path, { token: owner.accessToken, json: { orgId, name, purpose: 'To be tested' } });
    const { key, secret, ...shown } = answered(reply, 201, made);
    assert.equal(shown.status, 'running');
    return { shown, id: shown.id, key, secret };
  };
  const { owner, id: orgId } = await organization();
  const { slug } = await organizations.read(orgId, owner);
  const first = await provisionFor(owner, orgId);

  return {
    ...platform, ...first, deploymentUrl, deploymentPorts: ports, org: { id: orgId, slug }, owner, organizations, system, service, open, organization,
    provision: (by = owner, of = orgId, name) => provisionFor(by, of, name),
    serviceToken: (claims = {}, held = first) => serviceJwt(held.secret, { aud: held.id, ...claims }),
    stop: async () => {
      agent.destroy();
      await system.close();
      await platform.stop();
    },
  };
};
