/** Regulation of a deployment: dials of its state, what its gates allow now, how its mode changed, what was stopped. */
import type { VNode } from 'preact';
import { useEffect } from 'preact/hooks';
import type { Deployment } from '../../../../contracts/deployment.ts';
import type { Gating, Homeostasis } from '../../../../contracts/regulation.ts';
import { limits } from '../../../../contracts/limits.ts';
import { useDesk, useLoaded } from '../desk.ts';
import { Button, Failed, Waiting } from '../form.tsx';
import { when } from '../resources.ts';
import { Dial } from './dial.tsx';
import { Modes } from './modes.tsx';
import { readGating, readHistory, readHomeostasis, servicePath, type History } from './services.ts';

const names: Readonly<Record<keyof Gating['gates'], string>> = {
  expensive_model: 'Expensive models', cheap_model: 'Cheap models', tool_execution: 'Tools', web_search: 'Web search', file_write: 'Writing files',
  speculative_research: 'Speculative research', long_context: 'Long contexts',
};
const percent = (share: number): string => `${Math.round(share * 100)} %`;
const hourMs = 3_600_000;

/** Credits left over what 30 days used (REG-005), from what the state says of both; infinite without spending. */
export const ratioOf = ({ operational, economic }: Homeostasis): number => {
  const hours = Math.max(1, Math.min(limits.regulationBurnMs / hourMs, operational.uptime_seconds / 3_600));
  const spent = economic.burn_rate_per_hour * hours;
  return spent === 0 ? Infinity : Math.max(0, economic.budget_remaining) / spent;
};

const modeTones = { Sovereign: 'good', Conserving: 'warn', Hustle: 'warn', Hibernate: 'bad' } as const;
const modeShares = { Sovereign: 1, Conserving: 2 / 3, Hustle: 1 / 3, Hibernate: 0 } as const;
const tone = (value: number, warn: number, bad: number): 'good' | 'warn' | 'bad' => (value >= bad ? 'bad' : value >= warn ? 'warn' : 'good');

const Dials = ({ state }: { state: Homeostasis }): VNode => {
  const { operational, cognitive, economic } = state;
  const ratio = ratioOf(state);
  return (
    <section class="card" aria-labelledby="dials">
      <h2 id="dials">State</h2>
      <div class="dials">
        <Dial label="Mode" share={modeShares[economic.mode]} text={economic.mode} tone={modeTones[economic.mode]} />
        <Dial label="Credits over 30 days' use" share={ratio === Infinity ? 1 : ratio / 4} text={ratio === Infinity ? '∞' : ratio.toFixed(2)} tone={tone(-ratio, -2, -1)} />
        <Dial label="Health" share={operational.health} text={percent(operational.health)} tone={tone(1 - operational.health, 0.2, 0.5)} />
        <Dial label="Errors in the last hour" share={operational.error_rate} text={percent(operational.error_rate)} tone={tone(operational.error_rate, 0.1, 0.3)} />
        <Dial label="Context used" share={cognitive.context_utilization} text={percent(cognitive.context_utilization)} tone={tone(cognitive.context_utilization, 0.6, 0.85)} />
        <Dial label="Turns completed" share={cognitive.task_completion_rate} text={percent(cognitive.task_completion_rate)} tone={tone(1 - cognitive.task_completion_rate, 0.1, 0.3)} />
      </div>
      <dl class="figures">
        <div><dt>Credits left</dt><dd>{economic.budget_remaining}</dd></div>
        <div><dt>Used per hour</dt><dd>{economic.burn_rate_per_hour.toFixed(2)} credits</dd></div>
        <div><dt>Lasts</dt><dd>{economic.runway_hours >= limits.runwayHoursMax ? 'ten years or more' : `${economic.runway_hours.toFixed(1)} hours`}</dd></div>
        <div><dt>Slowest 5 % take</dt><dd>{operational.latency_p95_ms} ms or more</dd></div>
        <div><dt>Observed for</dt><dd>{(operational.uptime_seconds / 3_600).toFixed(1)} hours</dd></div>
        <div><dt>Memory pressure</dt><dd>{cognitive.memory_pressure}</dd></div>
      </dl>
    </section>
  );
};

const words = { allow: 'allowed', warn: 'warned of', block: 'blocked' } as const;
const order = Object.keys(names) as (keyof Gating['gates'])[];

const Gates = ({ gating }: { gating: Gating }): VNode => (
  <section class="card" aria-labelledby="gates">
    <h2 id="gates">Gates <span class="tag">profile {gating.profile}</span></h2>
    <ul class="rows gates">
      {order.map((name) => <li key={name}><span>{names[name]}</span><span class={`tag ${gating.gates[name]}`}>{words[gating.gates[name]]}</span></li>)}
    </ul>
  </section>
);

const Triggered = ({ gates }: { gates: History['gates'] }): VNode => (
  <section class="card" aria-labelledby="triggered">
    <h2 id="triggered">Warned and blocked</h2>
    {gates.length === 0 && <p class="hint">No gate has warned or blocked yet.</p>}
    <ul class="rows">
      {gates.toReversed().map(({ at, about, decision, explanation }, index) => (
        <li key={`${at} ${index}`}>
          <div class="what"><span>{explanation}</span><span class="hint">{about} · {when(new Date(at).toISOString())}</span></div>
          <span class={`tag ${decision}`}>{words[decision]}</span>
        </li>
      ))}
    </ul>
  </section>
);

export const Regulation = ({ deployment: { id } }: { deployment: Deployment }): VNode => {
  const { api } = useDesk();
  const { loaded, reload } = useLoaded(id, async () => {
    const [state, gating, history] = await Promise.all([
      api.get(servicePath(id, 'regulation', 'state'), {}, readHomeostasis), api.get(servicePath(id, 'regulation', 'gating'), {}, readGating),
      api.get(servicePath(id, 'regulation', 'history'), {}, readHistory),
    ]);
    return { state, gating, history, now: Date.now() };
  });
  useEffect(() => {
    // Nobody looks at a page in the background.
    const timer = setInterval(() => { if (document.visibilityState === 'visible') void reload(); }, limits.inspectorLookMs);
    return () => { clearInterval(timer); };
  }, [reload]);
  if (loaded.state === 'loading') return <Waiting what="regulation" />;
  if (loaded.state === 'failed') return <Failed problem={loaded.problem} onRetry={() => { void reload(); }} />;
  const { state, gating, history, now } = loaded.value;
  return (
    <>
      <p class="actions"><Button onClick={() => { void reload(); }}>Refresh</Button></p>
      <Dials state={state} />
      <Gates gating={gating} />
      <Modes modes={history.modes} current={state.economic.mode} now={now} />
      <Triggered gates={history.gates} />
    </>
  );
};
