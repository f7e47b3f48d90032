/** A deployment's knowledge: search, a document, and the graph of what it links to, as a picture and as a list. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { Deployment } from '../../../../contracts/deployment.ts';
import { useAction, useDesk, useLoaded } from '../desk.ts';
import { Failed, Field, Form, Select, Waiting } from '../form.tsx';
import { follow, hrefOf } from '../place.ts';
import type { Listed } from '../resources.ts';
import { pictureOf, type Placed } from './graph.ts';
import { readDocument, readGraph, readResults, servicePath, type GraphEdge, type GraphNode } from './services.ts';
import { To } from './to.tsx';

interface KnowledgeProps {
  readonly organization: Listed;
  readonly deployment: Deployment;
  /** Id of the document that is shown. */
  readonly node: string | undefined;
}

const depths = ['1', '2', '3', '4'] as const;
const within = (deployment: string, node: string) => ({ deployment, part: 'knowledge', node });
const relations: Readonly<Record<GraphEdge['edge'], string>> = { references: 'linked', related_to: 'related' };

const Search = ({ organization, deployment }: KnowledgeProps): VNode => {
  const desk = useDesk();
  const action = useAction();
  const [q, setQ] = useState('');
  const [found, setFound] = useState<{ readonly q: string; readonly results: readonly { id: string; title: string; score: number; excerpt: string }[] }>();
  const search = (): void => {
    void action.run(async () => {
      const { results } = await desk.api.get(servicePath(deployment.id, 'knowledge', 'search'), { q }, readResults);
      setFound({ q, results });
    });
  };
  return (
    <section class="card" aria-labelledby="search">
      <h2 id="search">Search</h2>
      <Form label="Search the documents" submit="Search" action={action} fields={['q']} onSubmit={search}>
        <Field label="Words" name="q" value={q} onInput={setQ} problem={action.problem} required autocomplete="off" hint="Rare words count more; words in titles and tags count more than in texts." />
      </Form>
      {found !== undefined && <p role="status">{found.results.length === 0 ? `Nothing was found for “${found.q}”.` : `${found.results.length} documents for “${found.q}”, the best first.`}</p>}
      {found !== undefined && found.results.length > 0 && (
        <ol class="rows">
          {found.results.map(({ id, title, score, excerpt }) => (
            <li key={id}>
              <div class="what">
                <strong><To org={organization.id} within={within(deployment.id, id)}>{title}</To></strong>
                <span>{excerpt}</span>
                <span class="hint"><code>{id}</code> · score {score.toFixed(2)}</span>
              </div>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
};

const nameMax = 22;
const short = (title: string): string => (title.length > nameMax ? `${title.slice(0, nameMax - 1)}…` : title);

const Spot = ({ placed, org, deployment }: { placed: Placed; org: string; deployment: string }): VNode => {
  const desk = useDesk();
  const { id, title, depth, x, y, side, turn } = placed;
  const place = { view: 'deployments', org, within: within(deployment, id) } as const;
  const text = side === 'start' ? x + 14 : side === 'end' ? x - 14 : x;
  return (
    <a
      class={`spot depth-${Math.min(depth, 3)}`} href={hrefOf(place)} aria-label={`${title}, ${depth === 0 ? 'the middle' : `${depth} ${depth === 1 ? 'link' : 'links'} away`}`}
      onClick={(event) => { follow(event, () => { desk.go(place); }); }}
    >
      <circle cx={x} cy={y} r={depth === 0 ? 12 : 8} />
      <text x={text} y={side === 'middle' ? y + (y < 0 ? -14 : 26) : y + 4} text-anchor={side} transform={turn === 0 ? undefined : `rotate(${turn} ${x} ${y})`}>{short(title)}</text>
    </a>
  );
};

const Graph = ({ organization, deployment, nodes, edges }: { organization: Listed; deployment: Deployment; nodes: readonly GraphNode[]; edges: readonly GraphEdge[] }): VNode => {
  const picture = pictureOf(nodes, edges);
  const { reach, crowded } = picture;
  // Beside the outermost documents is room for their names.
  const wide = crowded ? reach : reach + 120;
  return (
    <div class="graph">
      <svg viewBox={`${-wide} ${-reach} ${2 * wide} ${2 * reach}`} role="group" aria-label={`Graph of ${picture.nodes.length} documents`}>
        {picture.edges.map(({ from, to, edge }) => <line key={`${from.id} ${to.id} ${edge}`} class={edge} x1={from.x} y1={from.y} x2={to.x} y2={to.y} />)}
        {picture.nodes.map((placed) => <Spot key={placed.id} placed={placed} org={organization.id} deployment={deployment.id} />)}
      </svg>
      <div class="beside">
        {picture.left > 0 && <p class="hint">The picture has the nearest {picture.nodes.length}; the list has all {nodes.length}.</p>}
        <ul class="rows" aria-label="Documents of the graph">
          {nodes.map(({ id, title, depth, edge }) => (
            <li key={id}>
              <div class="what"><To org={organization.id} within={within(deployment.id, id)}>{title}</To></div>
              <span class="tag">{depth === 0 ? 'middle' : `${edge === undefined ? 'linked' : relations[edge]}, ${depth} away`}</span>
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
};

const DocumentView = ({ organization, deployment, node }: { organization: Listed; deployment: Deployment; node: string }): VNode => {
  const desk = useDesk();
  const [depth, setDepth] = useState<(typeof depths)[number]>('2');
  const read = useLoaded(`${deployment.id} ${node}`, () => desk.api.get(servicePath(deployment.id, 'knowledge', 'documents', node), {}, readDocument));
  const graph = useLoaded(`${deployment.id} ${node} ${depth}`, () => desk.api.get(servicePath(deployment.id, 'knowledge', 'graph'), { node, depth, edges: 'true' }, readGraph));
  return (
    <>
      <section class="card" aria-labelledby="graph">
        <div class="choices"><h2 id="graph">What it links to</h2><Select label="Links away" name="depth" value={depth} options={depths} onChange={setDepth} /></div>
        {graph.loaded.state === 'loading' && <Waiting what="the graph" />}
        {graph.loaded.state === 'failed' && <Failed problem={graph.loaded.problem} onRetry={() => { void graph.reload(); }} />}
        {graph.loaded.state === 'ready' && <Graph organization={organization} deployment={deployment} nodes={graph.loaded.value.nodes} edges={graph.loaded.value.edges} />}
      </section>
      <section class="card" aria-labelledby="document">
        {read.loaded.state === 'loading' && <Waiting what="the document" />}
        {read.loaded.state === 'failed' && <Failed problem={read.loaded.problem} onRetry={() => { void read.reload(); }} />}
        {read.loaded.state === 'ready' && (
          <>
            <h2 id="document">{read.loaded.value.title}</h2>
            <p class="hint"><code>{read.loaded.value.path}</code> · {read.loaded.value.size} bytes{read.loaded.value.tags.length > 0 && ` · ${read.loaded.value.tags.join(', ')}`}</p>
            {read.loaded.value.facts.length > 0 && <><h3>Facts</h3><ul>{read.loaded.value.facts.map((fact) => <li key={fact}>{fact}</li>)}</ul></>}
            <pre tabIndex={0} aria-label="Text of the document" class="document"><code>{read.loaded.value.content}</code></pre>
          </>
        )}
      </section>
    </>
  );
};

export const Knowledge = (props: KnowledgeProps): VNode => (
  <>
    <Search {...props} />
    {props.node === undefined ? <p class="hint">Choose a document to see it and what it links to. <code>troupe knowledge import</code> brings a folder of markdown.</p>
      : <DocumentView key={props.node} organization={props.organization} deployment={props.deployment} node={props.node} />}
  </>
);
