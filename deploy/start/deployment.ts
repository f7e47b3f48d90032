/**
 * The development deployment: made at the first start by the product's own route, kept in `.troupe/deployment.json` (0600) with its key and shared
 * secret, which are shown only once, and used again. One that the platform does not know any more is made anew.
 */
import { existsSync, readFileSync } from 'node:fs';
import { rootCertificates } from 'node:tls';
import { Agent, fetch } from 'undici';
import { z } from 'zod';
import { deployment } from '../../contracts/deployment.ts';
import { deploymentsRoutes } from '../../contracts/deployments-routes.ts';
import { limits } from '../../contracts/limits.ts';
import { writePrivate } from './folder.ts';

const kept = z.strictObject({ id: z.string(), key: z.string(), secret: z.string() });
export type DevDeployment = z.infer<typeof kept>;

export interface DeploymentPlace {
  readonly baseUrl: string;
  readonly caPem: string;
  /** Of the organization's owner. */
  readonly token: string;
  readonly organizationId: string;
  readonly keptPath: string;
  /** Puts the organization on a plan that has deployments. */
  readonly allow: () => Promise<void>;
}

export const readKeptDeployment = (path: string): DevDeployment | undefined => {
  if (!existsSync(path)) return undefined;
  const parsed = kept.safeParse(JSON.parse(readFileSync(path, 'utf8')));
  return parsed.success ? parsed.data : undefined;
};

/** `made`: just now. Throws a sentence naming the step that failed. */
export const ensureDeployment = async (place: DeploymentPlace): Promise<DevDeployment & { readonly made: boolean }> => {
  const agent = new Agent({ connect: { ca: [...rootCertificates, place.caPem] } });
  const { path } = deploymentsRoutes.deployments;
  const ask = async (method: 'GET' | 'POST', address: string, body?: object): Promise<{ readonly status: number; readonly body: unknown }> => {
    const answer = await fetch(place.baseUrl + address, {
      method, dispatcher: agent, redirect: 'error', signal: AbortSignal.timeout(limits.clientRequestMs),
      headers: { accept: 'application/json', authorization: `Bearer ${place.token}`, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return { status: answer.status, body: JSON.parse(await answer.text()) };
  };
  try {
    const before = readKeptDeployment(place.keptPath);
    if (before !== undefined) {
      const known = await ask('GET', `${path}?${new URLSearchParams({ orgId: place.organizationId, id: before.id }).toString()}`);
      if (known.status === 200 && deployment.parse(known.body).status === 'running') return { ...before, made: false };
    }
    await place.allow();
    const made = await ask('POST', path, { orgId: place.organizationId, name: 'Development', purpose: 'To try things out' });
    if (made.status !== 201) throw new Error(`POST ${path} answered ${made.status} ${JSON.stringify(made.body)}`);
    const { id, key, secret } = z.object({ id: z.string(), key: z.string(), secret: z.string() }).parse(made.body);
    writePrivate(place.keptPath, `${JSON.stringify({ id, key, secret }, null, 2)}\n`);
    return { id, key, secret, made: true };
  } finally {
    await agent.destroy();
  }
};
