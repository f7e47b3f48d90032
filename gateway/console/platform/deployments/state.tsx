/** What the session was after the event one looks at, and how that differs from what it was after another. The daemon folds it; here it is kept for a while. */
import type { VNode } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { CodedError } from '../../../../contracts/errors.ts';
import { limits } from '../../../../contracts/limits.ts';
import { problemOf, useDesk, type Problem } from '../desk.ts';
import { Button, ProblemText } from '../form.tsx';
import { differences } from './diff.ts';
import { branchQuery, readState, servicePath, type Envelope, type StateAt } from './services.ts';

interface Marked {
  readonly number: number;
  readonly state: StateAt;
}

/** Milliseconds that one must rest on an event before its state is asked for. */
const restMs = 150;

const kept = (states: Map<string, StateAt>, id: string, state: StateAt): void => {
  states.set(id, state);
  const [oldest] = states.keys();
  if (states.size > limits.inspectorStatesMax && oldest !== undefined) states.delete(oldest);
};

interface Asked {
  readonly deployment: string;
  readonly session: string;
  readonly branch: string;
  readonly event: Envelope | undefined;
  /** Nothing is asked for while a replay runs. */
  readonly resting: boolean;
}

type Found = { readonly id: string; readonly state?: StateAt; readonly problem?: Problem };

const useStateAt = ({ deployment, session, branch, event, resting }: Asked): Found | undefined => {
  const desk = useDesk();
  const { api } = desk;
  const states = useRef(new Map<string, StateAt>());
  const [found, setFound] = useState<Found>();
  const id = event?.id;
  useEffect(() => {
    if (id === undefined || !resting) return;
    const known = states.current.get(id);
    if (known !== undefined) {
      setFound({ id, state: known });
      return;
    }
    let left = false;
    const ask = async (): Promise<void> => {
      try {
        const state = await api.get(servicePath(deployment, 'sessions', session, 'state'), { at: id, ...branchQuery(branch) }, readState);
        kept(states.current, id, state);
        if (!left) setFound({ id, state });
      } catch (error) {
        if (error instanceof CodedError && error.entry.http === 401) desk.signedOut();
        if (!left) setFound({ id, problem: problemOf(error) });
      }
    };
    const timer = setTimeout(() => { void ask(); }, restMs);
    return () => {
      left = true;
      clearTimeout(timer);
    };
  }, [api, deployment, session, branch, id, resting]);
  return found;
};

const Differences = ({ marked, number, state }: { marked: Marked; number: number; state: StateAt }): VNode => {
  const [before, after] = marked.number <= number ? [marked, { number, state }] : [{ number, state }, marked];
  const found = differences(before.state.whole, after.state.whole);
  return (
    <>
      <h3>From event {before.number} to event {after.number}</h3>
      {found.length === 0 && <p class="hint">There is no difference.</p>}
      {found.length > limits.inspectorRowsMax && <p class="hint">The first {limits.inspectorRowsMax} of {found.length} differences.</p>}
      {found.length > 0 && (
        <div class="scrolled" role="region" aria-label="Differences" tabIndex={0}>
          <table>
            <thead><tr><th scope="col">Where</th><th scope="col">Before</th><th scope="col">After</th></tr></thead>
            <tbody>
              {found.slice(0, limits.inspectorRowsMax).map(({ path, kind, before: was, after: is }) => (
                <tr key={path} class={kind}>
                  <th scope="row"><code>{path}</code> <span class="hint">{kind}</span></th>
                  <td>{kind === 'added' ? '–' : <del>{was}</del>}</td><td>{kind === 'removed' ? '–' : <ins>{is}</ins>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
};

export const StatePanel = ({ number, ...asked }: Asked & { readonly number: number }): VNode => {
  const found = useStateAt(asked);
  const [marked, setMarked] = useState<Marked>();
  const current = found !== undefined && found.id === asked.event?.id;
  const state = found?.state;
  return (
    <section class="card" aria-labelledby="state" aria-busy={!current}>
      <h2 id="state">State after event {number}</h2>
      {found?.problem !== undefined && <ProblemText problem={found.problem} />}
      {!current && <p class="hint">{asked.resting ? 'Loading …' : 'Shown when the replay rests.'}</p>}
      {current && state !== undefined && (
        <>
          <dl class="figures">
            <div><dt>Model</dt><dd>{state.shown.model}</dd></div>
            <div><dt>Tools that act outside</dt><dd>{state.shown.effects}</dd></div>
            <div><dt>Turns ended</dt><dd>{state.shown.turns}</dd></div>
            <div><dt>Messages</dt><dd>{state.shown.messages}</dd></div>
            <div><dt>Running</dt><dd>{state.shown.phase ?? 'nothing'}{state.shown.queued > 0 && ` · ${state.shown.queued} waiting`}</dd></div>
            <div><dt>Tokens</dt><dd>{state.shown.usage.input_tokens} in · {state.shown.usage.output_tokens} out</dd></div>
            <div><dt>Spent</dt><dd>{state.shown.usage.cost_cents} credits</dd></div>
          </dl>
          {state.shown.memories.length > 0 && (
            <>
              <h3>Memories</h3>
              <ul>{state.shown.memories.map(({ id, fact, source, relevance }) => <li key={id}>{fact} <span class="hint">{source === '' ? '' : `${source} · `}relevance {relevance}</span></li>)}</ul>
            </>
          )}
          {state.cut && <p class="hint">Long texts are cut.</p>}
          <details><summary>The whole state</summary><pre tabIndex={0} aria-label="The whole state"><code>{JSON.stringify(state.whole, null, 2)}</code></pre></details>
          <p class="actions">
            <Button onClick={() => { setMarked({ number, state }); }}>Compare with event {number}</Button>
            {marked !== undefined && <Button onClick={() => { setMarked(undefined); }}>Stop comparing</Button>}
          </p>
          {marked !== undefined && (marked.number === number ? <p class="hint" role="status">Event {number} is kept: go to another one to see what differs.</p> : <Differences marked={marked} number={number} state={state} />)}
        </>
      )}
    </section>
  );
};
