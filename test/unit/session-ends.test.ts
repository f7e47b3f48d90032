// How a session's turns end other than well: cancels, failures of the model, hibernation.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { z } from 'zod';
import { mock } from '../../actors/providers/mock.ts';
import { ProviderFault, type Provider } from '../../actors/providers/provider.ts';
import { builtinTools, defineTool } from '../../actors/tools/index.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import { address, ann, count, kinds, one, only, said, sessionSetup, user_id, type SessionSetup } from '../harness/session.ts';

describe('session - cancel of a turn', () => {
  const cancel = async (s: SessionSetup): Promise<unknown> => s.host.ask(address, 'cancel', { user_id, dispatch_id: '' }, ann);
  const closed = (events: readonly StoredEvent[]): void => {
    assert.equal(one(events, 'RunFinished')['finish_reason'], 'cancelled');
    assert.deepEqual(only(events, 'ToolCall').map((d) => d['call_id']).sort(), only(events, 'ToolResult').map((d) => d['call_id']).sort());
    const end = events.findIndex((e) => e.k === 'RunFinished');
    assert.ok(!events.slice(end + 1).some((e) => ['TextDelta', 'ToolCall', 'ToolResult', 'ApprovalRequested'].includes(e.k)), 'something follows the end');
  };

  it('changes nothing when no turn runs', async (t) => {
    const s = await sessionSetup(t);
    assert.deepEqual(await cancel(s), { known: false });
  });

  it('[WSS-020] stops the model, keeps what was said, counts its use, and runs the next message', async (t) => {
    let aborted = (): void => undefined;
    const stopped = new Promise<void>((resolve) => { aborted = resolve; });
    const inner = mock();
    const s = await sessionSetup(t, {
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
    const s = await sessionSetup(t, { tools: [stuck, ...builtinTools({ fetchAllow: [] }).values()] });
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
    const s = await sessionSetup(t, { provider: callsThenHangs });
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
    const s = await sessionSetup(t, { provider: late });
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
    const s = await sessionSetup(t);
    await s.send('/fail');
    await s.send('/fail-after 3');
    await s.send('hello');
    const events = await s.ends(3);
    assert.deepEqual(only(events, 'RunErrored').map((d) => d['code']), ['provider_error', 'provider_error']);
    assert.equal(only(events, 'AssistantMessage').map((d) => d['content'])[1], 'w1 w2 w3');
    assert.equal(only(events, 'AssistantMessage').at(-1)?.['content'], 'You said: hello');
  });

  it('takes a broken stream up again without repeating a word', async (t) => {
    const s = await sessionSetup(t);
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
    const s = await sessionSetup(t, { provider: forgetful });
    await s.send('x');
    assert.equal(said(await s.ends(1)), full);
  });

  it('counts what a provider read that broke off before its first word, and nothing of one that never began', async (t) => {
    const faults = [new ProviderFault('provider_error', 'cut', false, true), new ProviderFault('provider_error', 'refused', false)];
    const s = await sessionSetup(t, {
      provider: {
        continues: 'exact',
        // oxlint-disable-next-line require-yield
        stream: async function* stream() {
          throw faults.shift() ?? new TypeError('asked a third time');
        },
      },
    });
    await s.send('a message of some length');
    const [begun] = only(await s.ends(1), 'RunErrored');
    assert.ok(z.object({ input_tokens: z.int().positive() }).safeParse(begun?.['usage']).success, JSON.stringify(begun));
    await s.send('another');
    const [, refused] = only(await s.ends(2), 'RunErrored');
    assert.deepEqual(refused?.['usage'], { input_tokens: 0, output_tokens: 0, cost_cents: 0 });
  });

  it('gives up after its bound of resumptions', async (t) => {
    let calls = 0;
    const s = await sessionSetup(t, {
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
    const s = await sessionSetup(t, { provider: { continues: 'exact', stream: () => { throw new Error('sk-secret at https://internal'); } } });
    await s.send('x');
    const events = await s.ends(1);
    assert.ok(!JSON.stringify(events).includes('sk-secret'));
    assert.equal(one(events, 'RunErrored')['code'], 'internal_error');
  });

  it('gives a step its deadline', async (t) => {
    const s = await sessionSetup(t);
    await s.send('/hang 2');
    await s.host.until(address, (events) => said(events) === 'w1 w2');
    s.host.advance(limits.modelDeadlineMs + 1);
    assert.equal(one(await s.ends(1), 'RunErrored')['code'], 'provider_timeout');
  });

  it('bounds the text of a step', async (t) => {
    const block = 'x'.repeat(50_000);
    const s = await sessionSetup(t, {
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
    const s = await sessionSetup(t, { idleMs: 1_000 });
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
