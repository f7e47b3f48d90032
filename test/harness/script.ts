/**
 * Turns for the mock model, drawn from a seed, and what a client must see of them: the judge of the fault tests.
 *
 * `turnProblem` asks the mock itself (`scripted`) for the text of each step, given the tool results that the client was shown,
 * so that a lost, doubled or reordered token, call or result shows as a difference.
 */
import { scripted } from '../../actors/providers/mock.ts';
import type { PromptMessage } from '../../actors/providers/provider.ts';
import type { StreamEvent } from '../../gateway/client/index.ts';
import type { Draw } from './seed.ts';

/** A message whose approval the talker refuses. */
export const denyMark = 'please-deny';

export interface ScriptOptions {
  /** A page the fetch tool may read; `/<tag>` is added. */
  readonly pageUrl?: string;
  /** Multiplies the words and pauses of the drawn texts. Default 1. */
  readonly length?: number;
}

/** One message. Every text in it that matters bears the tag, so that nothing of one turn passes for another's. */
export const drawScript = (random: Draw, tag: string, options: ScriptOptions = {}): string => {
  const length = options.length ?? 1;
  const words = (): string => random.pick([
    `/slow ${random.int(2, 30)} ${random.int(5, Math.ceil(40 * length))}`,
    `/slow ${random.int(10, 40)} ${random.int(5, Math.ceil(30 * length))}`,
    `/long ${random.int(10, 400)}`,
  ]);
  const call = (part: number): string => random.pick([
    `/tool calculator {"expression":"${random.int(1, 99_999)}*${random.int(1, 99_999)}"}`,
    `/tool calculator {"expression":"1/0"}`,
    `/memory save ${tag} likes the number ${random.int(1, 1_000_000)}`,
    `/memory find ${tag}`,
    `/approve ${tag}-${part} report`,
    `/approve ${tag}-${part} ${denyMark}`,
    `/tool no_such_tool {}`,
    ...(options.pageUrl === undefined ? [] : [`/tool fetch_url {"url":"${options.pageUrl}/${tag}-${part}"}`]),
  ]);
  const lines = [`/say ${tag}`, words()];
  const steps = random.int(0, 3);
  for (let step = 0; step < steps; step++) {
    lines.push(call(step));
    if (random.next() < 0.3) lines.push(call(step + 10));
    lines.push('/then', `/say ${tag} step ${step + 1}`);
    if (random.next() < 0.7) lines.push(words());
  }
  const end = random.next();
  if (end < 0.1) lines.push(`/cut-after ${random.int(3, 30)}`);
  else if (end < 0.2) lines.push(`/fail-after ${random.int(3, 30)}`);
  else if (end < 0.25) lines.push('/length');
  return lines.join('\n');
};

/** What is wrong with a turn as a client saw it (its events up to and with FINISH or ERROR), or undefined. */
export const turnProblem = (script: string, events: readonly StreamEvent[]): string | undefined => {
  const messages: PromptMessage[] = [{ role: 'user', text: script }];
  let at = 0;
  const next = (): StreamEvent | undefined => events[at];
  for (;;) {
    const step = scripted(messages);
    const full = step.end === 'cut' ? `${step.text} and on.` : step.text;
    let said = '';
    for (let event = next(); event?.agent_kind === 'TOKEN'; event = next()) {
      said += event.payload.text;
      at++;
    }
    if (said !== full) return `the text is\n${JSON.stringify(said)}\nand should be\n${JSON.stringify(full)}`;
    const calls: { call_id: string; name: string; arguments: unknown }[] = [];
    for (let event = next(); event?.agent_kind === 'TOOL_CALL_PENDING'; event = next()) {
      calls.push({ call_id: event.payload.call_id, name: event.payload.tool_name, arguments: event.payload.arguments });
      at++;
    }
    // A host lost between two calls of a step ends the step with those it has (model.ts M2): a beginning, never none.
    const wanted = step.calls.slice(0, calls.length).map((c) => [c.name, c.arguments]);
    if (JSON.stringify(calls.map((c) => [c.name, c.arguments])) !== JSON.stringify(wanted) || (step.calls.length > 0) !== (calls.length > 0)) {
      return `the calls are ${JSON.stringify(calls)} and should be ${JSON.stringify(step.calls)}`;
    }
    if (calls.length === 0) {
      const end = next();
      if (end === undefined || at !== events.length - 1) return `the turn does not end after its text: ${JSON.stringify(events.slice(at))}`;
      if (step.end === 'fail') return end.agent_kind === 'ERROR' && end.payload.code === 'provider_error' ? undefined : `it should have failed: ${JSON.stringify(end.record)}`;
      const reason = step.end === 'length' || step.end === 'content_filter' ? step.end : 'stop';
      return end.agent_kind === 'FINISH' && end.payload.finish_reason === reason ? undefined : `it should have finished with ${reason}: ${JSON.stringify(end.record)}`;
    }
    messages.push({ role: 'assistant', text: full, calls });
    const open = new Map(calls.map((c) => [c.call_id, c]));
    while (open.size > 0) {
      const event = next();
      if (event?.agent_kind === 'APPROVAL_REQUIRED') {
        if (open.get(event.payload.call_id)?.name !== 'send_report') return `an approval for ${event.payload.call_id}, which does not wait`;
      } else if (event?.agent_kind === 'TOOL_RESULT') {
        const { call_id: id, result, is_error: isError, tool_name: name } = event.payload;
        if (!open.delete(id)) return `a result for ${id}, which has one or was not called`;
        // In the order they came: that is how the session keeps them.
        messages.push({ role: 'tool', call_id: id, name, text: JSON.stringify(result ?? null), is_error: isError });
      } else return `${JSON.stringify(event?.record)} while ${[...open.keys()].join(', ')} have no result`;
      at++;
    }
  }
};

/** A stream cut into turns, each with its FINISH or ERROR; what is left after the last one is `rest`. */
export const turnsOf = (events: readonly StreamEvent[]): { readonly turns: readonly (readonly StreamEvent[])[]; readonly rest: readonly StreamEvent[] } => {
  const turns: StreamEvent[][] = [];
  let open: StreamEvent[] = [];
  for (const event of events) {
    if (event.agent_kind === 'HIBERNATE' && open.length === 0) continue;
    open.push(event);
    if (event.agent_kind !== 'FINISH' && event.agent_kind !== 'ERROR') continue;
    turns.push(open);
    open = [];
  }
  return { turns, rest: open };
};
