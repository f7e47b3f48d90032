/** `troupe deployments` as a process against a whole Troupe: what it makes works, what is shown once is shown once, and what it says when it is refused. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { z } from 'zod';
import { deployment } from '../../contracts/deployment.ts';
import { startDeployment } from '../harness/deployment.ts';
import { commandLine } from '../harness/newcomer.ts';

const made = deployment.extend({ key: z.string(), secret: z.string() });
const listed = z.strictObject({ deployments: z.array(deployment) });

test('cli for deployments - made, listed, restarted, re-keyed and ended from the command line [RUN-038] [RUN-042] [RUN-043] [RUN-045]', async (t) => {
  // Ended here, before the stack: hooks run in the order they were given.
  const world = await startDeployment(undefined);
  const command = await commandLine(t, world);
  t.after(() => world.stop());
  const env = { TROUPE_TOKEN: world.owner.accessToken };
  const run = (args: readonly string[], who = env) => command.run(['deployments', ...args], { env: who });
  const state = (key: string): Promise<number> => world.service('GET', '/v1/regulation/state', { token: key }).then(({ status }) => status);

  const one = await command.json(['deployments', 'create', 'By hand', '--purpose', 'To try the command'], made, { env });
  assert.equal(await state(one.key), 200);
  const shown = await run(['create', 'For a person']);
  const [, key = '', secret = ''] = /^key +(trp_dk_\S+)\nsecret +(trp_ds_\S+)\n$/.exec(shown.out) ?? assert.fail(shown.out);
  assert.match(shown.err, /shown this once/);
  assert.equal(await state(key), 200);

  const { deployments } = await command.json(['deployments', 'list'], listed, { env });
  assert.deepEqual(deployments.map(({ name }) => name), ['Test', 'By hand', 'For a person']);
  const list = await run(['list']);
  assert.match(list.out, new RegExp(`^${one.id}  running +\\d{4}-\\d\\d-\\d\\d  agt_\\w+  By hand$`, 'm'));
  for (const hidden of [key, secret, one.key, one.secret]) assert.ok(!list.out.includes(hidden));

  const restarted = await command.json(['deployments', 'restart', one.id], deployment, { env });
  assert.equal(restarted.id, one.id);
  const rotated = await run(['rotate-key', 'For a person']);
  assert.deepEqual([await state(key), await state(rotated.out.trim())], [401, 200], rotated.err);

  const unsure = await run(['delete', 'For a person']);
  assert.deepEqual([unsure.code, unsure.out], [2, '']);
  const [, id = ''] = /--confirm (dep_\w+)/.exec(unsure.err) ?? assert.fail(unsure.err);
  assert.equal(await state(rotated.out.trim()), 200);
  assert.match((await run(['delete', 'For a person', '--confirm', id])).out, /has ended/);
  assert.equal(await state(rotated.out.trim()), 401);

  const unknown = await run(['restart', 'Nobody']);
  assert.deepEqual([unknown.code, unknown.out], [4, '']);
  assert.match(unknown.err, /troupe deployments list/);
  const { owner } = await world.organization('free');
  const refused = await run(['create', 'One'], { TROUPE_TOKEN: owner.accessToken });
  assert.equal(refused.code, 4);
  assert.match(refused.err, /no managed deployments/);
});
