// The session actor on the real engine over memory stores: turns, queue, approvals, cancels, failures, hibernation.
import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { z } from 'zod';
import { memoryBlobs } from '../../actors/blobs/memory.ts';
import { definitions } from '../../actors/definitions.ts';
import { mock } from '../../actors/providers/mock.ts';
import { ProviderFault, type Provider } from '../../actors/providers/provider.ts';
import { createRegistry } from '../../actors/providers/registry.ts';
import { builtinTools, defineTool, toolSet, type Tool } from '../../actors/tools/index.ts';
import { modelEntry } from '../../contracts/config.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import { feedKind, sessionCommands } from '../../contracts/session.ts';
import { actorHost, type ActorHost } from '../harness/actor-host.ts';

const sid = 'abcdefghijklmnopqrstuvwxyz';
const address = { org: 'u-ann', type: 'session', key: sid };
const user_id = 'ann';
const ann = { kind: 'user', sub: 'ann', org: 'u-ann', scopes: [] } as const;

interface Setup {
  readonly host: ActorHost;
  readonly blobs: ReturnType<typeof memoryBlobs>;
  send(content: string, more?: { message_id?: string; attachment_blob_ref?: string }): Promise<string>;
  /** The journal once so many runs have ended. */
  ends(runs: number): Promise<StoredEvent[]>;
  describe(): Promise<z.output<typeof sessionCommands.describe.output>>;
}

const setup = async (t: TestContext, options: { provider?: Provider; tools?: readonly Tool[]; idleMs?: number; create?: boolean } = {}): Promise<Setup> => {
  const blobs = memoryBlobs();
  const registry = createRegistry({
    default: 'plain',
    registry: [
      modelEntry.parse({ id: 'plain', provider: 'mock' }),
      modelEntry.parse({ id: 'dear', provider: 'mock', input_usd_per_mtok: 1_000, output_usd_per_mtok: 10_000 }),
    ],
  }, { mock: options.provider ?? mock() });
  const tools = options.tools === undefined ? builtinTools({ fetchAllow: [] }) : toolSet(options.tools);
  const host = actorHost(definitions({ registry, tools, blobs, ...(options.idleMs === undefined ? {} : { idleMs: options.idleMs }) }));
  t.after(() => { host.stop(); });
  if (options.create !== false) await host.ask(address, 'create', { user_id, project_id: 'p1' }, ann);
  return {
    host, blobs,
    send: async (content, more = {}) => sessionCommands.send.output.parse(await host.ask(address, 'send', { user_id, content, ...more }, ann)).accepted,
    ends: async (runs) => host.until(address, (events) => events.filter((e) => e.k === 'RunFinished' || e.k === 'RunErrored').length >= runs),
    describe: async () => sessionCommands.describe.output.parse(await host.ask(address, 'describe', { user_id }, ann)),
  };
};

const kinds = (events: readonly StoredEvent[]): string[] => {
  const shown = events.map((e) => e.k).filter((k) => !k.startsWith('$') && k !== 'StepStarted' && k !== 'ToolStarted');
  return shown.filter((k, i) => k !== 'TextDelta' || shown[i - 1] !== 'TextDelta');
};
const only = (events: readonly StoredEvent[], kind: string): StoredEvent['d'][] => events.filter((e) => e.k === kind).map((e) => e.d);
const said = (events: readonly StoredEvent[]): string => only(events, 'TextDelta').map((d) => String(d['text'])).join('');
const one = (events: readonly StoredEvent[], kind: string): StoredEvent['d'] => {
  const found = only(events, kind);
  assert.equal(found.length, 1, `${found.length} events of ${kind}`);
  return found[0] ?? assert.fail();
};
const count = (events: readonly StoredEvent[], kind: string): number => only(events, kind).length;

describe('session - creation and ownership', () => {
  it('makes a session and its agent, once', async (t) => {
    const { host } = await setup(t, { create: false });
    const made = await host.ask(address, 'create', { user_id, project_id: 'p1', label: 'Work' }, ann);
    assert.deepEqual({ ...sessionCommands.create.output.parse(made), created_at_unix: 0 }, { sid, agent_id: `agent-${sid}`, user_id, project_id: 'p1', created_at_unix: 0 });
    assert.deepEqual(await host.ask(address, 'resume', { user_id }, ann), made);
    await assert.rejects(host.ask(address, 'create', { user_id, project_id: 'p1' }, ann), { code: 'conflict' });
    const agent = await host.until({ org: 'u-ann', type: 'agent', key: `agent-${sid}` }, (events) => events.some((e) => e.k === 'AgentProvisioned'));
    assert.deepEqual(one(agent, 'AgentProvisioned'), { user_id, project_id: 'p1', name: 'Work' });
  });

  it('pins the named model, takes a blank one as none, and refuses an unknown one', async (t) => {
    const { host } = await setup(t, { create: false });
    await assert.rejects(host.ask(address, 'create', { user_id, project_id: 'p', model: 'gpt-99' }, ann), { code: 'model_not_supported' });
    assert.deepEqual(await host.events(address).then((e) => kinds(e)), []);
    await host.ask({ ...address, key: 'a' }, 'create', { user_id, project_id: 'p', model: ' dear ' }, ann);
    await host.ask({ ...address, key: 'b' }, 'create', { user_id, project_id: 'p', model: '  ' }, ann);
    const model = async (key: string): Promise<unknown> => one(await host.events({ ...address, key }), 'SessionCreated')['model'];
    assert.deepEqual([await model('a'), await model('b')], ['dear', 'plain']);
  });

  it('does not exist for anyone but its owner', async (t) => {
    const { host } = await setup(t);
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
    const s = await setup(t);
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
    const s = await setup(t, { create: false });
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
    const s = await setup(t);
    await s.send('/length');
    await s.send('/filter');
    assert.deepEqual(only(await s.ends(2), 'RunFinished').map((d) => d['finish_reason']), ['length', 'content_filter']);
  });

  it('[WSS-047] runs one turn at a time and queued messages in order', async (t) => {
    const s = await setup(t);
    assert.deepEqual(await Promise.all([s.send('/long 30'), s.send('two'), s.send('three')]), ['running', 'queued', 'queued']);
    const events = await s.ends(3);
    assert.deepEqual(kinds(events).filter((k) => k.startsWith('Run')), ['RunStarted', 'RunFinished', 'RunStarted', 'RunFinished', 'RunStarted', 'RunFinished']);
    assert.deepEqual(only(events, 'AssistantMessage').map((d) => String(d['content']).slice(0, 14)), ['w1 w2 w3 w4 w5', 'You said: two', 'You said: thre']);
  });

  it('[WSS-048] queues 64 messages and refuses the next with session_busy', async (t) => {
    const s = await setup(t);
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
    const s = await setup(t);
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
    const s = await setup(t);
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
    const s = await setup(t);
    await s.send('/tool calculator {"expression":"6*7"}');
    const events = await s.ends(1);
    assert.deepEqual(kinds(events).slice(2), ['RunStarted', 'TextDelta', 'ToolCall', 'AssistantMessage', 'ToolResult', 'TextDelta', 'AssistantMessage', 'RunFinished']);
    const result = one(events, 'ToolResult');
    assert.deepEqual([result['result'], result['is_error'], result['call_id']], [{ value: '42', exact: true }, false, one(events, 'ToolCall')['call_id']]);
    assert.match(said(events), /calculator says: \{"value":"42"/);
  });

  it('answers a wrong call with what was wrong and lets the turn go on', async (t) => {
    const s = await setup(t);
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
    const s = await setup(t, { provider: repeats });
    await s.send('x');
    const events = await s.ends(1);
    const ids = only(events, 'ToolCall').map((d) => d['call_id']);
    assert.equal(ids.length, 4);
    assert.equal(new Set(ids).size, 4);
    assert.deepEqual(only(events, 'ToolResult').map((d) => d['call_id']).sort(), ids.toSorted());
  });

  it('cuts a large result and names the cut', async (t) => {
    const big = defineTool({ name: 'big', description: '', parameters: z.object({}), needsApproval: false, idempotent: true, preview: () => '', run: async () => 'x'.repeat(limits.toolResultMaxBytes * 2) });
    const s = await setup(t, { tools: [big] });
    await s.send('/tool big {}');
    const { result } = z.object({ result: z.object({ cut: z.literal(true), of_bytes: z.number() }) }).parse(one(await s.ends(1), 'ToolResult'));
    assert.equal(result.of_bytes, limits.toolResultMaxBytes * 2);
  });

  it('gives a tool that throws no more than a code, and one that hangs its deadline', async (t) => {
    const make = (name: string, run: (signal: AbortSignal) => Promise<unknown>): Tool =>
      defineTool({ name, description: '', parameters: z.object({}), needsApproval: false, idempotent: true, preview: () => '', run: async (_, { signal }) => run(signal) });
    let begun = (): void => undefined;
    const begins = new Promise<void>((resolve) => { begun = resolve; });
    const s = await setup(t, {
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
    const s = await setup(t);
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
    const s = await setup(t);
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
    const s = await setup(t);
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
    const s = await setup(t, { idleMs: 1_000 });
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
    const s = await setup(t);
    await s.send('/approve x\n/tool clock {}');
    const events = await s.host.until(address, (found) => waiting()(found) && count(found, 'ToolResult') === 1);
    assert.equal(one(events, 'ToolResult')['tool_name'], 'clock');
    assert.equal(count(events, 'RunFinished'), 0);
    await s.host.ask(address, 'approve', { user_id, dispatch_id: dispatch(events) }, ann);
    assert.equal(count(await s.ends(1), 'ToolResult'), 2);
  });
});

describe('session - cancel of a turn', () => {
  const cancel = async (s: Setup): Promise<unknown> => s.host.ask(address, 'cancel', { user_id, dispatch_id: '' }, ann);
  const closed = (events: readonly StoredEvent[]): void => {
    assert.equal(one(events, 'RunFinished')['finish_reason'], 'cancelled');
    assert.deepEqual(only(events, 'ToolCall').map((d) => d['call_id']).sort(), only(events, 'ToolResult').map((d) => d['call_id']).sort());
    const end = events.findIndex((e) => e.k === 'RunFinished');
    assert.ok(!events.slice(end + 1).some((e) => ['TextDelta', 'ToolCall', 'ToolResult', 'ApprovalRequested'].includes(e.k)), 'something follows the end');
  };

  it('changes nothing when no turn runs', async (t) => {
    const s = await setup(t);
    assert.deepEqual(await cancel(s), { known: false });
  });

  it('[WSS-020] stops the model, keeps what was said, counts its use, and runs the next message', async (t) => {
    let aborted = (): void => undefined;
    const stopped = new Promise<void>((resolve) => { aborted = resolve; });
    const inner = mock();
    const s = await setup(t, {
      provider: {
        continues: 'exact',
        stream: (call) => {
          call.signal.addEventListener('abort', aborted, { once: true });
          return inner.stream(call);
        },
      },
    });
    await s.send('/hang 5');
    await s.send('next');
    await s.host.until(address, (events) => said(events).includes('w5'));
    assert.deepEqual(await cancel(s), { known: true });
    await stopped;
    const events = await s.ends(2);
    const [first] = only(events, 'AssistantMessage');
    assert.equal(first?.['content'], 'w1 w2 w3 w4 w5');
    const [one_, two] = only(events, 'RunFinished');
    assert.deepEqual([one_?.['finish_reason'], two?.['finish_reason']], ['cancelled', 'stop']);
    assert.ok(z.object({ output_tokens: z.number() }).parse(one_?.['usage']).output_tokens > 0);
    assert.deepEqual(kinds(events.filter((e) => e.k !== 'UserMessage')).slice(2), ['TextDelta', 'AssistantMessage', 'RunFinished', 'RunStarted', 'TextDelta', 'AssistantMessage', 'RunFinished']);
  });

  it('stops a waiting call and a running tool', async (t) => {
    let begun = (): void => undefined;
    const begins = new Promise<void>((resolve) => { begun = resolve; });
    let stopped = (): void => undefined;
    const stops = new Promise<void>((resolve) => { stopped = resolve; });
    const stuck = defineTool({
      name: 'stuck', description: '', parameters: z.object({}), needsApproval: false, idempotent: false, preview: () => '',
      run: async (_, { signal }) => new Promise((_resolve, reject) => {
        begun();
        signal.addEventListener('abort', () => {
          stopped();
          reject(new Error('stopped'));
        });
      }),
    });
    const s = await setup(t, { tools: [stuck, ...builtinTools({ fetchAllow: [] }).values()] });
    await s.send('/tool stuck {}\n/approve x');
    await begins;
    await s.host.until(address, (events) => count(events, 'ApprovalRequested') === 1);
    assert.deepEqual(await cancel(s), { known: true });
    await stops;
    const events = await s.host.events(address);
    closed(events);
    assert.equal(count(events, 'ApprovalDenied'), 1);
    const messages = only(events, 'ToolResult').map((d) => JSON.stringify(d['result']));
    assert.ok(messages.some((m) => m.includes('may have run')) && messages.some((m) => m.includes('was not run')));
  });

  it('stops a turn whose calls are journaled while the model still streams', async (t) => {
    const callsThenHangs: Provider = {
      continues: 'exact',
      stream: async function* stream(call) {
        yield { kind: 'text', text: 'Looking.' };
        yield { kind: 'tool_call', call_id: 'c', name: 'clock', arguments: {} };
        await new Promise((_, reject) => { call.signal.addEventListener('abort', () => { reject(new Error('aborted')); }); });
      },
    };
    const s = await setup(t, { provider: callsThenHangs });
    await s.send('x');
    await s.host.until(address, (events) => count(events, 'ToolCall') === 1);
    await cancel(s);
    const events = await s.host.events(address);
    closed(events);
    assert.deepEqual(kinds(events).slice(-4), ['ToolCall', 'AssistantMessage', 'ToolResult', 'RunFinished']);
    assert.equal(count(events, 'ToolStarted'), 0);
  });

  it('[WSS-011] lets no token follow the end, however late it comes', async (t) => {
    let release = (): void => undefined;
    const late: Provider = {
      continues: 'exact',
      stream: async function* stream() {
        yield { kind: 'text', text: 'early ' };
        await new Promise<void>((resolve) => { release = resolve; });
        yield { kind: 'text', text: 'late' };
        yield { kind: 'end', finish_reason: 'stop', usage: undefined };
      },
    };
    const s = await setup(t, { provider: late });
    await s.send('x');
    await s.host.until(address, (events) => said(events) === 'early ');
    await cancel(s);
    release();
    // The late text's own refusal is a turn before this one.
    await s.describe();
    await new Promise((resolve) => { setImmediate(resolve); });
    await s.describe();
    const events = await s.host.events(address);
    closed(events);
    assert.equal(said(events), 'early ');
  });
});

describe('session - failures of the model', () => {
  it('[WSS-012] ends the turn with ERROR and stays usable', async (t) => {
    const s = await setup(t);
    await s.send('/fail');
    await s.send('/fail-after 3');
    await s.send('hello');
    const events = await s.ends(3);
    assert.deepEqual(only(events, 'RunErrored').map((d) => d['code']), ['provider_error', 'provider_error']);
    assert.equal(only(events, 'AssistantMessage').map((d) => d['content'])[1], 'w1 w2 w3');
    assert.equal(only(events, 'AssistantMessage').at(-1)?.['content'], 'You said: hello');
  });

  it('takes a broken stream up again without repeating a word', async (t) => {
    const s = await setup(t);
    await s.send('/cut-after 6');
    const events = await s.ends(1);
    assert.equal(said(events), 'w1 w2 w3 w4 w5 w6 and on.');
    assert.equal(one(events, 'RunFinished')['finish_reason'], 'stop');
  });

  it('strips what a model repeats when it is taken up again', async (t) => {
    const full = 'A sentence that is long enough to be repeated in part by a forgetful model.';
    let calls = 0;
    const forgetful: Provider = {
      continues: 'may-repeat',
      stream: async function* stream(call) {
        calls += 1;
        if (calls === 1) {
          yield { kind: 'text', text: full.slice(0, 40) };
          throw new ProviderFault('provider_error', 'cut', true);
        }
        assert.equal(call.said, full.slice(0, 40));
        yield { kind: 'text', text: full.slice(10) };
        yield { kind: 'end', finish_reason: 'stop', usage: undefined };
      },
    };
    const s = await setup(t, { provider: forgetful });
    await s.send('x');
    assert.equal(said(await s.ends(1)), full);
  });

  it('gives up after its bound of resumptions', async (t) => {
    let calls = 0;
    const s = await setup(t, {
      provider: {
        continues: 'exact',
        stream: async function* stream() {
          calls += 1;
          yield { kind: 'text', text: `${calls} ` };
          throw new ProviderFault('provider_error', 'cut', true);
        },
      },
    });
    await s.send('x');
    const events = await s.ends(1);
    assert.equal(one(events, 'RunErrored')['code'], 'provider_error');
    assert.equal(said(events), '1 2 3 ');
    assert.equal(calls, 1 + limits.modelResumesMax);
  });

  it('shows nothing of a provider that fails without a code', async (t) => {
    const s = await setup(t, { provider: { continues: 'exact', stream: () => { throw new Error('sk-secret at https://internal'); } } });
    await s.send('x');
    const events = await s.ends(1);
    assert.ok(!JSON.stringify(events).includes('sk-secret'));
    assert.equal(one(events, 'RunErrored')['code'], 'internal_error');
  });

  it('gives a step its deadline', async (t) => {
    const s = await setup(t);
    await s.send('/hang 2');
    await s.host.until(address, (events) => said(events) === 'w1 w2');
    s.host.advance(limits.modelDeadlineMs + 1);
    assert.equal(one(await s.ends(1), 'RunErrored')['code'], 'provider_timeout');
  });

  it('bounds the text of a step', async (t) => {
    const block = 'x'.repeat(50_000);
    const s = await setup(t, {
      provider: { continues: 'exact', stream: async function* stream() { for (;;) yield { kind: 'text', text: block }; } },
    });
    await s.send('x');
    const events = await s.ends(1);
    assert.equal(one(events, 'RunFinished')['finish_reason'], 'length');
    assert.equal(said(events).length, limits.stepTextMaxChars);
    assert.ok(only(events, 'TextDelta').every((d) => String(d['text']).length <= limits.deltaBufferBytes));
  });
});

describe('session - hibernation', () => {
  it('[WSS-016] says that it hibernates once, and wakes with its past', async (t) => {
    const s = await setup(t, { idleMs: 1_000 });
    await s.send('remember me');
    await s.ends(1);
    s.host.advance(60_000);
    await s.host.until(address, (events) => count(events, 'SessionHibernated') === 1);
    // A look at it is nothing that happened: idling again says nothing.
    assert.equal((await s.describe()).turns, 1);
    s.host.advance(60_000);
    await s.send('again');
    const events = await s.ends(2);
    assert.equal(count(events, 'SessionHibernated'), 1);
    s.host.advance(60_000);
    await s.host.until(address, (found) => count(found, 'SessionHibernated') === 2);
  });
});
