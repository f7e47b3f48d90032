/** A deployment's runtime over real HTTP: turns, sessions, events, resume, formats, memory; the vendors' own clients read its streams. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { z } from 'zod';
import { canonicalJson } from '../../contracts/canonical.ts';
import { sessionAddress } from '../../actors/daemon/deployment/branch.ts';
import { runtimeSession } from '../../contracts/runtime-routes.ts';
import { startDeployment, type TestDeployment } from '../harness/deployment.ts';
import { numbered } from '../harness/e2e.ts';
import { answered } from '../harness/platform.ts';
import { chatBody, envelopesOf, kindsOf, readUntil, runtimeClient, textOf, type RuntimeClient } from '../harness/runtime.ts';

const usualTurn = ['UserMessage', 'RunStarted', 'TextDelta', 'AssistantMessage', 'RunFinished'];
const codeOf = (reply: { readonly json: unknown }): string => z.object({ error: z.object({ code: z.string() }) }).parse(reply.json).error.code;

describe('runtime', () => {
  let world: TestDeployment;
  let client: RuntimeClient;
  before(async () => {
    world = await startDeployment(undefined);
    client = runtimeClient(world);
  });
  after(() => world.stop());
  const post = (json: unknown, path = '/v1/chat', headers: Record<string, string> = {}) => world.service('POST', path, { json, headers });

  test('runtime - a new session is made, a known one goes on with its earlier messages, and every event is in its journal [RUN-001] [RUN-002] [RUN-007] [RUN-011] [RUN-012] [RUN-021] [RUN-032] [RUN-033] [RUN-037]', async () => {
    const reply = await post(chatBody('first', 'hello'));
    assert.equal(reply.status, 200, reply.body);
    assert.match(String(reply.headers['content-type']), /^text\/event-stream/);
    const first = envelopesOf(reply.body);
    assert.deepEqual(kindsOf(first), ['SessionCreated', ...usualTurn]);
    assert.equal(textOf(first), 'You said: hello');
    assert.equal(first.find(({ kind }) => kind === 'UserMessage')?.payload['content'], 'hello');
    assert.equal(first.find(({ kind }) => kind === 'AssistantMessage')?.payload['content'], 'You said: hello');
    const second = await client.turn('first', '/say and on');
    assert.deepEqual(kindsOf(second), usualTurn);
    const all = await client.events('first');
    assert.deepEqual(all, [...first, ...second]);
    const ids = all.map(({ id }) => id);
    assert.deepEqual(ids, ids.toSorted());
    assert.equal(new Set(ids).size, ids.length);
    for (const { payload, checksum, stream_id, metadata } of all) {
      assert.equal(checksum, createHash('sha256').update(canonicalJson(payload)).digest('hex'));
      assert.equal(stream_id, 'first');
      assert.equal(metadata['branch'], 'main');
      assert.equal(metadata['sid'], sessionAddress({ organizationId: world.org.id, deploymentId: world.id }, 'first').key);
    }
  });
});
