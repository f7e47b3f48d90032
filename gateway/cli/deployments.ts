/**
 * `troupe deployments …`: an organization's managed deployments from the command line.
 *
 * A deployment is named by its id, or by its name where no other has it. Key and shared secret are printed by the command that makes them and by
 * no other. With `--json` the server's own objects are printed. What one may do is decided by the server alone.
 */
import { z } from 'zod';
import { deployment, type Deployment } from '../../contracts/deployment.ts';
import { deploymentsRoutes as routes } from '../../contracts/deployments-routes.ts';
import { refuse } from '../../contracts/errors.ts';
import { exitCodes, type ExitCode } from './exit.ts';
import { findOrganization, print, table, type OrgWorld } from './org.ts';
import { plain } from './printer.ts';

const made = deployment.extend({ key: z.string(), secret: z.string() });
const changed = deployment.extend({ key: z.string().optional() });

const listOf = async ({ platform, token }: OrgWorld, orgId: string): Promise<readonly Deployment[]> =>
  (await platform.call({ route: routes.deployments, answer: z.object({ deployments: z.array(deployment) }), token, query: { orgId } })).deployments;

/** Throws `not_found`, `bad_usage` where several have the name. */
const find = async (world: OrgWorld, orgId: string, named: string): Promise<Deployment> => {
  const all = await listOf(world, orgId);
  const found = all.filter((one) => one.id === named || one.name === named);
  if (found.length > 1) throw refuse('bad_usage', `Several are called ${plain(named)}: name one by its id, ${found.map(({ id }) => id).join(' or ')}.`);
  const [one] = found;
  if (one === undefined) throw refuse('not_found', `There is no deployment ${plain(named)}. \`troupe deployments list\` shows what there is.`);
  return one;
};

export const listDeployments = async (world: OrgWorld, org: string | undefined): Promise<ExitCode> => {
  const { id } = await findOrganization(world, org);
  const all = await listOf(world, id);
  if (all.length === 0 && !world.json) {
    world.err.write('There is no deployment. `troupe deployments create <name>` makes one.\n');
    return exitCodes.ok;
  }
  return print(world, { deployments: all }, table(all.map((one) => [one.id, one.status, one.createdAt.slice(0, 10), one.agent.id, plain(one.name)])));
};

export const createDeployment = async (world: OrgWorld, org: string | undefined, name: string, purpose: string | undefined): Promise<ExitCode> => {
  const { id: orgId } = await findOrganization(world, org);
  const one = await world.platform.call({ route: routes.createDeployment, answer: made, token: world.token, body: { orgId, name, ...(purpose === undefined ? {} : { purpose }) } });
  if (!world.json) world.err.write(`Made ${one.id} at ${plain(one.url)}, ${one.status}. Its agent is ${plain(one.agent.id)}. Key and secret are shown this once:\n`);
  return print(world, one, table([['key', one.key], ['secret', one.secret]]));
};

const change = async (world: OrgWorld, org: string | undefined, named: string, action: 'restart' | 'rotate_key'): Promise<z.output<typeof changed>> => {
  const { id: orgId } = await findOrganization(world, org);
  const { id } = await find(world, orgId, named);
  return world.platform.call({ route: routes.changeDeployment, answer: changed, token: world.token, body: { orgId, id, action } });
};

export const restartDeployment = async (world: OrgWorld, org: string | undefined, named: string): Promise<ExitCode> => {
  const one = await change(world, org, named, 'restart');
  return print(world, one, `${plain(one.name)} restarts: what runs of it begins anew from its journals.`);
};

export const rotateKey = async (world: OrgWorld, org: string | undefined, named: string): Promise<ExitCode> => {
  const one = await change(world, org, named, 'rotate_key');
  if (!world.json) world.err.write(`The old key of ${plain(one.name)} has ended. The new one is shown this once:\n`);
  return print(world, one, one.key ?? '');
};

/** `confirm` must be the deployment's id: its data is erased for good. */
export const deleteDeployment = async (world: OrgWorld, org: string | undefined, named: string, confirm: string | undefined): Promise<ExitCode> => {
  const { id: orgId } = await findOrganization(world, org);
  const { id, name } = await find(world, orgId, named);
  if (confirm !== id) throw refuse('bad_usage', `This ends ${plain(name)} and erases all its data for good. Repeat with --confirm ${id}.`);
  const one = await world.platform.call({ route: routes.deleteDeployment, answer: deployment, token: world.token, body: { orgId, id } });
  return print(world, one, `${plain(name)} has ended; its data is being erased.`);
};
