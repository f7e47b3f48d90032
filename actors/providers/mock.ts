/**
 * The model without a vendor: deterministic, scripted by the last user message. The same messages give the same parts, and
 * a continued reply (`said`) goes on at exactly the next character.
 *
 * Script: if the first line of the last user message starts with `/`, each line is a directive.
 *   /say <text>              says the text
 *   /long <n>                n numbered words ("w1 w2 …")
 *   /slow <ms> <n>           n numbered words, ms apart
 *   /tool <name> [<json>]    a tool call; text that is not JSON is sent as it is (a malformed call)
 *   /memory save <fact>      the call memory_write       /memory find <query>   the call memory_search
 *   /approve <text>          the call send_report, which waits for approval
 *   /then                    what follows belongs to the next model step (after the tool results)
 *   /fail                    fails before the first byte
 *   /fail-after <n>          n numbered words, then a failure that is not resumed
 *   /cut-after <n>           n numbered words, then a break once; the rest ("and on.") comes when it is resumed
 *   /hang <n>                n numbered words, then silence until the call is aborted
 *   /length                  ends with finish reason `length`; /filter with `content_filter`
 * A step with tool calls says a short line first. After the last step's results it says what they were.
 * Without a directive the reply repeats what was said. It does not read attachments for directives, and knows no languages.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { ProviderFault, parseArguments, type Part, type PromptCall, type PromptMessage, type Provider, type ProviderCall, type StepEnd } from './provider.ts';

interface Step {
  text: string;
  calls: Omit<PromptCall, 'call_id'>[];
  end: StepEnd | 'fail' | 'cut' | 'hang';
  /** Milliseconds between two words. */
  paceMs: number;
}

const numbered = (n: number): string => Array.from({ length: Math.min(Math.max(0, n), 100_000) }, (_, i) => `w${i + 1}`).join(' ');
const emptyStep = (): Step => ({ text: '', calls: [], end: 'stop', paceMs: 0 });
const count = (text: string | undefined, otherwise: number): number => (text !== undefined && /^\d+$/.test(text) ? Number(text) : otherwise);

const direct = (step: Step, line: string): void => {
  const space = line.indexOf(' ');
  const word = space < 0 ? line : line.slice(0, space);
  const rest = space < 0 ? '' : line.slice(space + 1).trim();
  const args = rest.split(/\s+/);
  const say = (text: string): void => { step.text += step.text === '' ? text : ` ${text}`; };
  switch (word) {
    case '/say': say(rest); return;
    case '/long': say(numbered(count(args[0], 100))); return;
    case '/slow': step.paceMs = Math.min(count(args[0], 50), 60_000); say(numbered(count(args[1], 20))); return;
    case '/tool': {
      const name = args[0] ?? '';
      step.calls.push({ name, arguments: parseArguments(rest.slice(name.length)) });
      return;
    }
    case '/memory':
      if (args[0] === 'find') step.calls.push({ name: 'memory_search', arguments: { query: rest.slice(4).trim() } });
      else step.calls.push({ name: 'memory_write', arguments: { fact: rest.replace(/^save\s*/, '') } });
      return;
    case '/approve': step.calls.push({ name: 'send_report', arguments: { title: 'Report', body: rest === '' ? 'Nothing to add.' : rest } }); return;
    case '/fail': step.end = 'fail'; return;
    case '/fail-after': say(numbered(count(args[0], 10))); step.end = 'fail'; return;
    case '/cut-after': say(numbered(count(args[0], 10))); step.end = 'cut'; return;
    case '/hang': say(numbered(count(args[0], 1))); step.end = 'hang'; return;
    case '/length': step.end = 'length'; return;
    case '/filter': step.end = 'content_filter'; return;
    default: if (!line.startsWith('/')) say(line);
  }
};

const shorten = (text: string): string => (text.length > 400 ? `${text.slice(0, 400)}…` : text);

/** What the model says in this step; exported so that tests know the full text. */
export const scripted = (messages: readonly PromptMessage[]): Step => {
  const last = messages.findLastIndex((m) => m.role === 'user');
  const user = messages[last];
  const text = user?.role === 'user' ? user.text : '';
  const after = messages.slice(last + 1);
  const results = after.filter((m) => m.role === 'tool');
  if (!text.startsWith('/')) return { ...emptyStep(), text: text === '' ? 'Hello.' : `You said: ${text}` };

  const steps: Step[] = [emptyStep()];
  for (const line of text.split('\n')) {
    const step = steps.at(-1);
    if (line.trim() === '/then') steps.push(emptyStep());
    else if (step !== undefined) direct(step, line.trim());
  }
  const taken = after.filter((m) => m.role === 'assistant' && m.calls.length > 0).length;
  const step = steps[taken];
  if (step !== undefined) {
    if (step.calls.length > 0 && step.text === '') step.text = `Let me use ${step.calls.map((c) => c.name).join(' and ')}.`;
    return step;
  }
  return { ...emptyStep(), text: results.map((r) => `${r.name} ${r.is_error ? 'failed' : 'says'}: ${shorten(r.text)}`).join(' ') };
};

const tokensOf = (text: string): number => Math.ceil(text.length / 4);

/** Words with the white space after them, from a position on. */
const words = (text: string, from: number): string[] => text.slice(from).match(/\S*\s*/g)?.filter((w) => w !== '') ?? [];

async function* reply(call: ProviderCall): AsyncGenerator<Part> {
  call.signal.throwIfAborted();
  const step = scripted(call.messages);
  const full = step.end === 'cut' ? `${step.text} and on.` : step.text;
  const cutAt = step.end === 'cut' && call.said === '' ? step.text.length : full.length;
  let at = Math.min(call.said.length, full.length);
  for (const word of words(full, at)) {
    if (at >= cutAt) break;
    if (step.paceMs > 0) await pause(step.paceMs, undefined, { signal: call.signal });
    call.signal.throwIfAborted();
    const text = word.slice(0, cutAt - at);
    at += text.length;
    yield { kind: 'text', text };
  }
  if (step.end === 'cut' && call.said === '') throw new ProviderFault('provider_error', 'The model stopped mid-reply.', true);
  if (step.end === 'fail') throw new ProviderFault('provider_error', 'The model failed as it was told to.', false);
  if (step.end === 'hang') {
    await new Promise<never>((_, reject) => {
      call.signal.addEventListener('abort', () => reject(new ProviderFault('provider_error', 'The call was aborted.', false)), { once: true });
    });
  }
  const turn = call.messages.length;
  for (const [i, c] of step.calls.entries()) {
    yield { kind: 'tool_call', call_id: `call_${turn}_${i}`, name: c.name, arguments: c.arguments };
  }
  yield {
    kind: 'end',
    finish_reason: step.calls.length > 0 ? 'tool_calls' : step.end === 'length' || step.end === 'content_filter' ? step.end : 'stop',
    usage: {
      input_tokens: call.messages.reduce((sum, m) => sum + tokensOf(m.text), 0),
      output_tokens: tokensOf(full),
    },
  };
}

/** The scripted provider. Needs nothing and reaches nothing. */
export const mock = (): Provider => ({ continues: 'exact', stream: reply });
