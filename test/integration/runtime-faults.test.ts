/** A deployment's session over a daemon that is killed in the middle of a turn: the stream of its client and the watcher's WebSocket agree, token for token. */
import assert from 'node:assert/strict';
import type { IncomingMessage } from 'node:http';
import { test } from 'node:test';
import type { AgentEvent } from '../../contracts/stream.ts';
import { eventEnvelope, type EventEnvelope } from '../../contracts/event.ts';
import { sessionAddress } from '../../actors/daemon/deployment/branch.ts';
import { startDeployment } from '../harness/deployment.ts';
import { numbered, textOf as tokensOf } from '../harness/e2e.ts';
import { chatBody, framesOf, runtimeClient, textOf } from '../harness/runtime.ts';

test('runtime - a daemon is killed in the middle of a turn: the client that comes back and the member who watches get every event once and the same words [RUN-017]', async (t) => {
  const world = await startDeployment(t, { daemons: 2 });
  const client = runtimeClient(world);
  const sid = sessionAddress({ organizationId: world.org.id, deploymentId: world.id }, 'killed').key;
  const content = '/slow 20 150';
  const got: EventEnvelope[] = [];
  let done = false;
  let requests = 0;
  let arrived = (): void => undefined;
  const some = (count: number): Promise<void> => new Promise((resolve) => { arrived = () => { if (got.length >= count) resolve(); }; arrived(); });

  const read = async (answer: IncomingMessage): Promise<void> => {
    try {
      for await (const { event, data } of framesOf(answer)) {
        if (event === 'done') done = true;
        else got.push(eventEnvelope.parse(JSON.parse(data)));
        arrived();
      }
    } catch {
      // The connection was cut: with its daemon, or with its gateway's link.
    }
  };
  /** As a client does: again and again, with the last event it has, until the turn is over. */
  const run = async (): Promise<void> => {
    for (const deadline = performance.now() + 90_000; !done && performance.now() < deadline;) {
      requests += 1;
      const last = got.at(-1)?.id;
      try {
        const answer = await world.open('POST', '/v1/chat', { json: chatBody('killed', content, { message_id: 'm1' }), headers: last === undefined ? {} : { 'last-event-id': last } });
        if (answer.statusCode === 200) await read(answer);
        else for await (const _piece of answer) { /* Refused while nobody owns the session: asked again. */ }
      } catch {
        // Cut before it was answered.
      }
    }
    assert.ok(done, 'the turn did not end');
  };

  const running = run();
  await some(10);
  let watcher = await client.watch(sid, world.owner);
  const seen: AgentEvent[] = [];
  await watcher.event('TOKEN', 5);
  // Whichever of the two runs the session or serves its stream: one after the other is killed and comes back.
  for (const daemon of world.daemons) {
    const before = got.length;
    await daemon.kill();
    await daemon.start();
    await Promise.race([some(before + 3), running]);
  }
  await running;
  const all = await client.events('killed');
  assert.deepEqual(got, all);
  assert.equal(textOf(all), numbered(150));
  assert.equal(all.filter(({ kind }) => kind === 'RunStarted').length, 1);
  assert.ok(requests > 1, 'no connection was ever cut');
  // The watcher comes back as often as it is cut, with its position.
  for (;;) {
    // Rejects when it is cut before: what it has seen counts.
    await watcher.turns(1).catch(() => undefined);
    seen.push(...watcher.events);
    if (watcher.ended > 0) break;
    watcher = await client.watch(sid, world.owner, watcher.last ?? 0);
  }
  const tokens = seen.filter(({ agent_kind }) => agent_kind === 'TOKEN').map(({ record }) => record.payload['text']);
  assert.deepEqual(tokens, all.filter(({ kind }) => kind === 'TextDelta').map(({ payload }) => payload['text']));
  assert.equal(tokensOf(seen), numbered(150));
  await watcher.leave();
});
