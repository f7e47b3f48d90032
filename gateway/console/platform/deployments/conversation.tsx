/** A session as a conversation, up to where one looks: what was said, tool calls with what became of them, and decisions that are waited for. */
import type { VNode } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { limits } from '../../../../contracts/limits.ts';
import { fields, flag } from '../../read.ts';
import { useAction, useDesk } from '../desk.ts';
import { Button, ProblemText } from '../form.tsx';
import { branchQuery, servicePath } from './services.ts';
import type { CallItem, CallStatus, Item } from './transcript.ts';

const words: Readonly<Record<CallStatus, string>> = {
  called: 'under way', waiting: 'waits for approval', granted: 'approved', denied: 'denied', done: 'done', failed: 'failed', blocked: 'blocked by regulation',
};
const written = (value: unknown): string => JSON.stringify(value, null, 2) ?? '';

export interface Decides {
  readonly deployment: string;
  readonly session: string;
  readonly branch: string;
  readonly onDecided: () => void;
}

const Decision = ({ item, decides }: { item: CallItem; decides: Decides }): VNode => {
  const desk = useDesk();
  const action = useAction();
  const decide = (approved: boolean): void => {
    void action.run(async () => {
      const body = { dispatch_id: item.dispatch ?? '', approved, ...branchQuery(decides.branch) };
      await desk.api.send('POST', servicePath(decides.deployment, 'sessions', decides.session, 'approvals'), body, fields({ approved: flag }));
      desk.say(approved ? `${item.name} was approved` : `${item.name} was denied`);
      decides.onDecided();
    });
  };
  return (
    <div class="form">
      <p class="actions">
        <Button class="" busy={action.busy} label={`Approve ${item.name}`} onClick={() => { decide(true); }}>Approve</Button>
        <Button class="deny" busy={action.busy} label={`Deny ${item.name}`} onClick={() => { decide(false); }}>Deny</Button>
      </p>
      <ProblemText problem={action.problem} />
    </div>
  );
};

const Call = ({ item, decides }: { item: CallItem; decides: Decides | undefined }): VNode => (
  <li class={`said-call ${item.status}`}>
    <details>
      <summary><strong>{item.name}</strong> <span class="tag">{words[item.status]}</span></summary>
      <h3>Arguments</h3>
      <pre tabIndex={0}><code>{written(item.input)}</code></pre>
      {item.result !== undefined && <><h3>Result</h3><pre tabIndex={0}><code>{written(item.result)}</code></pre></>}
    </details>
    {item.preview !== undefined && item.status === 'waiting' && <p>{item.preview}</p>}
    {item.status === 'waiting' && decides !== undefined && <Decision item={item} decides={decides} />}
  </li>
);

/** `decides`: how what waits can be decided; undefined where one looks at the past or may not. */
export const Conversation = ({ items, decides }: { items: readonly Item[]; decides: Decides | undefined }): VNode => {
  const first = Math.max(0, items.length - limits.inspectorRowsMax);
  const frame = useRef<HTMLDivElement>(null);
  // The last line is the one of the event that is looked at.
  useLayoutEffect(() => { if (frame.current !== null) frame.current.scrollTop = frame.current.scrollHeight; }, [items]);
  return (
    <section class="card conversation" aria-labelledby="conversation">
      <h2 id="conversation">Conversation</h2>
      {first > 0 && <p class="hint">The {first} entries before these are not drawn: go back in time to see them.</p>}
      {items.length === 0 && <p class="hint">Nothing was said up to here.</p>}
      <div ref={frame} class="tall" role="group" aria-label="What was said" tabIndex={0}>
        <ol class="lines">
          {items.slice(first).map((item) => {
            switch (item.kind) {
              case 'user': return <li key={item.id} class="said-user"><span class="by">Client</span><p>{item.text}</p></li>;
              case 'agent': return <li key={item.id} class="said-agent"><span class="by">Agent</span><p>{item.text}{!item.ended && ' …'}</p></li>;
              case 'note': return <li key={item.id} class={`said-note ${item.tone}`}>{item.text}</li>;
              case 'call': return <Call key={item.id} item={item} decides={decides} />;
            }
          })}
        </ol>
      </div>
    </section>
  );
};
