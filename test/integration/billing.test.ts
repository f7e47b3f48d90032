/** Credits, usage and tier through a whole stack: what a chat or a session uses is charged, shown, announced and, at its end, refused. */
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { APIError } from 'openai';
import { z } from 'zod';
import { periodStartMs, tier, usageSummary } from '../../contracts/billing.ts';
import { balance } from '../../contracts/wallet.ts';
import { deliveredEvent } from '../../contracts/webhook.ts';
import { certificateFor } from '../harness/certificate.ts';
import { within } from '../harness/chaos.ts';
import { chatWorld, say, type ChatWorld } from '../harness/chat.ts';
import { refusal } from '../harness/organization.ts';
import { chargedTurns, meteredTurns, paidOf, sumOf } from '../harness/paid.ts';
import { answered, startPlatform, type Person, type TestPlatform } from '../harness/platform.ts';
import { openJournals, type Journals } from '../harness/proof.ts';
import { count } from '../harness/session.ts';
import { startWebhookReceiver, type WebhookReceiver } from '../harness/webhook-receiver.ts';

type Tier = z.output<typeof tier>;
type Usage = z.output<typeof usageSummary>;
/** 0.1 cents a token in, 1 cent a token out. */
const dear = { id: 'dear', provider: 'mock', input_usd_per_mtok: 1_000, output_usd_per_mtok: 10_000 } as const;
const costOf = (input: number, output: number): number => Math.ceil((input + output * 10) / 10);
const unlimited = { perMinute: -1, perDay: -1, maxApiKeys: -1, maxMembers: -1 };

describe('billing', () => {
  let platform: TestPlatform;
  let world: ChatWorld;
  let journals: Journals;
  let receiver: WebhookReceiver;
  let folder: string;
  before(async () => {
    const certificate = await certificateFor(['hooks.localhost']);
    receiver = await startWebhookReceiver(certificate);
    folder = await mkdtemp(join(tmpdir(), 'troupe-billing-'));
    const caPath = join(folder, 'ca.pem');
    await writeFile(caPath, certificate.cert);
    platform = await startPlatform(undefined, {
      daemons: 2, gateways: 2,
      daemon: {
        session_idle_ms: 500, webhooks: { allow_private: true, ca_path: caPath },
        models: { default: 'mock', registry: [{ id: 'mock', provider: 'mock' }, dear, { ...dear, id: 'dear-2' }] },
      },
    });
    world = await chatWorld(platform);
    journals = await openJournals(platform.nats.url);
  });
  after(async () => {
    await journals.close();
    await world.stop();
    await platform.stop();
    await receiver.stop();
    await rm(folder, { recursive: true });
  });

  const tierOf = async (token: string, gateway = 0): Promise<Tier> => answered(await platform.api('GET', '/api/tier', { token, gateway }), 200, tier);
  const usageOf = async (token: string, query = '', gateway = 0): Promise<Usage> => answered(await platform.api('GET', `/api/usage${query}`, { token, gateway }), 200, usageSummary);
  /** A turn's tokens and cents, by the client's own figures. */
  const chat = async (token: string, line: string, model = 'dear', headers: Readonly<Record<string, string>> = {}): Promise<{ input: number; output: number; cents: number }> => {
    const { usage } = await world.client(token, { gateway: 1, headers }).chat.completions.create({ model, messages: say(line) });
    assert.ok(usage !== undefined);
    return { input: usage.prompt_tokens, output: usage.completion_tokens, cents: model === 'mock' ? 0 : costOf(usage.prompt_tokens, usage.completion_tokens) };
  };
  const walletOf = (org: string) => ({ org, type: 'wallet', key: org });
  const charged = (org: string, cents: number): Promise<unknown> =>
    within(30_000, 'the charge', journals.until(walletOf(org), (all) => sumOf(chargedTurns(all)) >= cents), () => platform.report());
  const organizationOf = async (owner: Person, slug: string, credits: number): Promise<string> => {
    const { id } = await world.organizations.create(owner, slug);
    await world.setPlan(id, { plan: 'enterprise', limits: { ...unlimited, credits } });
    return id;
  };

  test('tier - a person without an organization is on plan free with nothing remaining [BIL-014] [BIL-013]', async () => {
    const nobody = await world.person('nobody@example.com');
    assert.deepEqual(await tierOf(nobody.accessToken), {
      plan: 'free', organizationId: null, hasStripeCustomer: false, canManageBilling: false, features: [], limits: { maxApiKeys: 2, maxMembers: 5 },
      credits: { remaining: 0, monthly: 50 }, upgradeUrl: '/pricing',
    });
  });

  test('tier - each plan has its features, limits and credits, from its change on, for the oldest organization of whoever asks [BIL-008] [BIL-009] [BIL-010] [BIL-011] [BIL-012] [BIL-015]', async () => {
    const [owner, admin, member, viewer] = await Promise.all(['own', 'adm', 'mem', 'vie'].map((name) => world.person(`${name}@tier.example`)));
    assert.ok(owner !== undefined && admin !== undefined && member !== undefined && viewer !== undefined);
    const { id } = await world.organizations.create(owner, 'tier-org');
    await world.organizations.create(owner, 'tier-later');
    await world.setPlan(id, { plan: 'team' });
    for (const [who, role] of [[admin, 'admin'], [member, 'member'], [viewer, 'viewer']] as const) await world.organizations.join(id, owner, who, role);
    const managing = await Promise.all([owner, admin, member, viewer].map(async (who) => (await tierOf(who.accessToken)).canManageBilling));
    assert.deepEqual(managing, [true, true, false, false]);

    const shown = async (): Promise<unknown[]> => {
      const { plan, features, limits, credits, organizationId } = await tierOf(owner.accessToken, 1);
      assert.equal(organizationId, id);
      return [plan, features, limits, credits];
    };
    const pro = ['all_models', 'console', 'api_keys', 'deep_research'];
    const team = [...pro, 'priority_models', 'team_workspace', 'managed_deployments'];
    await world.setPlan(id, { plan: 'free' });
    assert.deepEqual(await shown(), ['free', [], { maxApiKeys: 2, maxMembers: 5 }, { remaining: 50, monthly: 50 }]);
    await world.setPlan(id, { plan: 'pro' });
    assert.deepEqual(await shown(), ['pro', pro, { maxApiKeys: 10, maxMembers: 10 }, { remaining: 5_000, monthly: 5_000 }]);
    await world.setPlan(id, { plan: 'team' });
    assert.deepEqual(await shown(), ['team', team, { maxApiKeys: 50, maxMembers: 50 }, { remaining: 20_000, monthly: 20_000 }]);
    await world.setPlan(id, { plan: 'enterprise' });
    assert.deepEqual(await shown(), ['enterprise', [...team, 'custom_domain', 'sla_guarantee'], { maxApiKeys: -1, maxMembers: -1 }, { remaining: 100_000, monthly: 100_000 }]);
    await world.setPlan(id, { plan: 'enterprise', limits: { ...unlimited, credits: 7 } });
    assert.deepEqual((await shown()).at(-1), { remaining: 7, monthly: 7 });
  });

  test('billing - usage and tier need a bearer; an API key needs usage.read and sees its organization [BIL-017]', async () => {
    const owner = await world.person('keys@example.com');
    const id = await organizationOf(owner, 'keys-org', 1_000);
    for (const path of ['/api/usage', '/api/tier']) {
      assert.equal((await platform.api('GET', path)).status, 401);
      assert.equal((await platform.api('GET', path, { token: 'trp_sk_none' })).status, 401);
    }
    const [reader, chatter] = [await world.organizations.key(id, owner, ['usage.read']), await world.organizations.key(id, owner, ['chat.create'])];
    const by_key = await chat(chatter.key, '/say by key');
    const by_owner = await chat(owner.accessToken, '/say by owner');
    for (const path of ['/api/usage', '/api/tier']) assert.equal(refusal(await platform.api('GET', path, { token: chatter.key })), '403 forbidden');
    assert.equal((await usageOf(reader.key)).totalCostCents, by_key.cents + by_owner.cents);
    assert.equal((await usageOf(owner.accessToken)).totalCostCents, by_owner.cents, 'what a key uses is not its maker\'s');
    await charged(id, by_key.cents + by_owner.cents);
    const { organizationId, canManageBilling, credits } = await tierOf(reader.key);
    assert.deepEqual([organizationId, canManageBilling, credits], [id, false, { remaining: 1_000 - by_key.cents - by_owner.cents, monthly: 1_000 }]);
  });

  test('usage - every turn that has ended is in it at once, by model, to the cent, of the person alone [BIL-001] [BIL-002] [BIL-003] [BIL-004] [BIL-005] [BIL-006] [BIL-020]', async () => {
    const [ann, bob] = [await world.person('ann@usage.example'), await world.person('bob@usage.example')];
    const id = await organizationOf(ann, 'usage-org', 100_000);
    await world.organizations.join(id, ann, bob, 'member');
    const empty = await usageOf(ann.accessToken);
    assert.deepEqual([empty.totalCostCents, empty.totalInputTokens, empty.totalOutputTokens, empty.byModel], [0, 0, 0, []]);
    const expected = new Map<string, { modelId: string; costCents: number; inputTokens: number; outputTokens: number }>();
    const used = (modelId: string, { input, output, cents }: { input: number; output: number; cents: number }): void => {
      const before = expected.get(modelId) ?? { modelId, costCents: 0, inputTokens: 0, outputTokens: 0 };
      expected.set(modelId, { modelId, costCents: before.costCents + cents, inputTokens: before.inputTokens + input, outputTokens: before.outputTokens + output });
    };
    const turns: readonly [string, string, Readonly<Record<string, string>>][] = [
      ['dear', '/say one', {}], ['dear-2', '/long 9', {}], ['mock', '/say free', {}], ['dear', '/long 3', { 'troupe-organization': 'personal' }],
    ];
    for (const [model, line, headers] of turns) {
      used(model, await chat(ann.accessToken, line, model, headers));
      await chat(bob.accessToken, '/say mine');
      for (const gateway of [0, 1]) {
        const { byModel, totalCostCents, totalInputTokens, totalOutputTokens } = await usageOf(ann.accessToken, '?period=day', gateway);
        assert.deepEqual(byModel, [...expected.values()].toSorted((a, b) => (a.modelId < b.modelId ? -1 : 1)));
        const sum = (of: 'costCents' | 'inputTokens' | 'outputTokens'): number => byModel.reduce((total, entry) => total + entry[of], 0);
        assert.deepEqual([totalCostCents, totalInputTokens, totalOutputTokens], [sum('costCents'), sum('inputTokens'), sum('outputTokens')]);
      }
    }
    for (const [query, period] of [['', 'month'], ['?period=month', 'month'], ['?period=week', 'week'], ['?period=day', 'day']] as const) {
      const asked = Date.now();
      const { periodStart, periodEnd, totalCostCents } = await usageOf(ann.accessToken, query);
      for (const time of [periodStart, periodEnd]) assert.match(time, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
      assert.equal(Date.parse(periodStart), periodStartMs(period, Date.parse(periodEnd)));
      assert.ok(Math.abs(Date.parse(periodEnd) - asked) < 60_000);
      assert.ok(totalCostCents > 0);
    }
  });

  test('usage - a period that is none is refused with 400 [BIL-007]', async () => {
    const who = await world.person('period@example.com');
    for (const query of ['?period=year', '?period=', '?period=DAY', '?period=day&period=week', '?periods=day']) {
      assert.equal(refusal(await platform.api('GET', `/api/usage${query}`, { token: who.accessToken })), '400 validation_error', query);
    }
  });

  test('credits - with the balance used up chat is paused with 402 until there are credits again; figures agree to the cent [CHAT-028] [ERR-009] [BIL-021] [BIL-022] [BIL-023] [AUD-011] [AUD-012] [AUD-013]', async () => {
    const owner = await world.person('spender@example.com');
    const id = await organizationOf(owner, 'spend-org', 20);
    const url = `https://127.0.0.1:${receiver.port}/hook`;
    assert.equal((await world.organizations.call('PATCH', '', owner, { orgId: id, settings: { webhookUrl: url } })).status, 200);
    const hook = { org: id, type: 'webhook', key: id };
    await within(30_000, 'the address', journals.until(hook, (all) => count(all, 'WebhookConfigured') > 0), () => platform.report());

    // A session's turn is one of the organization's, as a chat is.
    const sid = 'spenderspenderspenderspend';
    const session = { org: id, type: 'session', key: sid };
    await world.system(session, 'create', { user_id: owner.userId, project_id: 'p', model: 'dear' });
    await world.system(session, 'send', { user_id: owner.userId, content: '/say in a session' });
    const after_run = await within(30_000, 'the turn', journals.until(session, (all) => count(all, 'UsageMetered') === 1), () => platform.report());
    let spent = sumOf(meteredTurns(after_run));
    assert.ok(spent > 0 && spent < 16);
    assert.equal((await usageOf(owner.accessToken)).totalCostCents, spent);
    await charged(id, spent);

    const client = world.client(owner.accessToken);
    let refused: unknown;
    for (let turns = 0; turns < 30 && refused === undefined; turns++) {
      try {
        const { usage } = await client.chat.completions.create({ model: 'dear', messages: say(`/say ${turns}`) });
        assert.ok(spent < 20, 'it began with a positive balance');
        spent += costOf(usage?.prompt_tokens ?? 0, usage?.completion_tokens ?? 0);
        await charged(id, spent);
      } catch (error) {
        refused = error;
      }
    }
    assert.ok(refused instanceof APIError, String(refused));
    assert.deepEqual([refused.status, refused.code], [402, 'credits_exhausted']);
    const streamed = await world.post(owner.accessToken, { model: 'dear', messages: say('x'), stream: true }, { gateway: 1 });
    assert.equal(streamed.status, 402, 'a stream is refused before it begins');
    assert.match(streamed.body, /^\{"error":\{"message":"[^"]+","type":"invalid_request_error","code":"credits_exhausted","param":null\}\}$/);
    assert.deepEqual((await tierOf(owner.accessToken)).credits, { remaining: Math.max(0, 20 - spent), monthly: 20 });
    await world.system(session, 'send', { user_id: owner.userId, content: '/say more' });
    const errored = await within(30_000, 'the refusal', journals.until(session, (all) => count(all, 'RunErrored') === 1), () => platform.report());
    assert.equal(errored.find(({ k }) => k === 'RunErrored')?.d['code'], 'credits_exhausted');
    assert.equal((await usageOf(owner.accessToken)).totalCostCents, spent, 'what is refused costs nothing');

    await world.setPlan(id, { plan: 'pro' });
    const again = await chat(owner.accessToken, '/say again');
    spent += again.cents;
    await charged(id, spent);
    assert.equal((await usageOf(owner.accessToken)).totalCostCents, spent);
    assert.equal(balance.parse(await world.system(walletOf(id), 'balance', {})).used, spent);
    assert.deepEqual((await tierOf(owner.accessToken)).credits, { remaining: 5_000 - spent, monthly: 5_000 });
    assert.equal(paidOf(chargedTurns(await journals.events(walletOf(id)))).size, (await journals.events(walletOf(id))).filter(({ k }) => k === 'Charged').length);

    const delivered = (): z.output<typeof deliveredEvent>[] => receiver.webhooks.map(({ body }) => deliveredEvent.parse(JSON.parse(body))).filter(({ organizationId }) => organizationId === id);
    const wanted = (): boolean => {
      const all = delivered();
      return all.filter(({ type }) => type === 'usage.alert').length >= 2 && all.some(({ type }) => type === 'plan.changed') && all.some(({ type, data }) => type === 'session.finished' && data['turns'] === 2);
    };
    const arrive = async (): Promise<void> => {
      for (let n = receiver.webhooks.length; !wanted(); n = receiver.webhooks.length) await receiver.received(n + 1);
    };
    await within(60_000, 'alerts, the plan and the session\'s end', arrive(), () => platform.report() + JSON.stringify(delivered()));
    const all = delivered();
    assert.deepEqual(all.filter(({ type }) => type === 'usage.alert').map(({ data }) => [data['percent'], data['monthly']]).toSorted(), [[100, 20], [80, 20]]);
    assert.deepEqual(all.find(({ type }) => type === 'plan.changed')?.data, { from: 'enterprise', to: 'pro' });
    const finished = all.find(({ type, data }) => type === 'session.finished' && data['turns'] === 2);
    assert.deepEqual([finished?.data['sessionId'], finished?.data['userId']], [sid, owner.userId]);
    assert.ok(!JSON.stringify(all).includes('in a session'), 'nothing of what was said');
  });

  test('credits - a personal workspace has plan free\'s fifty, of its own', async () => {
    const who = await world.person('own@example.com');
    const headers = { 'troupe-organization': 'personal' };
    const { cents } = await chat(who.accessToken, `/say ${'x'.repeat(300)}`, 'dear', headers);
    assert.ok(cents >= 50);
    await charged(`u-${who.userId}`, cents);
    assert.equal((await world.post(who.accessToken, { model: 'mock', messages: say('x') }, { headers })).status, 402);
    const id = await organizationOf(who, 'not-personal', 100);
    await chat(who.accessToken, '/say paid by another', 'dear', { 'troupe-organization': id });
  });
});
