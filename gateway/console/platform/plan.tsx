/**
 * An organization's plan: what it has, what the others have, buying one and the customer portal.
 *
 * Guarantee: a button that cannot be pressed says why, beside it and to assistive technology. Whether plans are sold at all is asked of checkout
 * itself with an empty body, which it refuses in a known order and without any effect (decisions, Billing). People leave for the payment
 * service only over https.
 */
import type { VNode } from 'preact';
import { useId } from 'preact/hooks';
import { coded, CodedError } from '../../../contracts/errors.ts';
import type { PlanName } from '../../../contracts/organization.ts';
import { plans } from '../../../contracts/plans.ts';
import { allows } from '../../../contracts/roles.ts';
import { fields, nothing, text } from '../read.ts';
import { useAction, useDesk, useLoaded } from './desk.ts';
import { readTier, type Tier } from './figures.ts';
import { Failed, ProblemText, Waiting } from './form.tsx';
import { hrefOf } from './place.ts';
import { amount, featureWords, planFor, planNames, planTitles } from './plan-words.ts';
import type { Listed } from './resources.ts';
import { Balance } from './usage.tsx';

const checkoutPath = '/api/payments/checkout';
const hosted = fields({ url: text });

/** An address that people are sent to. */
const outwards = (url: string): string => {
  if (new URL(url).protocol !== 'https:') throw coded('upstream_error', 'The address of the payment service is not https.');
  return url;
};

/** The order of checkout's refusals says it: the launch switch comes before the body. */
const soldHere = async (probe: () => Promise<undefined>): Promise<boolean> => {
  try {
    await probe();
    return true;
  } catch (error) {
    if (error instanceof CodedError && error.code === 'checkout_disabled') return false;
    if (error instanceof CodedError && error.code === 'validation_error') return true;
    throw error;
  }
};

/** Comparing all plans, as text. */
const Table = ({ own }: { own: PlanName }): VNode => (
  <div class="scrolled" role="region" aria-label="The plans" tabIndex={0}>
    <table>
      <caption class="hidden">What each plan has</caption>
      <thead><tr><th scope="col">Plan</th><th scope="col" class="number">Credits a month</th><th scope="col" class="number">Requests a minute</th><th scope="col" class="number">a day</th><th scope="col" class="number">Members</th><th scope="col" class="number">API keys</th></tr></thead>
      <tbody>
        {planNames.map((name) => {
          const { credits, perMinute, perDay, maxMembers, maxApiKeys } = plans[name].limits;
          return (
            <tr key={name} class={name === own ? 'own' : undefined}>
              <th scope="row">{planTitles[name]}{name === own && ' (yours)'}</th>
              {[credits, perMinute, perDay, maxMembers, maxApiKeys].map((figure, at) => <td key={at} class="number">{amount(figure)}</td>)}
            </tr>
          );
        })}
      </tbody>
    </table>
  </div>
);

/** A button with the reason why it cannot be pressed. */
const Reasoned = ({ text: shown, label, reason, terms, busy, onPress }: { text: string; label?: string; reason: string | undefined; terms: string | undefined; busy: boolean; onPress: () => void }): VNode => {
  const id = useId();
  return (
    <div class="reasoned">
      <button type="button" class={reason === undefined ? '' : 'quiet'} aria-label={label} aria-disabled={busy || reason !== undefined} aria-describedby={reason === undefined ? undefined : id} onClick={() => { if (!busy && reason === undefined) onPress(); }}>{shown}</button>
      {reason !== undefined && <p class="hint" id={id}>{reason}{terms !== undefined && <> <a href={terms}>Read and accept them</a></>}</p>}
    </div>
  );
};

interface Standing {
  readonly organization: Listed;
  readonly sold: boolean;
  /** Only of the organization that `/api/tier` is about. */
  readonly tier: Tier | undefined;
}

const notAdmin = ({ role }: Listed): string => `This is for admins and the owner; your role is ${role}.`;
const closed = 'Plans cannot be bought here at the moment.';
const missingTerms = 'The current terms must be accepted first.';

const Buy = ({ standing: { organization, sold, tier }, plan }: { standing: Standing; plan: PlanName }): VNode => {
  const desk = useDesk();
  const action = useAction((problem) => (problem.code === 'validation_error' ? { ...problem, message: `${planTitles[plan]} is not sold here. Ask the operator of this installation.` } : problem));
  const legal = `/legal?${new URLSearchParams({ return_to: hrefOf({ view: 'plan', org: organization.id }) }).toString()}`;
  const reason = !sold ? closed
    : !allows(organization.role, 'billing.checkout') ? notAdmin(organization)
      : tier?.hasStripeCustomer === true && organization.plan !== 'free' ? 'A subscription is running: change it in the customer portal, so that only one is paid.'
        : !desk.legalAccepted ? missingTerms : undefined;
  const buy = (): void => {
    void action.run(async () => {
      const { url } = await desk.api.send('POST', checkoutPath, { organizationId: organization.id, plan }, hosted);
      desk.leave(outwards(url));
    });
  };
  return (
    <>
      <Reasoned text={action.busy ? 'One moment …' : `Choose ${planTitles[plan]}`} reason={reason} terms={reason === missingTerms ? legal : undefined} busy={action.busy} onPress={buy} />
      <ProblemText problem={action.problem} />
    </>
  );
};

const Portal = ({ standing: { organization, tier } }: { standing: Standing }): VNode => {
  const desk = useDesk();
  const action = useAction();
  const reason = !allows(organization.role, 'billing.portal') ? notAdmin(organization)
    : tier?.hasStripeCustomer === false ? 'This organization has not paid for anything yet.' : undefined;
  const open = (): void => {
    void action.run(async () => {
      const { url } = await desk.api.send('POST', '/api/payments/portal', { organizationId: organization.id }, hosted);
      desk.leave(outwards(url));
    });
  };
  return (
    <>
      <Reasoned text={action.busy ? 'One moment …' : 'Open customer portal'} reason={reason} terms={undefined} busy={action.busy} onPress={open} />
      <ProblemText problem={action.problem} />
    </>
  );
};

export const PlanView = ({ organization }: { organization: Listed }): VNode => {
  const desk = useDesk();
  const { loaded, reload } = useLoaded(organization.id, async (): Promise<Standing> => {
    const [tier, sold] = await Promise.all([desk.api.get('/api/tier', {}, readTier), soldHere(() => desk.api.send('POST', checkoutPath, {}, nothing))]);
    return { organization, sold, tier: tier.organizationId === organization.id ? tier : undefined };
  });
  if (loaded.state === 'loading') return <Waiting what="the plan" />;
  if (loaded.state === 'failed') return <Failed problem={loaded.problem} onRetry={() => { void reload(); }} />;
  const { tier } = loaded.value;
  const standing = { ...loaded.value, organization: tier === undefined ? organization : { ...organization, plan: tier.plan } };
  const { plan } = standing.organization;
  const features = tier?.features ?? plans[plan].features;
  return (
    <>
      <section class="card" aria-labelledby="plan">
        <h2 id="plan">{planTitles[plan]}</h2>
        <p class="hint">{features.length === 0 ? 'Without further features.' : features.map((feature) => featureWords[feature]).join(' · ')}</p>
        {tier === undefined ? <p class="hint">{amount(plans[plan].limits.credits)} credits a month. What is left is shown of the organization you are in longest.</p> : <Balance tier={tier} />}
      </section>
      <section class="card" aria-labelledby="plans">
        <h2 id="plans">All plans</h2>
        <Table own={plan} />
        {planNames.filter((name) => name !== plan && name !== 'free').map((name) => (
          <div key={name} class="offer">
            <h3>{planTitles[name]}</h3>
            <p class="hint">{planFor[name]} {plans[name].features.map((feature) => featureWords[feature]).join(' · ')}</p>
            {name === 'enterprise' ? <p class="hint">Agreed with the operator of this installation, not bought here.</p> : <Buy standing={standing} plan={name} />}
          </div>
        ))}
        <p class="hint">The price is shown before you pay. Credits that are used up end in refused chats, never in a larger bill.</p>
      </section>
      <section class="card" aria-labelledby="payment">
        <h2 id="payment">Payment</h2>
        <p class="hint">Invoices, the way you pay, changing and cancelling are in the payment service's customer portal.</p>
        <Portal standing={standing} />
      </section>
    </>
  );
};
