/** One turn of a conversation on the screen: the question, what was said, each tool call, how it ended and what can be done now. */
import type { VNode } from 'preact';
import { Button } from '../form.tsx';
import { adviceOn } from './advice.ts';
import { isTool, type Piece, type ToolUse, type Turn } from './talk.ts';

const states: Readonly<Record<ToolUse['state'], string>> = {
  running: 'running …', asked: 'needs your approval', allowed: 'allowed', denied: 'denied', done: 'done', failed: 'failed',
};

const shown = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value, undefined, 2) ?? '');

const Tool = ({ tool, onDecide }: { tool: ToolUse; onDecide: ((allowed: boolean) => void) | undefined }): VNode => (
  <div class={`tool ${tool.state}`}>
    <details open={tool.state === 'asked'}>
      <summary><code>{tool.name}</code> <span class="outcome">{states[tool.state]}</span></summary>
      <h4>Asked with</h4>
      <pre tabIndex={0} aria-label={`What ${tool.name} is asked`}><code>{shown(tool.args)}</code></pre>
      {tool.result !== undefined && <><h4>Answered</h4><pre tabIndex={0} aria-label={`What ${tool.name} answered`}><code>{shown(tool.result)}</code></pre></>}
    </details>
    {tool.state === 'asked' && onDecide !== undefined && (
      <div class="approval" role="group" aria-label={`Approval of ${tool.name}`}>
        <p>The model wants to run <strong>{tool.name}</strong> with what is shown above. Nothing has happened yet.</p>
        <p class="actions"><Button class="" onClick={() => { onDecide(true); }}>Allow</Button><Button class="danger" onClick={() => { onDecide(false); }}>Deny</Button></p>
      </div>
    )}
  </div>
);

const PieceShown = ({ piece, onDecide }: { piece: Piece; onDecide: ((id: string, allowed: boolean) => void) | undefined }): VNode => (
  isTool(piece) ? <Tool tool={piece} onDecide={onDecide === undefined ? undefined : (allowed) => { onDecide(piece.id, allowed); }} /> : <p class="text">{piece.text}</p>
);

const endings = {
  stopped: 'You stopped this answer.',
  interrupted: 'The page was reloaded or left while this was answered; what had come is here.',
  length: 'The answer was cut: it reached the model\'s longest.',
  filtered: 'The provider\'s filter ended this answer.',
} as const;

const hasEnding = (kind: string): kind is keyof typeof endings => Object.hasOwn(endings, kind);

const Ended = ({ turn, org, onAgain }: { turn: Turn; org: string | undefined; onAgain: (() => void) | undefined }): VNode | null => {
  const { end, usage } = turn;
  const retry = onAgain === undefined ? null : <Button onClick={onAgain}>Ask again</Button>;
  if (end.kind === 'failed') {
    const advice = adviceOn(end.failure, org);
    return (
      <div class="alert form" role="alert">
        <p>{advice.text}</p>
        {(advice.link !== undefined || (advice.again && retry !== null)) && (
          <p class="actions">{advice.again && retry}{advice.link !== undefined && <a class="button quiet" href={advice.link.href}>{advice.link.text}</a>}</p>
        )}
      </div>
    );
  }
  if (hasEnding(end.kind)) return <div class="ended"><p class="hint">{endings[end.kind]}</p>{retry !== null && <p class="actions">{retry}</p>}</div>;
  if (end.kind === 'running') return <p class="hint working">answering …</p>;
  return usage === undefined ? null : <p class="hint">{turn.model} · {usage.inputTokens.toLocaleString()} tokens in, {usage.outputTokens.toLocaleString()} out</p>;
};

/** `onDecide`, `onAgain`: of the last turn only, while nothing is under way. */
export const TurnShown = ({ turn, org, onDecide, onAgain }: {
  turn: Turn; org: string | undefined; onDecide: ((id: string, allowed: boolean) => void) | undefined; onAgain: (() => void) | undefined;
}): VNode => (
  <article class="turn" aria-busy={turn.end.kind === 'running'}>
    <h3 class="hidden">You</h3>
    <p class="mine">{turn.question}</p>
    <h3 class="hidden">{turn.model}</h3>
    {turn.pieces.map((piece, at) => <PieceShown key={at} piece={piece} onDecide={onDecide} />)}
    <Ended turn={turn} org={org} onAgain={onAgain} />
  </article>
);
