/** The end-to-end harness itself: it really starts what it says, and leaves nothing. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { request } from 'node:https';
import test from 'node:test';
import { chatSession } from '../../contracts/session.ts';
import { isAlive, markOf, type ProcessMark } from '../../deploy/start/process-mark.ts';
import { natsGreets } from '../../deploy/start/probe.ts';
import { startStack, type TestStack } from '../harness/stack.ts';

const create = (stack: TestStack, url: string, token: string, sub: string): Promise<{ status: number; text: string }> => new Promise((resolve, reject) => {
  const sent = request(`${url}/v1/agent/create_session`, {
    method: 'POST', ca: stack.ca, agent: false, timeout: 10_000, headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
  }, (response) => {
    let text = '';
    response.setEncoding('utf8').on('data', (chunk: string) => { text += chunk; }).on('end', () => resolve({ status: response.statusCode ?? 0, text }));
  });
  sent.on('error', reject).on('timeout', () => sent.destroy(new Error('no answer within 10 s')));
  sent.end(JSON.stringify({ user_id: sub, project_id: 'p' }));
});

test('stack - two daemons and two gateways serve, survive kills and pauses, and leave nothing behind', async () => {
  const stack = await startStack(undefined, { daemons: 2, gateways: 2 });
  const marks: (ProcessMark | undefined)[] = [];
  try {
    const token = await stack.token('ada', 'acme');
    for (const gateway of stack.gateways) {
      const made = await create(stack, gateway.url, token, 'ada');
      assert.equal(made.status, 201, made.text);
      chatSession.parse(JSON.parse(made.text));
    }
    assert.equal((await create(stack, stack.url, await stack.token('eve'), 'ada')).status, 403, 'the token is checked');

    const [daemon] = stack.daemons;
    assert.ok(daemon !== undefined);
    const before = daemon.pid;
    await daemon.restart();
    assert.notEqual(daemon.pid, before);
    assert.equal(daemon.crashed, undefined, 'a kill of the test is no crash');
    await stack.gateways[0]?.ready();
    daemon.pause();
    daemon.resume();
    await daemon.line(/ready/);
    marks.push(...[...stack.daemons, ...stack.gateways, stack.nats].map(({ pid }) => markOf(pid)));
    assert.match(stack.report(), /--- gateway-1/);
    // Stopped while paused: SIGTERM alone would wait for ever.
    stack.daemons[1]?.pause();
    await stack.daemons[1]?.stop();
  } finally {
    await stack.stop();
  }
  assert.equal(marks.length, 5);
  for (const mark of marks) assert.ok(mark !== undefined && !isAlive(mark));
  assert.equal(existsSync(stack.folder), false);
});

test('stack - a configuration that a process refuses fails the start with its words, and leaves nothing', async () => {
  let nats = '';
  await assert.rejects(
    startStack(undefined, { daemon: { capability: { public_key_path: '/nonexistent/key' } }, natsUrl: (url) => { nats = url; return url; } }),
    /daemon-0 ended with 1[\s\S]*\/nonexistent\/key/,
  );
  assert.equal(await natsGreets(Number(new URL(nats).port)), false);
});

test('stack - gateways share one port when asked to', async (t) => {
  const stack = await startStack(t, { gateways: 2, onePort: true });
  const [one, two] = stack.gateways;
  assert.equal(one?.port, two?.port);
  assert.equal((await create(stack, stack.url, await stack.token('ada'), 'ada')).status, 201);
  await one?.kill('SIGKILL');
  assert.equal((await create(stack, stack.url, await stack.token('ada'), 'ada')).status, 201);
});
