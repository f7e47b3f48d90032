/** `troupe` against the real gateway, daemon and NATS: a conversation, and one that both processes are killed under. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startStack } from '../harness/stack.ts';
import { Troupe, troupe } from '../harness/troupe.ts';

test('cli - talks to a real Troupe: text, tool, approval, replay, status', async (t) => {
  const stack = await startStack(t);
  const env = { TROUPE_GATEWAY_URL: stack.url, TROUPE_TOKEN: await stack.token('user-1'), TROUPE_CA: stack.caPath, TROUPE_ADMIN_SOCKET: stack.gateways[0]?.adminSocket ?? '' };
  const ran = await troupe(['chat', '--json', '--approve', 'yes', '/approve the report'], stack.folder, undefined, env);
  assert.equal(ran.code, 0, ran.out + ran.err);
  const lines = ran.out.trim().split('\n').map((line) => JSON.parse(line) as Record<string, unknown>);
  const kinds = new Set(lines.map((l) => l['agent_kind'] ?? l['kind']));
  for (const kind of ['session', 'TOOL_CALL_PENDING', 'APPROVAL_REQUIRED', 'TOOL_RESULT', 'TOKEN', 'FINISH']) assert.ok(kinds.has(kind), `${kind} is missing in\n${ran.out}`);
  const sid = String(lines[0]?.['sid']);
  const replay = await troupe(['replay', sid, '--json'], stack.folder, undefined, env);
  assert.equal(replay.code, 0, replay.err);
  assert.equal(replay.err, `{"kind":"counts","delivered":${lines.length - 1},"lost":0,"repeated":0}\n`);
  const again = await troupe(['chat', '--sid', sid, '/say once more'], stack.folder, undefined, env);
  assert.match(again.out, /^once more\n$/);
  const status = await troupe(['status', '--json'], stack.folder, undefined, env);
  assert.equal(status.code, 0, status.out);
  assert.match(status.out, /"admin":\{"ok":true/);
});

test('cli - a chat outlives kill -9 of the gateway and of the daemon in one turn: every word once, in order [WSS-026] [WSS-050]', async (t) => {
  const stack = await startStack(t);
  const [gateway] = stack.gateways;
  const [daemon] = stack.daemons;
  assert.ok(gateway && daemon);
  const env = { TROUPE_GATEWAY_URL: stack.url, TROUPE_TOKEN: await stack.token('user-1'), TROUPE_CA: stack.caPath };
  const words = 400;
  const chat = new Troupe(['chat', `/slow 20 ${words}`], stack.folder, env);
  t.after(() => { chat.kill(); });
  await chat.saw('w20 ');
  await gateway.restart();
  await chat.saw('reconnected in', 'err');
  await chat.saw('w120 ');
  await daemon.restart();
  const ran = await chat.ended;
  assert.equal(ran.code, 0, ran.err);
  assert.deepEqual(ran.out.match(/w\d+/g), Array.from({ length: words }, (_, i) => `w${i + 1}`));
  const reconnects = ran.err.match(/reconnected in \d+\.\d s, 0 events lost/g) ?? [];
  assert.ok(reconnects.length >= 2, ran.err);
  t.diagnostic(reconnects.join('; '));
});
