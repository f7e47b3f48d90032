/** `troupe chat` as a process over a pipe, against an edge that is cut, closed, refused and restarted under it. */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { limits } from '../../contracts/limits.ts';
import { FakeEdge } from '../harness/fake-edge.ts';
import { Troupe, troupe, troupeHome, type Home } from '../harness/troupe.ts';

let edge: FakeEdge;
let home: Home;
before(async () => {
  edge = await FakeEdge.start();
  home = await troupeHome(edge);
});
after(async () => {
  await edge.stop();
  await home.remove();
});

const kindOf = (line: string): Record<string, unknown> => {
  const value: unknown = JSON.parse(line);
  assert.ok(typeof value === 'object' && value !== null);
  return { ...value };
};
const onlySid = (ran: { out: string }): string => {
  const sid = kindOf(ran.out.split('\n')[0] ?? '')['sid'];
  assert.ok(typeof sid === 'string');
  return sid;
};

test('cli chat - one message, its answer on standard output alone, exit code 0', async () => {
  const ran = await troupe(['chat', 'hello', 'there'], home.folder);
  assert.deepEqual(ran, { code: 0, out: 'You said: hello there\n', err: '' });
});

test('cli chat - one message a line from a pipe, in order', async () => {
  const ran = await troupe(['chat'], home.folder, 'one\n\ntwo\nthree');
  assert.deepEqual(ran, { code: 0, out: 'You said: one\nYou said: two\nYou said: three\n', err: '' });
});

test('cli chat - stops at the first turn that fails, with exit code 1', async () => {
  const ran = await troupe(['chat'], home.folder, '/error\nnever sent\n');
  assert.equal(ran.code, 1);
  assert.equal(ran.out, 'Well, \n');
  assert.match(ran.err, /error provider_error: The model provider failed/);
  assert.ok(!edge.received.some((r) => r.content === 'never sent'));
});

test('cli chat - shows a tool call with its arguments and result', async () => {
  const ran = await troupe(['chat', '/tool now'], home.folder);
  assert.equal(ran.out, 'Let me see. \nThe answer is 42.\n');
  assert.match(ran.err, /→ calculator \{"expression":"6\*7","note":"\/tool now"\}\n {2}← calculator \{"value":42\}/);
});

test('cli chat - denies an approval when there is nobody to ask, and approves with --approve yes', async () => {
  const denied = await troupe(['chat', '/approve this'], home.folder);
  assert.match(denied.err, /denied, nobody to ask/);
  assert.match(denied.out, /Then I will not\./);
  assert.equal(denied.code, 0);
  const approved = await troupe(['chat', '--approve', 'yes', '/approve that'], home.folder);
  assert.match(approved.out, /The answer is 42\./);
});

test('cli chat - --json prints the session and every event as a JSON line', async () => {
  const ran = await troupe(['chat', '--json', '/tool x'], home.folder);
  const lines = ran.out.trim().split('\n').map(kindOf);
  assert.deepEqual(lines.map((l) => l['agent_kind'] ?? l['kind']), ['session', 'TOKEN', 'TOOL_CALL_PENDING', 'TOOL_RESULT', 'TOKEN', 'FINISH']);
  assert.deepEqual(lines.slice(1).map((l) => l['seq_no']), [1, 2, 3, 4, 5]);
  assert.equal(ran.err, '');
});

test('cli chat - goes on with a session and shows only what is new', async () => {
  const sid = onlySid(await troupe(['chat', '--json', 'first'], home.folder));
  const ran = await troupe(['chat', '--sid', sid, 'second'], home.folder);
  assert.deepEqual(ran, { code: 0, out: 'You said: second\n', err: '' });
});

test('cli chat - a connection cut in the middle of a turn loses and repeats nothing', async () => {
  const chat = new Troupe(['chat', '/slow please'], home.folder);
  await chat.saw('Thinking');
  const session = [...edge.sessions.values()].at(-1);
  assert.ok(session);
  edge.cut();
  edge.release(session.sid);
  const ran = await chat.ended;
  assert.equal(ran.code, 0);
  assert.equal(ran.out.replaceAll('\n', ''), 'Thinking done.');
  assert.match(ran.err, /connection lost \(1006\), reconnecting …\n {2}reconnected in \d+\.\d s, 0 events lost/);
  assert.equal(session.ids.size, 1, 'the repeated message ran once');
});

test('cli chat - a message that the server lost is sent again after the restart of the edge', async (t) => {
  const first = await FakeEdge.start();
  const place = await troupeHome(first);
  t.after(() => place.remove());
  first.swallow = true;
  const arrived = first.nextMessage();
  const chat = new Troupe(['chat', 'keep me'], place.folder);
  await arrived;
  await first.stop();
  const second = await FakeEdge.start({ again: first });
  const ran = await chat.ended;
  await second.stop();
  assert.equal(ran.out, 'You said: keep me\n');
  assert.equal(ran.code, 0);
  assert.match(ran.err, /reconnected in/);
  assert.equal(first.received[0]?.id, second.received[0]?.id);
});

test('cli chat - Ctrl-C cancels the running turn and leaves with 130', async () => {
  const chat = new Troupe(['chat', '/slow one'], home.folder);
  await chat.saw('Thinking');
  chat.interrupt();
  const ran = await chat.ended;
  assert.equal(ran.code, 130);
  assert.match(ran.err, /\(cancelled\)/);
});

test('cli chat - a close code that forbids a reconnect ends it with a sentence and exit code 4 [WSS-050]', async () => {
  const chat = new Troupe(['chat', '/slow two'], home.folder);
  await chat.saw('Thinking');
  const upgrades = edge.upgrades;
  edge.closeAll(1008, 'policy_violation:token_expired');
  const ran = await chat.ended;
  assert.equal(ran.code, 4);
  assert.match(ran.err, /unauthorized: The token has expired/);
  assert.equal(edge.upgrades, upgrades);
});

test('cli chat - a gap in the stream is reported, not hidden', async () => {
  const chat = new Troupe(['chat', '/slow three'], home.folder);
  await chat.saw('Thinking');
  const session = [...edge.sessions.values()].at(-1);
  assert.ok(session);
  edge.forge(session.sid, 5);
  const ran = await chat.ended;
  assert.equal(ran.code, 3);
  assert.match(ran.err, /stream_broken: The stream broke: the server left out events: expected 2, got 5/);
  assert.ok(!ran.out.includes('forged'));
});

test('cli chat - a message too large for a frame goes as an attachment', async () => {
  const ran = await troupe(['chat'], home.folder, 'x'.repeat(limits.clientFrameMaxBytes));
  assert.equal(ran.out, `You said: The message is attached (${limits.clientFrameMaxBytes} bytes of text). (${limits.clientFrameMaxBytes} bytes attached)\n`);
});

test('cli chat - what an agent says cannot drive the terminal', async () => {
  const ran = await troupe(['chat', 'a\u001b[2Jb\u0007c\rd'], home.folder);
  assert.equal(ran.out, 'You said: a[2Jbcd\n');
});

test('cli chat - an unknown session, a wrong token and an unknown model are refused with what to do', async (t) => {
  const unknown = await troupe(['chat', '--sid', 'a'.repeat(26), 'hi'], home.folder);
  assert.equal(unknown.code, 4);
  assert.match(unknown.err, /session_not_found: .*\nCheck the sid/);
  const other = await troupeHome(edge, 'wrong');
  t.after(() => other.remove());
  const refused = await troupe(['chat', 'hi'], other.folder);
  assert.equal(refused.code, 4);
  assert.match(refused.err, /unauthorized: .*\nThe token is wrong, has expired or was revoked/);
  const model = await troupe(['chat', '--model', 'no-such-model', 'hi'], home.folder);
  assert.equal(model.code, 4);
});

test('cli chat - a certificate that is not trusted is refused', async (t) => {
  const other = await FakeEdge.start();
  const place = await troupeHome(other);
  t.after(() => place.remove());
  await writeFile(join(place.folder, '.troupe', 'ca.pem'), edge.caPem);
  const ran = await troupe(['chat', 'hi'], place.folder);
  await other.stop();
  assert.equal(ran.code, 3);
  assert.match(ran.err, /upstream_unavailable/);
  assert.equal(other.sessions.size, 0);
});
