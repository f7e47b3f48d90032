/**
 * The plans side by side, for everybody: where `upgradeUrl` of a refusal leads. The figures are contracts/plans.ts's; it shows no price, since
 * those are the payment service's and are shown there before one pays.
 */
import { planFeatures, plans, type PlanFeature } from '../../contracts/plans.ts';
import { amount, featureWords, planFor, planNames, planTitles, inDollars } from '../console/platform/plan-words.ts';
import { html, type Html } from './html.ts';
import type { View } from './layout.ts';

type Person = NonNullable<View['person']>;
type Limit = keyof (typeof plans)['free']['limits'];

const figures: readonly (readonly [title: string, limit: Limit])[] = [
  ['Credits a month', 'credits'], ['Requests a minute', 'perMinute'], ['Requests a day', 'perDay'], ['Members', 'maxMembers'], ['API keys', 'maxApiKeys'],
];

/** API keys have their figure, and the console is there on every plan. */
const features = planFeatures.filter((feature) => feature !== 'console' && feature !== 'api_keys');

const figureRow = ([title, limit]: (typeof figures)[number]): Html =>
  html`<tr><th scope="row">${title}</th>${planNames.map((name) => html`<td>${amount(plans[name].limits[limit])}</td>`)}</tr>\n`;

const featureRow = (feature: PlanFeature): Html => {
  const has = (name: (typeof planNames)[number]): boolean => (plans[name].features as readonly PlanFeature[]).includes(feature);
  return html`<tr><th scope="row">${featureWords[feature]}</th>${planNames.map((name) => (has(name) ? html`<td class="has">yes</td>` : html`<td class="lacks">no</td>`))}</tr>\n`;
};

/** `person`: who is signed in, who is sent on to their organizations. */
export const pricingView = (person: Person | undefined): View => ({
  title: 'Plans', person, wide: true,
  body: html`
<p>What an organization may use. One credit is one US cent of model cost (${amount(plans.pro.limits.credits)} are ${inDollars(plans.pro.limits.credits)}); each answer is rounded up. Credits that are used up end in refused chats, never in a larger bill.</p>
<div class="scrolled" role="region" aria-label="The plans" tabindex="0">
<table>
<caption class="hidden">What each plan has</caption>
<thead><tr><td></td>${planNames.map((name) => html`<th scope="col">${planTitles[name]}</th>`)}</tr></thead>
<tbody>
<tr><th scope="row">For whom</th>${planNames.map((name) => html`<td>${planFor[name]}</td>`)}</tr>
${figures.map(figureRow)}${features.map(featureRow)}</tbody>
</table>
</div>
<p>The price is shown before you pay. Plans are bought, changed and cancelled by an owner or admin, under “Plan” of the organization.</p>
${person === undefined ? html`<p class="actions"><a class="button" href="/signin?return_to=%2Fconsole">Sign in or create an account</a></p>` : html`<p class="actions"><a class="button" href="/console">To your organizations</a></p>`}
<p class="others"><a href="/legal">Terms and privacy</a></p>`,
});
