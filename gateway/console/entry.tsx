/** One entry of the conversation. All that came from outside is put on the page as text, never as markup. */
import { Component, type VNode } from 'preact';
import type { Entry, Mine } from './conversation.ts';

/** Characters of a tool's arguments or result put on the page; the journal has the rest. */
const shownChars = 20_000;
/** Characters of the arguments in a closed tool line. */
const briefChars = 80;

const jsonText = (value: unknown, indent?: number): string => {
  const text = typeof value === 'string' ? value : JSON.stringify(value, null, indent) ?? '';
  return text.length <= shownChars ? text : `${text.slice(0, shownChars)}\n… ${text.length - shownChars} more characters`;
};
const brief = (value: unknown): string => {
  const text = jsonText(value).replace(/\s+/g, ' ');
  return text.length <= briefChars ? text : `${text.slice(0, briefChars)}…`;
};

const MineView = ({ message, waiting = false }: { message: Mine; waiting?: boolean }): VNode => (
  <div class={waiting ? 'mine waiting' : 'mine'}>
    <span class="hidden">You: </span>
    <p>{message.content}</p>
    {message.attachment !== undefined && <p class="attached">with an attachment</p>}
  </div>
);

/** A message whose turn has not begun. */
export const Waiting = ({ message }: { message: Mine }): VNode => <MineView message={message} waiting />;

type Tool = Extract<Entry, { kind: 'tool' }>;
const toolState: Readonly<Record<Tool['state'], string>> = { running: 'running', done: 'done', failed: 'failed', stopped: 'not run' };

class ToolView extends Component<{ tool: Tool; live: boolean; onApprove: (id: string) => void; onDeny: (id: string) => void }, { answered: string }> {
  override state = { answered: '' };

  #answer(dispatchId: string, run: (id: string) => void): void {
    this.setState({ answered: dispatchId });
    run(dispatchId);
    document.querySelector('textarea')?.focus();
  }

  override render({ tool, live, onApprove, onDeny }: ToolView['props'], { answered }: ToolView['state']): VNode {
    const { approval } = tool;
    return (
      <div class={`tool ${tool.state}`}>
        <details>
          <summary>
            <span class="name">{tool.name}</span> <span class="brief">{brief(tool.arguments)}</span>
            <span class="outcome">{approval === undefined ? toolState[tool.state] : 'waits for you'}</span>
          </summary>
          <h2>Arguments</h2>
          <pre>{jsonText(tool.arguments, 2)}</pre>
          {tool.state !== 'running' && tool.state !== 'stopped' && <h2>{tool.state === 'failed' ? 'Error' : 'Result'}</h2>}
          {tool.state !== 'running' && tool.state !== 'stopped' && <pre>{jsonText(tool.result, 2)}</pre>}
        </details>
        {approval !== undefined && (
          <div class="approval" role="group" aria-label="Approval">
            <p>{approval.preview}</p>
            <p class="actions">
              <button type="button" id={`approve-${approval.dispatchId}`} disabled={!live || answered === approval.dispatchId} onClick={() => { this.#answer(approval.dispatchId, onApprove); }}>Approve</button>
              <button type="button" class="deny" disabled={!live || answered === approval.dispatchId} onClick={() => { this.#answer(approval.dispatchId, onDeny); }}>Deny</button>
            </p>
          </div>
        )}
      </div>
    );
  }
}

interface EntryProps {
  readonly entry: Entry;
  /** False when the stream has ended: nothing can be decided then. */
  readonly live: boolean;
  readonly onApprove: (dispatchId: string) => void;
  readonly onDeny: (dispatchId: string) => void;
}

/** Drawn again only when its entry was replaced: a long conversation costs nothing per token. */
export class EntryView extends Component<EntryProps> {
  override shouldComponentUpdate(next: Readonly<EntryProps>): boolean {
    return next.entry !== this.props.entry || (next.live !== this.props.live && next.entry.kind === 'tool');
  }

  override render({ entry, live, onApprove, onDeny }: EntryProps): VNode {
    switch (entry.kind) {
      case 'mine': return <MineView message={entry.message} />;
      case 'text': return <div class="said"><span class="hidden">Agent: </span>{entry.text}</div>;
      case 'tool': return <ToolView tool={entry} live={live} onApprove={onApprove} onDeny={onDeny} />;
      case 'note': return <p class={entry.tone === 'error' ? 'note error' : 'note'}>{entry.text}</p>;
    }
  }
}
