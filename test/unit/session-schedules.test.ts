// Steps of a model that would not fit into one commit: the turn ends all the same.
import { it } from 'node:test';
import assert from 'node:assert/strict';
import { z } from 'zod';
import type { Provider } from '../../actors/providers/provider.ts';
import { defineTool } from '../../actors/tools/index.ts';
import { limits } from '../../contracts/limits.ts';
import { count, one, sessionSetup } from '../harness/session.ts';

const usage = { input_tokens: 1, output_tokens: 1 };

it('session - a text that grows sixfold as JSON ends the step before it is too large for a commit', { timeout: 60_000 }, async (t) => {
  const provider: Provider = {
    continues: 'exact',
    async *stream() {
      for (let i = 0; i < 64; i++) yield { kind: 'text', text: '\u0001'.repeat(4_096) };
      yield { kind: 'end', finish_reason: 'stop', usage };
    },
  };
  const s = await sessionSetup(t, { provider });
  await s.send('go');
  const events = await s.ends(1);
  assert.equal(one(events, 'RunFinished')['finish_reason'], 'length');
});

it('session - refused calls whose fault is long to tell, and previews that are long, fit into one commit', { timeout: 60_000 }, async (t) => {
  const picky = defineTool({
    name: 'picky', description: '', parameters: z.strictObject({ a: z.string().optional() }), needsApproval: true, idempotent: true,
    preview: ({ a }) => `Do ${a}`, run: async () => null,
  });
  const wide = (i: number): unknown => (i % 2 === 0 ? { a: 'x'.repeat(60_000) } : { ['k'.repeat(60_000)]: 1 });
  let step = 0;
  const provider: Provider = {
    continues: 'exact',
    async *stream() {
      if (step++ > 0) {
        yield { kind: 'end', finish_reason: 'stop', usage };
        return;
      }
      for (let i = 0; i < limits.stepToolCallsMax; i++) yield { kind: 'tool_call', call_id: `c${i}`, name: 'picky', arguments: wide(i) };
      yield { kind: 'end', finish_reason: 'tool_calls', usage };
    },
  };
  const s = await sessionSetup(t, { provider, tools: [picky] });
  await s.send('go');
  const events = await s.host.until({ org: 'u-ann', type: 'session', key: 'abcdefghijklmnopqrstuvwxyz' }, (all) => count(all, 'ApprovalRequested') > 0 || count(all, 'RunErrored') > 0);
  assert.equal(count(events, 'ApprovalRequested'), limits.stepToolCallsMax / 2);
  assert.equal(count(events, 'ToolResult'), limits.stepToolCallsMax / 2);
});
