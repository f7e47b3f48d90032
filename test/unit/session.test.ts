// The session actor on the real engine over memory stores: creation, turns, queue, tools, approvals.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { z } from 'zod';
import type { Provider } from '../../actors/providers/provider.ts';
import { defineTool, type Tool } from '../../actors/tools/index.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import { feedKind, sessionCommands } from '../../contracts/session.ts';
import { address, ann, count, kinds, one, only, said, sessionSetup, sid, user_id } from '../harness/session.ts';

describe('session - creation and ownership', () => {
  it('makes a session and its agent, once', async (t) => {
    const { host } = await sessionSetup(t, { create: false });
    const made = await host.ask(address, 'create', { user_id, project_id: 'p1', label: 'Work' }, ann);
    assert.deepEqual({ ...sessionCommands.create.output.parse(made), created_at_unix: 0 }, { sid, agent_id: `agent-${sid}`, user_id, project_id: 'p1', created_at_unix: 0 });
    assert.deepEqual(await host.ask(address, 'resume', { user_id }, ann), made);
    await assert.rejects(host.ask(address, 'create', { user_id, project_id: 'p1' }, ann), { code: 'conflict' });
    const agent = await host.until({ org: 'u-ann', type: 'agent', key: `agent-${sid}` }, (events) => events.some((e) => e.k === 'AgentProvisioned'));
    assert.deepEqual(one(agent, 'AgentProvisioned'), { user_id, project_id: 'p1', name: 'Work' });
  });

  it('pins the named model, takes a blank one as none, and refuses an unknown one', async (t) => {
    const { host } = await sessionSetup(t, { create: false });
    await assert.rejects(host.ask(address, 'create', { user_id, project_id: 'p', model: 'gpt-99' }, ann), { code: 'model_not_supported' });
    assert.deepEqual(await host.events(address).then((e) => kinds(e)), []);
    await host.ask({ ...address, key: 'a' }, 'create', { user_id, project_id: 'p', model: ' dear ' }, ann);
    await host.ask({ ...address, key: 'b' }, 'create', { user_id, project_id: 'p', model: '  ' }, ann);
    const model = async (key: string): Promise<unknown> => one(await host.events({ ...address, key }), 'SessionCreated')['model'];
    assert.deepEqual([await model('a'), await model('b')], ['dear', 'plain']);
  });

  it('does not exist for anyone but its owner', async (t) => {
    const { host } = await sessionSetup(t);
    const eve = { ...ann, sub: 'eve' };
    for (const [command, input] of [['resume', {}], ['send', { content: 'x' }], ['approve', { dispatch_id: 'd' }], ['cancel', { dispatch_id: '' }], ['describe', {}]] as const) {
      await assert.rejects(host.ask(address, command, { user_id: 'eve', ...input }, eve), { code: 'session_not_found' }, command);
      await assert.rejects(host.ask(address, command, { user_id: 'ann', ...input }, eve), { code: 'session_not_found' }, `${command} with another's id`);
      await assert.rejects(host.ask({ ...address, key: 'none' }, command, { user_id, ...input }, ann), { code: 'session_not_found' }, `${command} unknown`);
    }
    await assert.rejects(host.ask(address, 'delta', { run_id: 'r', step: 0, at: 0, text: 'x' }, ann), { code: 'forbidden' });
  });
});

describe('session - turns', () => {
  it('streams a reply between RunStarted and RunFinished and counts its use', async (t) => {
    const s = await sessionSetup(t);
    assert.equal(await s.send('hello'), 'running');
    const events = await s.ends(1);
    assert.deepEqual(kinds(events), ['SessionCreated', 'UserMessage', 'RunStarted', 'TextDelta', 'AssistantMessage', 'RunFinished']);
    assert.equal(said(events), 'You said: hello');
    const finished = one(events, 'RunFinished');
    assert.equal(finished['finish_reason'], 'stop');
    assert.deepEqual(finished['usage'], one(events, 'AssistantMessage')['usage']);
    const { state, turns, queued, usage } = await s.describe();
    assert.deepEqual({ state, turns, queued, usage }, { state: 'idle', turns: 1, queued: 0, usage: finished['usage'] });
  });

  it('rounds the cost of a turn up once over its steps', async (t) => {
    const s = await sessionSetup(t, { create: false });
    await s.host.ask(address, 'create', { user_id, project_id: 'p', model: 'dear' }, ann);
    await s.send('/tool clock {}\n/then\n/tool clock {}');
    const events = await s.ends(1);
    const steps = only(events, 'AssistantMessage').map((d) => z.object({ input_tokens: z.number(), output_tokens: z.number(), cost_cents: z.number() }).parse(d['usage']));
    assert.equal(steps.length, 3);
    const sum = (key: 'input_tokens' | 'output_tokens' | 'cost_cents'): number => steps.reduce((n, u) => n + u[key], 0);
    const cents = Math.ceil((sum('input_tokens') * 1_000 + sum('output_tokens') * 10_000) / 1e6 * 100 - 1e-9);
    assert.deepEqual(one(events, 'RunFinished')['usage'], { input_tokens: sum('input_tokens'), output_tokens: sum('output_tokens'), cost_cents: cents });
    assert.equal(sum('cost_cents'), cents);
  });

  it('ends with the reason the model gives', async (t) => {
    const s = await sessionSetup(t);
    await s.send('/length');
    await s.send('/filter');
    assert.deepEqual(only(await s.ends(2), 'RunFinished').map((d) => d['finish_reason']), ['length', 'content_filter']);
  });

  it('[WSS-047] runs one turn at a time and queued messages in order', async (t) => {
    const s = await sessionSetup(t);
    assert.deepEqual(await Promise.all([s.send('/long 30'), s.send('two'), s.send('three')]), ['running', 'queued', 'queued']);
    const events = await s.ends(3);
    assert.deepEqual(kinds(events).filter((k) => k.startsWith('Run')), ['RunStarted', 'RunFinished', 'RunStarted', 'RunFinished', 'RunStarted', 'RunFinished']);
    assert.deepEqual(only(events, 'AssistantMessage').map((d) => String(d['content']).slice(0, 14)), ['w1 w2 w3 w4 w5', 'You said: two', 'You said: thre']);
  });

  it('[WSS-048] queues 64 messages and refuses the next with session_busy', async (t) => {
    const s = await sessionSetup(t);
    await s.send('/hang 1');
    for (let i = 0; i < limits.sessionQueueMax; i++) assert.equal(await s.send(`m${i}`, { message_id: `m${i}` }), 'queued');
    assert.equal(await s.send('one too many', { message_id: 'late' }), 'busy');
    const events = await s.host.events(address);
    assert.equal(one(events, 'MessageRefused')['code'], 'session_busy');
    assert.equal(feedKind('MessageRefused'), 'ERROR');
    await s.host.ask(address, 'cancel', { user_id, dispatch_id: '' }, ann);
    await s.ends(1 + limits.sessionQueueMax);
    assert.equal(await s.send('one too many', { message_id: 'late' }), 'running', 'a refused message may be sent again');
  });

  it('[WSS-049] does not run a repeated message_id within 24 hours, and does after', async (t) => {
    const s = await sessionSetup(t);
    assert.equal(await s.send('hello', { message_id: 'm1' }), 'running');
    await s.ends(1);
    assert.equal(await s.send('hello', { message_id: 'm1' }), 'duplicate');
    s.host.crash();
    assert.equal(await s.send('hello', { message_id: 'm1' }), 'duplicate');
    s.host.advance(24 * 3_600_000 - 60_000);
    assert.equal(await s.send('hello', { message_id: 'm1' }), 'duplicate');
    s.host.advance(61_000);
    assert.equal(await s.send('hello', { message_id: 'm1' }), 'running');
    assert.equal(count(await s.ends(2), 'UserMessage'), 2);
  });

  it('shows the turn the content of its attachment, and fails a turn whose attachment is unknown', async (t) => {
    const s = await sessionSetup(t);
    const { hash } = await s.blobs.put('u-ann', [Buffer.from('forty-two')]);
    await s.send('read this', { attachment_blob_ref: hash });
    assert.match(said(await s.ends(1)), /read this[\s\S]*forty-two/);
    await s.send('read that', { attachment_blob_ref: `sha256:${'0'.repeat(64)}` });
    assert.equal(one(await s.ends(2), 'RunErrored')['code'], 'blob_not_found');
    await s.send('go on');
    assert.equal(count(await s.ends(3), 'RunFinished'), 2);
  });
});

describe('session - tools', () => {
  it('journals a call before its result, runs it, and tells the model', async (t) => {
    const s = await sessionSetup(t);
    await s.send('/tool calculator {"expression":"6*7"}');
    const events = await s.ends(1);
    assert.deepEqual(kinds(events).slice(2), ['RunStarted', 'TextDelta', 'ToolCall', 'AssistantMessage', 'ToolResult', 'TextDelta', 'AssistantMessage', 'RunFinished']);
    const result = one(events, 'ToolResult');
    assert.deepEqual([result['result'], result['is_error'], result['call_id']], [{ value: '42', exact: true }, false, one(events, 'ToolCall')['call_id']]);
    assert.match(said(events), /calculator says: \{"value":"42"/);
  });

  it('answers a wrong call with what was wrong and lets the turn go on', async (t) => {
    const s = await sessionSetup(t);
    await s.send('/tool calculator {"expresion":"1"}\n/tool nothing {}\n/tool calculator not json\n/tool calculator {"expression":"1/0"}');
    const events = await s.ends(1);
    const results = only(events, 'ToolResult');
    assert.ok(results.every((r) => r['is_error'] === true));
    const codes = results.map((r) => z.object({ error: z.object({ code: z.string(), message: z.string() }) }).parse(r['result']).error);
    assert.deepEqual(codes.map((c) => c.code).sort(), ['bad_arguments', 'bad_arguments', 'bad_expression', 'tool_not_found']);
    assert.match(codes[0]?.message ?? '', /expression/);
    assert.equal(one(events, 'RunFinished')['finish_reason'], 'stop');
  });

  it('gives every call an id of its own', async (t) => {
    const repeats: Provider = {
      continues: 'exact',
      stream: async function* stream(call) {
        const asked = call.messages.filter((m) => m.role === 'tool').length;
        if (asked < 4) for (const n of [1, 2]) yield { kind: 'tool_call', call_id: 'call_0', name: 'clock', arguments: n === 1 ? {} : { time_zone: 'UTC' } };
        yield { kind: 'end', finish_reason: asked < 4 ? 'tool_calls' : 'stop', usage: undefined };
      },
    };
    const s = await sessionSetup(t, { provider: repeats });
    await s.send('x');
    const events = await s.ends(1);
    const ids = only(events, 'ToolCall').map((d) => d['call_id']);
    assert.equal(ids.length, 4);
    assert.equal(new Set(ids).size, 4);
    assert.deepEqual(only(events, 'ToolResult').map((d) => d['call_id']).sort(), ids.toSorted());
  });

  it('cuts a large result and names the cut', async (t) => {
    const big = defineTool({ name: 'big', description: '', parameters: z.object({}), needsApproval: false, idempotent: true, preview: () => '', run: async () => 'x'.repeat(limits.toolResultMaxBytes * 2) });
    const s = await sessionSetup(t, { tools: [big] });
    await s.send('/tool big {}');
    const { result } = z.object({ result: z.object({ cut: z.literal(true), of_bytes: z.number() }) }).parse(one(await s.ends(1), 'ToolResult'));
    assert.equal(result.of_bytes, limits.toolResultMaxBytes * 2);
  });

  it('gives a tool that throws no more than a code, and one that hangs its deadline', async (t) => {
    const make = (name: string, run: (signal: AbortSignal) => Promise<unknown>): Tool =>
      defineTool({ name, description: '', parameters: z.object({}), needsApproval: false, idempotent: true, preview: () => '', run: async (_, { signal }) => run(signal) });
    let begun = (): void => undefined;
    const begins = new Promise<void>((resolve) => { begun = resolve; });
    const s = await sessionSetup(t, {
      tools: [
        make('broken', async () => { throw new Error('secret detail'); }),
        make('stuck', async (signal) => new Promise((_, reject) => {
          begun();
          signal.addEventListener('abort', () => { reject(new Error('stopped')); });
        })),
      ],
    });
    await s.send('/tool broken {}');
    assert.deepEqual(one(await s.ends(1), 'ToolResult')['result'], { error: { code: 'tool_failed', message: 'The tool failed.' } });
    await s.send('/tool stuck {}');
    await begins;
    s.host.advance(limits.toolDeadlineMs + 1);
    assert.deepEqual(only(await s.ends(2), 'ToolResult')[1]?.['result'], { error: { code: 'deadline_exceeded', message: 'The tool did not end within 30 seconds.' } });
  });

  it('ends a turn that only calls tools at its bound of steps', async (t) => {
    const s = await sessionSetup(t);
    await s.send(Array.from({ length: limits.turnStepsMax + 1 }, () => '/tool clock {}').join('\n/then\n'));
    const events = await s.ends(1);
    assert.equal(one(events, 'RunErrored')['code'], 'too_many_steps');
    assert.equal(count(events, 'StepStarted'), limits.turnStepsMax);
    assert.equal(count(events, 'ToolCall'), count(events, 'ToolResult'));
  });
});

describe('session - approvals', () => {
  const waiting = (n = 1) => (events: readonly StoredEvent[]): boolean => count(events, 'ApprovalRequested') >= n;
  const dispatch = (events: readonly StoredEvent[], nth = 0): string => String(only(events, 'ApprovalRequested')[nth]?.['dispatch_id']);

  it('[WSS-015] [WSS-018] does not run the tool before approve, and runs it once after', async (t) => {
    const s = await sessionSetup(t);
    await s.send('/approve All is well.');
    const asked = await s.host.until(address, waiting());
    assert.match(String(one(asked, 'ApprovalRequested')['preview']), /All is well/);
    assert.equal((await s.describe()).state, 'waiting_approval');
    assert.equal(count(await s.host.events(address), 'ToolStarted'), 0);
    assert.deepEqual(await s.host.ask(address, 'approve', { user_id, dispatch_id: 'unknown' }, ann), { known: false });
    const id = dispatch(asked);
    const twice = await Promise.all([1, 2].map(async () => s.host.ask(address, 'approve', { user_id, dispatch_id: id }, ann)));
    assert.deepEqual(twice, [{ known: true }, { known: false }]);
    const events = await s.ends(1);
    assert.equal(count(events, 'ToolStarted'), 1);
    assert.equal(one(events, 'ToolResult')['is_error'], false);
    const agent = { org: 'u-ann', type: 'agent', key: `agent-${sid}` };
    assert.equal(one(await s.host.events(agent), 'ReportFiled')['body'], 'All is well.');
  });

  it('[WSS-019] never runs a cancelled call, tells the model, and goes on', async (t) => {
    const s = await sessionSetup(t);
    await s.send('/approve No.');
    const id = dispatch(await s.host.until(address, waiting()));
    assert.deepEqual(await s.host.ask(address, 'cancel', { user_id, dispatch_id: id }, ann), { known: true });
    const events = await s.ends(1);
    assert.equal(count(events, 'ToolStarted'), 0);
    assert.equal(one(events, 'ApprovalDenied')['dispatch_id'], id);
    assert.equal(one(events, 'ToolResult')['is_error'], true);
    assert.equal(one(events, 'RunFinished')['finish_reason'], 'stop');
    assert.deepEqual(await s.host.ask(address, 'approve', { user_id, dispatch_id: id }, ann), { known: false });
  });

  it('waits through a lost host and hibernation for a person', async (t) => {
    const s = await sessionSetup(t, { idleMs: 1_000 });
    await s.send('/approve Later.');
    const id = dispatch(await s.host.until(address, waiting()));
    s.host.crash();
    assert.equal((await s.describe()).state, 'waiting_approval');
    s.host.advance(limits.turnWakeMs);
    s.host.advance(60_000);
    await s.host.until(address, (events) => count(events, 'SessionHibernated') === 1);
    await s.host.ask(address, 'approve', { user_id, dispatch_id: id }, ann);
    const events = await s.ends(1);
    assert.equal(one(events, 'ToolResult')['is_error'], false);
    assert.equal(count(events, 'ApprovalRequested'), 1);
  });

  it('starts other calls of the step while one waits', async (t) => {
    const s = await sessionSetup(t);
    await s.send('/approve x\n/tool clock {}');
    const events = await s.host.until(address, (found) => waiting()(found) && count(found, 'ToolResult') === 1);
    assert.equal(one(events, 'ToolResult')['tool_name'], 'clock');
    assert.equal(count(events, 'RunFinished'), 0);
    await s.host.ask(address, 'approve', { user_id, dispatch_id: dispatch(events) }, ann);
    assert.equal(count(await s.ends(1), 'ToolResult'), 2);
  });
});
