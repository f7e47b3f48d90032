/** create_session on the whole stack: what it answers, who may resume, and which model a session is pinned to. */
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { z } from 'zod';
import { startEndToEnd, type EndToEnd } from '../harness/e2e.ts';
import { modelServer, openaiChunk, openaiDone, openaiUsage, sse, type Answer, type ModelServer } from '../harness/model-server.ts';

const reply: Answer = (_request, response) => {
  sse(response);
  response.end(openaiChunk({ content: 'aye' }) + openaiChunk({}, 'stop') + openaiUsage(3, 1) + openaiDone);
};
/** A clock call first, so that one turn has two model calls. */
const replyWithCall: Answer = (request, response) => {
  const messages = z.array(z.looseObject({ role: z.string() })).parse(request.body['messages']);
  if (messages.at(-1)?.role === 'tool') return reply(request, response);
  sse(response);
  response.end(openaiChunk({ tool_calls: [{ index: 0, id: 'call_1', type: 'function', function: { name: 'clock', arguments: '{}' } }] })
    + openaiChunk({}, 'tool_calls') + openaiUsage(3, 1) + openaiDone);
};

describe('e2e session', () => {
  let e: EndToEnd;
  let vendor: ModelServer;
  let folder: string;

  before(async () => {
    vendor = await modelServer(...Array.from({ length: 200 }, (): Answer => replyWithCall));
    folder = await mkdtemp(join(tmpdir(), 'troupe-e2e-'));
    await writeFile(join(folder, 'vendor.key'), 'sk-test', { mode: 0o600 });
    e = await startEndToEnd({
      daemon: {
        models: {
          default: 'house',
          registry: [
            { id: 'house', provider: 'openai', upstream_model: 'vendor-house' },
            { id: 'special', provider: 'openai', upstream_model: 'vendor-special' },
          ],
        },
        providers: { openai: { base_url: `${vendor.url}/v1`, api_key_path: join(folder, 'vendor.key') } },
      },
    });
  });
  afterEach((t) => e.blame(t));
  after(async () => {
    await e.stop();
    await vendor.stop();
    await rm(folder, { recursive: true, force: true });
  });

  /** The vendor's names of the models that were asked with this text in the conversation, in order. */
  const asked = (marker: string): unknown[] => vendor.requests.filter(({ body }) => JSON.stringify(body).includes(marker)).map(({ body }) => body['model']);
  const twice = (model: string): string[] => [model, model];

  test('e2e session - create_session answers 201 with sid, agent_id, user_id, project_id and created_at_unix, no more [GWH-007] [GWH-010] [GWH-011]', async () => {
    const visitor = await e.visitor();
    const from = Math.floor(Date.now() / 1_000);
    const made = await visitor.call('/v1/agent/create_session', { body: { user_id: visitor.sub, project_id: 'projét / 1' } });
    const to = Math.ceil(Date.now() / 1_000);
    assert.equal(made.status, 201, made.text);
    const { sid, created_at_unix: created, ...rest } = z.strictObject({
      sid: z.string(), agent_id: z.string(), user_id: z.string(), project_id: z.string(), created_at_unix: z.int(),
    }).parse(made.json);
    assert.deepEqual(rest, { agent_id: `agent-${sid}`, user_id: visitor.sub, project_id: 'projét / 1' });
    assert.ok(created >= from && created <= to, `${created} is not the Unix time in seconds`);
  });

  test('e2e session - sid is 26 lowercase base32 characters, new for every session [GWH-009]', async () => {
    const visitor = await e.visitor();
    const sids = await Promise.all(Array.from({ length: 40 }, async () => (await visitor.create()).sid));
    for (const sid of sids) assert.match(sid, /^[a-z2-7]{26}$/);
    assert.equal(new Set(sids).size, 40);
    // All 130 bits vary: no character is the same everywhere.
    for (let at = 0; at < 26; at++) assert.ok(new Set(sids.map((sid) => sid[at])).size > 1, `character ${at} never changes`);
  });

  test('e2e session - resume_sid of one\'s own answers 200 with the same session, also after the daemon was killed [GWH-024]', async () => {
    const visitor = await e.visitor();
    const session = await visitor.create({ label: 'first' });
    const resume = () => visitor.call('/v1/agent/create_session', { body: { user_id: visitor.sub, project_id: 'another', label: 'second', resume_sid: session.sid } });
    const again = await resume();
    assert.equal(again.status, 200, again.text);
    assert.deepEqual(again.json, session);
    await e.stack.daemons[0]?.restart();
    await e.stack.gateways[0]?.ready();
    assert.deepEqual((await resume()).json, session);
  });

  test('e2e session - resume_sid of another user, of another organization, or unknown is 404, and nobody can tell which [GWH-025]', async () => {
    const owner = await e.visitor();
    const { sid } = await owner.create();
    const answers = await Promise.all([
      [await e.visitor(), sid], [await e.visitor(), 'a'.repeat(26)], [await e.visitor(), 'no sid at all'], [await e.visitor(), ''],
      // The same person in another organization, and another person in the owner's.
      [await e.visitor({ sub: owner.sub, org: 'acme' }), sid], [await e.visitor({ org: `u-${owner.sub}` }), sid],
    ].map(async ([visitor, resume_sid]) => {
      assert.ok(typeof visitor === 'object' && typeof resume_sid === 'string');
      return visitor.call('/v1/agent/create_session', { body: { user_id: visitor.sub, project_id: 'p', resume_sid } });
    }));
    const [first] = answers;
    assert.ok(first !== undefined);
    for (const { status, text } of answers) assert.deepEqual([status, text], [404, first.text]);
  });

  test('e2e session - model pins every call of the session, over turns, tool steps, a restart and a resume that names another [GWH-020] [GWH-023]', async () => {
    const visitor = await e.visitor();
    const { sid } = await visitor.create({ model: 'special' });
    const watcher = visitor.watch(sid, { lastSeqNo: 0 });
    await watcher.turn('pinned-one');
    assert.deepEqual(asked('pinned-one'), twice('vendor-special'));
    const resumed = await visitor.call('/v1/agent/create_session', { body: { user_id: visitor.sub, project_id: 'p', resume_sid: sid, model: 'house' } });
    assert.equal(resumed.status, 200, resumed.text);
    await watcher.turn('pinned-two');
    assert.deepEqual(asked('pinned-two'), twice('vendor-special'));
    await e.stack.daemons[0]?.restart();
    await e.stack.gateways[0]?.ready();
    const later = visitor.watch(sid, { lastSeqNo: watcher.last ?? 0 });
    await later.turn('pinned-three');
    assert.deepEqual(asked('pinned-three'), twice('vendor-special'));
    assert.equal(later.text, 'aye');
    await later.leave();
  });

  test('e2e session - without a model, and with an empty or blank one, the default applies [GWH-021] [GWH-022]', async () => {
    for (const [i, more] of [{}, { model: '' }, { model: '   ' }, { model: '\t\n ' }].entries()) {
      const visitor = await e.visitor();
      const { sid } = await visitor.create(more);
      const watcher = visitor.watch(sid, { lastSeqNo: 0 });
      await watcher.turn(`default-${i}`);
      assert.deepEqual(asked(`default-${i}`), twice('vendor-house'));
      await watcher.leave();
    }
    const visitor = await e.visitor();
    const unknown = await visitor.call('/v1/agent/create_session', { body: { user_id: visitor.sub, project_id: 'p', model: 'nobody' } });
    assert.equal(unknown.status, 400, 'a model that is not there is not taken for absent');
  });
});
