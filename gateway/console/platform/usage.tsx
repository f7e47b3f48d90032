/** What the person has used, by model and period, wherever it was paid; and the credits that are left. */
import type { VNode } from 'preact';
import { useId, useState } from 'preact/hooks';
import { Chart } from './chart.tsx';
import { useDesk, useLoaded } from './desk.ts';
import { readTier, readUsage, type Tier, type Usage } from './figures.ts';
import { Failed, Select, Waiting } from './form.tsx';
import { follow, hrefOf } from './place.ts';
import { amount, inDollars, planTitles } from './plan-words.ts';
import { when, type Listed } from './resources.ts';

const periods = ['day', 'week', 'month'] as const;
const periodWords: Readonly<Record<(typeof periods)[number], string>> = { day: 'Today (UTC)', week: 'The last 7 days', month: 'The last month' };

const credits = (count: number): string => `${amount(count)} ${count === 1 ? 'credit' : 'credits'}`;

/** The balance of an organization as a bar and in words. */
export const Balance = ({ tier }: { tier: Tier }): VNode => {
  const id = useId();
  const { remaining, monthly } = tier.credits;
  return (
    <div class="balance">
      <p id={id}><strong>{amount(remaining)}</strong> of {credits(monthly)} left in this period</p>
      <meter aria-labelledby={id} min={0} max={Math.max(1, monthly)} low={monthly * 0.2} value={remaining} />
      {remaining === 0 && <p class="alert asked" role="status">The credits are used up: chats are refused until new ones come. Nothing is charged beyond the plan.</p>}
    </div>
  );
};

const Credits = ({ organizations }: { organizations: readonly Listed[] }): VNode => {
  const desk = useDesk();
  const { loaded, reload } = useLoaded('tier', () => desk.api.get('/api/tier', {}, readTier));
  if (loaded.state === 'loading') return <Waiting what="credits" />;
  if (loaded.state === 'failed') return <Failed problem={loaded.problem} onRetry={() => { void reload(); }} />;
  const tier = loaded.value;
  const { organizationId } = tier;
  if (organizationId === null) {
    return <p class="hint">You are in no organization. Your own workspace has the plan Free. <a href="/pricing">Compare the plans</a></p>;
  }
  const to = { view: 'plan', org: organizationId } as const;
  return (
    <>
      <p class="hint">Of {organizations.find(({ id }) => id === organizationId)?.name ?? organizationId}, the organization you are in longest: plan {planTitles[tier.plan]}. 1 credit is 1 US cent of model cost; each answer is rounded up.</p>
      <Balance tier={tier} />
      <p class="actions"><a class="button quiet" href={hrefOf(to)} onClick={(event) => { follow(event, () => { desk.go(to); }); }}>Plan and payment</a></p>
    </>
  );
};

const Figures = ({ usage }: { usage: Usage }): VNode => {
  const { byModel } = usage;
  if (byModel.length === 0) return <p class="hint">Nothing was used since {when(usage.periodStart)}.</p>;
  const names = byModel.map(({ modelId }) => modelId);
  return (
    <>
      <dl>
        <div><dt>Model cost</dt><dd>{inDollars(usage.totalCostCents)} ({credits(usage.totalCostCents)})</dd></div>
        <div><dt>Tokens in</dt><dd>{amount(usage.totalInputTokens)}</dd></div>
        <div><dt>Tokens out</dt><dd>{amount(usage.totalOutputTokens)}</dd></div>
        <div><dt>Since</dt><dd>{when(usage.periodStart)}</dd></div>
      </dl>
      <Chart title="Credits by model" of="Model" names={names} write={amount} bars={[{ label: 'Credits', values: byModel.map(({ costCents }) => costCents), color: '--accent' }]} />
      <Chart
        title="Tokens by model" of="Model" names={names} write={amount}
        bars={[{ label: 'Tokens in', values: byModel.map(({ inputTokens }) => inputTokens), color: '--accent' }, { label: 'Tokens out', values: byModel.map(({ outputTokens }) => outputTokens), color: '--good' }]}
      />
    </>
  );
};

export const UsageView = ({ organizations }: { organizations: readonly Listed[] }): VNode => {
  const desk = useDesk();
  const [period, setPeriod] = useState<(typeof periods)[number]>('month');
  const { loaded, reload } = useLoaded(`usage of ${period}`, () => desk.api.get('/api/usage', { period }, readUsage));
  return (
    <>
      <section class="card" aria-labelledby="credits"><h2 id="credits">Credits</h2><Credits organizations={organizations} /></section>
      <section class="card" aria-labelledby="usage">
        <h2 id="usage">What you have used</h2>
        <p class="hint">Your own chats and sessions, whoever paid for them.</p>
        <div class="choices"><Select label="Period" name="period" value={period} options={periods} named={(one) => periodWords[one]} onChange={setPeriod} /></div>
        {loaded.state === 'loading' && <Waiting what="usage" />}
        {loaded.state === 'failed' && <Failed problem={loaded.problem} onRetry={() => { void reload(); }} />}
        {loaded.state === 'ready' && <Figures usage={loaded.value} />}
      </section>
    </>
  );
};
