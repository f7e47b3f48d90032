/** What the chat page shows, folded from events. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encodeAgentEvent, type AgentKind } from '../../contracts/stream.ts';
import { limits } from '../../contracts/limits.ts';
import { decodeFrame, type StreamEvent } from '../../gateway/client/frame.ts';
import { approvalsOf, emptyConversation, shows, wrote, type Conversation, type Mine } from '../../gateway/console/conversation.ts';

const event = (seqNo: number, agent: AgentKind, payload: unknown, kind = 'k'): StreamEvent => {
  const frame = decodeFrame(encodeAgentEvent('s', seqNo, kind, '2026-01-01T00:00:00.000Z', agent, payload));
  assert.ok(frame?.kind === 'agent_event');
  return frame.event;
};
const usage = { input_tokens: 1, output_tokens: 1, cost_cents: 2 };
const token = (n: number, text: string): StreamEvent => event(n, 'TOKEN', { text });
const finish = (n: number, finish_reason = 'stop'): StreamEvent => event(n, 'FINISH', { finish_reason, usage });
const mine = (messageId: string, after: number): Mine => ({ messageId, content: messageId, after });
const fold = (start: Conversation, events: readonly StreamEvent[]): Conversation => events.reduce(shows, start);
const sketch = (c: Conversation): string[] => c.entries.map((e) => {
  switch (e.kind) {
    case 'mine': return `mine ${e.message.content}`;
    case 'text': return `text ${e.text}`;
    case 'tool': return `tool ${e.name} ${e.state}`;
    case 'note': return `note ${e.text}`;
  }
});

test('console conversation - each message stands before the turn it started, also after a reload', () => {
  const events = [token(1, 'a'), token(2, 'b'), finish(3), token(4, 'c'), finish(5)];
  const live = fold(wrote(fold(wrote(emptyConversation(), mine('m1', 0)), events.slice(0, 1)), mine('m2', 1)), events.slice(1));
  const reloaded = fold(emptyConversation([mine('m1', 0), mine('m2', 1)]), events);
  assert.deepEqual(sketch(live), ['mine m1', 'text ab', 'mine m2', 'text c']);
  assert.deepEqual(sketch(reloaded), sketch(live));
  assert.equal(live.running, false);
  assert.equal(live.costCents, 4);
});

test('console conversation - a turn that someone else started takes no message of this page', () => {
  const c = fold(emptyConversation([mine('m1', 2)]), [token(1, 'theirs'), finish(2), token(3, 'ours')]);
  assert.deepEqual(sketch(c), ['text theirs', 'mine m1', 'text ours']);
});

test('console conversation - a tool call runs, waits for approval and ends', () => {
  const call = fold(emptyConversation(), [
    event(1, 'TOOL_CALL_PENDING', { call_id: 'c', tool_name: 'mail', arguments: {} }),
    event(2, 'APPROVAL_REQUIRED', { dispatch_id: 'd', call_id: 'c', preview: 'p' }),
  ]);
  assert.deepEqual(approvalsOf(call), [{ dispatchId: 'd', preview: 'p' }]);
  const done = shows(call, event(3, 'TOOL_RESULT', { call_id: 'c', tool_name: 'mail', result: 1, is_error: true }));
  assert.deepEqual(sketch(done), ['tool mail failed']);
  assert.deepEqual(approvalsOf(done), []);
  const cancelled = shows(call, finish(3, 'cancelled'));
  assert.deepEqual(sketch(cancelled), ['tool mail stopped', 'note Cancelled.']);
  assert.deepEqual(approvalsOf(cancelled), []);
});

test('console conversation - a refused message does not end the running turn', () => {
  const c = fold(emptyConversation([mine('m1', 0), mine('m2', 0)]), [token(1, 'a'), event(2, 'ERROR', { code: 'session_busy', message: 'full' }, 'MessageRefused'), token(3, 'b')]);
  assert.deepEqual(sketch(c), ['mine m1', 'text a', 'mine m2', 'note session_busy: full', 'text b']);
  assert.equal(c.running, true);
});

test('console conversation - unchanged entries keep their identity, the oldest are dropped and counted', () => {
  const before = fold(emptyConversation(), [token(1, 'a'), finish(2, 'length'), token(3, 'b')]);
  const after = shows(before, token(4, 'c'));
  assert.equal(after.entries[0], before.entries[0]);
  assert.notEqual(after.entries[2], before.entries[2]);
  let c = emptyConversation();
  for (let n = 1; n <= limits.clientEntriesMax + 3; n++) c = shows(c, event(n, 'ERROR', { code: 'x', message: String(n) }, 'RunErrored'));
  assert.equal(c.entries.length, limits.clientEntriesMax);
  assert.equal(c.dropped, 3);
});
