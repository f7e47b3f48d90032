/**
 * The paid way from end to end: somebody signs up, accepts the terms, buys pro, chats by the official OpenAI client until the credits run out, sees
 * 402, and goes on once the renewal has come. What the client was told, `/api/usage`, `/api/tier`,
 * the journals and the console in Chromium agree to the cent.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { APIError } from 'openai';
import { usageSummary } from '../../contracts/billing.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { cookieNames } from '../../contracts/platform.ts';
import { launchBrowser } from '../harness/browser.ts';
import { within } from '../harness/chaos.ts';
import { say } from '../harness/chat.ts';
import { refusal } from '../harness/organization.ts';
import { chargedTurns, meteredTurns, paidOf, sumOf } from '../harness/paid.ts';
import { paymentsOf, startPaying } from '../harness/paying.ts';
import { answered } from '../harness/platform.ts';
import { count } from '../harness/session.ts';

/** 100 cents a thousand tokens in, a dollar a token out: a sentence is a part of pro's 5,000 credits. */
const dear = { id: 'dear', provider: 'mock', input_usd_per_mtok: 1_000, output_usd_per_mtok: 1_000_000 } as const;
const costOf = (input: number, output: number): number => Math.ceil((input + output * 1_000) / 10);

test('paid way - sign up, accept, buy pro, chat until 402, renew, go on; every figure agrees to the cent [BIL-023] [BIL-024] [BIL-046] [ERR-009] [BIL-021] [BIL-020]', { timeout: 300_000 }, async (t) => {
  const paying = await startPaying({ gate: 'true', gateway: { auth: { platform: true } }, models: { default: 'mock', registry: [{ id: 'mock', provider: 'mock' }, dear] } });
  t.after(() => paying.stop());
  const { platform, world, stripe, journals } = paying;
  const newcomer = await platform.signUp('newcomer@example.com');
  const { id } = await world.organizations.create(newcomer, 'paid-way');
  // Nothing is sold to who has not accepted the terms.
  assert.equal(refusal(await paying.checkout(newcomer.accessToken, { organizationId: id, plan: 'pro' })), '403 legal_acceptance_required');
  const owner = { ...newcomer, accessToken: await world.accept(newcomer) };

  const browser = await launchBrowser();
  t.after(() => browser.close());
  const context = await browser.newContext({ ignoreHTTPSErrors: true, locale: 'en-US' });
  await context.addCookies([{ name: cookieNames.session, value: newcomer.cookie, url: platform.baseUrl, secure: true, httpOnly: true, sameSite: 'Lax' }]);
  const page = await context.newPage();
  const amount = (count: number): string => count.toLocaleString('en');

  const wallet = { org: id, type: 'wallet', key: id };
  const until = (what: string, held: (events: readonly StoredEvent[]) => boolean): Promise<StoredEvent[]> => within(60_000, what, journals.until(wallet, held), () => platform.report());
  const client = world.client(owner.accessToken, { gateway: 1 });
  const used = { input: 0, output: 0, cents: 0, turns: 0 };
  /** One turn by the client; its own figures. The next may begin when this one was charged. */
  const chat = async (words: number): Promise<number> => {
    const { usage } = await client.chat.completions.create({ model: 'dear', messages: say(`/long ${words}`) });
    assert.ok(usage !== undefined);
    const cents = costOf(usage.prompt_tokens, usage.completion_tokens);
    used.input += usage.prompt_tokens;
    used.output += usage.completion_tokens;
    used.cents += cents;
    used.turns += 1;
    await until('the charge', (all) => chargedTurns(all).size === used.turns);
    return cents;
  };
  /** Chats until it is refused; gives the cents of it. */
  const exhaust = async (): Promise<number> => {
    let spent = 0;
    for (;;) {
      assert.ok(used.turns < 100, 'the credits do not end');
      try {
        spent += await chat(9);
      } catch (error) {
        assert.ok(error instanceof APIError, String(error));
        assert.deepEqual([error.status, error.code], [402, 'credits_exhausted']);
        return spent;
      }
    }
  };
  const agree = async (monthly: number, spent: number): Promise<void> => {
    const usage = answered(await platform.api('GET', '/api/usage', { token: owner.accessToken }), 200, usageSummary);
    assert.deepEqual([usage.totalCostCents, usage.totalInputTokens, usage.totalOutputTokens], [used.cents, used.input, used.output]);
    assert.deepEqual(usage.byModel, [{ modelId: 'dear', costCents: used.cents, inputTokens: used.input, outputTokens: used.output }]);
    const charged = paidOf(chargedTurns(await journals.events(wallet)));
    assert.deepEqual(charged, paidOf(meteredTurns(await world.journaled(id))));
    assert.equal(sumOf(charged), used.cents);
    assert.deepEqual((await paying.tierOf(owner)).credits, { remaining: Math.max(0, monthly - spent), monthly });
    await page.goto(`${platform.baseUrl}/console/usage`);
    const table = page.getByRole('region', { name: 'Credits by model, as a table' }).getByRole('row');
    await table.nth(1).waitFor();
    assert.deepEqual(await table.allInnerTexts(), ['Model\tCredits', `dear\t${amount(used.cents)}`]);
    await page.getByText(`${amount(Math.max(0, monthly - spent))} of ${amount(monthly)} credits left`).waitFor();
  };

  // Free first: a month's fifty credits are one sentence of this model.
  const free = await exhaust();
  assert.ok(free >= 50);
  await agree(50, free);

  const { subscription, events } = stripe.pay(await paying.bought(owner, id, 'pro'));
  await paying.deliver(events);
  await until('the first period', (all) => count(all, 'Renewed') === 1);
  await within(60_000, 'plan pro', journals.until({ org: id, type: 'organization', key: id }, (all) => count(all, 'PlanSet') === 1), () => platform.report());
  await agree(5_000, 0);
  const first = await exhaust();
  assert.ok(first >= 5_000);
  await agree(5_000, first);
  // Paused, whatever is tried: nothing is billed beyond the plan.
  const streamed = await world.post(owner.accessToken, { model: 'dear', messages: say('x'), stream: true });
  assert.equal(streamed.status, 402);
  assert.equal(stripe.requests.filter(({ line }) => line !== 'POST /v1/checkout/sessions').length, 0, 'no invoice is asked for');
  await agree(5_000, first);

  await paying.deliver(stripe.renew(subscription.id), 1);
  await until('the next period', (all) => count(all, 'Renewed') === 2);
  const again = await chat(2);
  await agree(5_000, again);
  const granted = (await journals.events(paymentsOf(id))).filter(({ k, d }) => k === 'InvoicePaid' && d['granted'] === true);
  assert.equal(granted.length, 2);
});
