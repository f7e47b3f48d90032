/** The console's chat without a browser: events cut anywhere, a conversation's fold, the request that it makes, what is kept. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { CodedError } from '../../contracts/errors.ts';
import { approvalsOf, uiChatRequest, type UiPart } from '../../contracts/ui-chat.ts';
import { eventsOf } from '../../gateway/console/platform/chat/events.ts';
import { readPart, readTalk } from '../../gateway/console/platform/chat/part.ts';
import { afterReload, again, asked, changeLast, decided, failed, goesOn, heard, isDecided, requestOf, type Talk } from '../../gateway/console/platform/chat/talk.ts';

const streamOf = (pieces: readonly string[]): ReadableStream<Uint8Array> => {
  const bytes = pieces.map((piece) => Buffer.from(piece, 'latin1'));
  return new ReadableStream({ pull: (controller) => { const next = bytes.shift(); if (next === undefined) controller.close(); else controller.enqueue(next); } });
};
const all = async (pieces: readonly string[]): Promise<unknown[]> => {
  const got: unknown[] = [];
  for await (const event of eventsOf(streamOf(pieces))) got.push(event);
  return got;
};
const hear = (talk: Talk, ...parts: UiPart[]): Talk => parts.reduce((now, part) => changeLast(now, (turn) => heard(turn, part)), talk);
const finish = (finishReason: Extract<UiPart, { type: 'finish' }>['finishReason']): UiPart => ({ type: 'finish', finishReason, usage: { inputTokens: 1, outputTokens: 2 } });
const call = (toolCallId: string): UiPart => ({ type: 'tool-call', toolCallId, toolName: 'send_report', args: { body: 'x' } });
const said = (text: string): UiPart => ({ type: 'text-delta', id: 'c', text });

test('console chat - events come whole wherever the bytes are cut; comments say nothing, a cut-off event is none, what is no JSON is an error', async () => {
  const text = Buffer.from(': still here\n\ndata: {"a":"ü€"}\n\ndata: {"b":2}\r\n\r\ndata: {"c":').toString('latin1');
  for (let at = 1; at < text.length; at++) assert.deepEqual(await all([text.slice(0, at), text.slice(at)]), [{ a: 'ü€' }, { b: 2 }], `cut at ${at}`);
  await assert.rejects(all(['data: nonsense\n\n']), (error: unknown) => error instanceof CodedError && error.code === 'upstream_error');
  assert.throws(() => readPart({ type: 'finish', finishReason: 'tired', usage: { inputTokens: 1, outputTokens: 1 } }, 'event'), /is not what this page expects/);
});

test('console chat - every conversation makes a request that the contract takes: results, decisions at the end, nothing empty [CHAT-033]', () => {
  const check = (talk: Talk): ReturnType<typeof uiChatRequest.parse> => uiChatRequest.parse(requestOf(talk));
  let talk = hear(asked([], 'first', 'm'), said('Let me'), said(' see.'), call('c1'), call('c2'), finish('tool-calls'));
  assert.equal(talk.at(-1)?.end.kind, 'waiting');
  talk = decided(talk, 'c1', true);
  assert.equal(isDecided(talk.at(-1) ?? assert.fail()), false, 'one is left');
  talk = goesOn(decided(talk, 'c2', false));
  assert.deepEqual(approvalsOf(check(talk)), [{ call_id: 'c1', approved: true }, { call_id: 'c2', approved: false }]);
  talk = hear(talk, { type: 'tool-result', toolCallId: 'c1', toolName: 'send_report', result: { filed: true } }, { type: 'tool-result', toolCallId: 'c2', toolName: 'send_report', result: { error: { code: 'denied', message: '' } } }, said('Done.'), finish('stop'));
  assert.deepEqual(talk.at(-1)?.pieces.map((piece) => (piece.kind === 'tool' ? piece.state : piece.text)), ['Let me see.', 'done', 'denied', 'Done.']);
  const roles = check(asked(talk, 'second', 'm')).messages.map(({ role }) => role);
  assert.deepEqual(roles, ['user', 'assistant', 'tool', 'tool', 'assistant', 'user']);
  // A call that nobody decided on, and an answer that failed, are not told again.
  const left = hear(asked([], 'first', 'm'), call('c3'), finish('tool-calls'));
  assert.deepEqual(check(asked(left, 'never mind', 'm')).messages, [{ role: 'user', content: 'first' }, { role: 'user', content: 'never mind' }]);
  const broken = changeLast(asked([], 'first', 'm'), (turn) => failed(turn, { code: 'provider_error', message: '', details: {} }));
  assert.deepEqual(check(again(broken, 'other')), { model: 'other', stream: true, messages: [{ role: 'user', content: 'first' }] });
});

test('console chat - what is kept is read as it was; what was under way is interrupted; nothing kept is an empty conversation', () => {
  const talk = hear(asked([], 'first', 'm'), said('half'), call('c1'));
  const kept = readTalk(JSON.stringify(talk));
  assert.deepEqual(JSON.parse(JSON.stringify(kept)), JSON.parse(JSON.stringify(talk)));
  assert.equal(afterReload(kept).at(-1)?.end.kind, 'interrupted');
  assert.deepEqual(readTalk(undefined), []);
});
