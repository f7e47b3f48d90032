/** The client's own reader of server frames says the same as the contract's schema. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { agentPayloads, encodeAgentEvent, wireInbound, type AgentKind } from '../../contracts/stream.ts';
import { decodeFrame } from '../../gateway/client/frame.ts';

const usage = { input_tokens: 1, output_tokens: 2, cost_cents: 3 };
const payloads: Record<AgentKind, Record<string, unknown>> = {
  TOKEN: { text: 'hi' },
  FINISH: { finish_reason: 'stop', usage },
  ERROR: { code: 'c', message: 'm' },
  TOOL_CALL_PENDING: { call_id: 'c', tool_name: 't', arguments: { a: 1 } },
  TOOL_RESULT: { call_id: 'c', tool_name: 't', result: [1], is_error: false },
  APPROVAL_REQUIRED: { dispatch_id: 'd', call_id: 'c', preview: 'p' },
  HIBERNATE: {},
};
const kinds = Object.keys(payloads) as AgentKind[];
const frame = (agent: AgentKind, payload: unknown): string => encodeAgentEvent('s', 1, 'k', '2026-01-01T00:00:00.000Z', agent, payload);

for (const agent of kinds) {
  test(`client frame - ${agent} is read as the contract writes it [WSS-008]`, () => {
    const read = decodeFrame(frame(agent, payloads[agent]));
    assert.ok(read?.kind === 'agent_event');
    assert.equal(read.event.agent_kind, agent);
    assert.deepEqual(read.event.payload, payloads[agent]);
    assert.ok(agentPayloads[agent].safeParse(payloads[agent]).success);
  });
  for (const field of Object.keys(payloads[agent])) {
    // `z.unknown()` fields may be absent: JSON has no undefined.
    if (field === 'arguments' || field === 'result') continue;
    test(`client frame - ${agent} without ${field}, or with it ill-typed, is refused as the contract refuses it`, () => {
      for (const bad of [{ ...payloads[agent], [field]: undefined }, { ...payloads[agent], [field]: { not: 'this' } }]) {
        assert.equal(decodeFrame(frame(agent, bad)), undefined);
        assert.equal(agentPayloads[agent].safeParse(JSON.parse(JSON.stringify(bad))).success, false);
      }
    });
  }
}

test('client frame - whole frames: reader and schema agree on good and bad ones', () => {
  const good = frame('TOKEN', { text: 'x' });
  const samples: [string, boolean][] = [
    [good, true],
    ['{"kind":"pong","seq_no":0}', true],
    ['{"kind":"closing","reason":"normal"}', true],
    ['{"kind":"pong","seq_no":-1}', false],
    ['{"kind":"pong","seq_no":1.5}', false],
    ['{"kind":"closing"}', false],
    ['{"kind":"hello"}', false],
    ['[]', false],
    ['null', false],
    [good.replace('"seq_no":1', '"seq_no":0'), false],
    [good.replace('"seq_no":1', '"seq_no":"1"'), false],
    [good.replace('TOKEN', 'THOUGHT'), false],
    [good.replace('"session_id":"s"', '"session_id":1'), false],
    [good.replace('2026-01-01T00:00:00.000Z', 'yesterday'), false],
    [good.replace('"payload":{"text":"x"}', '"payload":[]'), false],
  ];
  for (const [text, fine] of samples) {
    assert.equal(decodeFrame(text) !== undefined, fine, text);
    assert.equal(wireInbound.safeParse(JSON.parse(text)).success, fine, text);
  }
  assert.equal(decodeFrame(good.replace('"sequence":1', '"sequence":2')), undefined, 'the record must be of the frame');
  assert.equal(decodeFrame('{'), undefined);
});
