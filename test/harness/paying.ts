/** A whole Troupe whose plans are sold by a Stripe-like server: people who pay, events delivered to any gateway, the launch gate and the terms in the test's hands. */
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { tier } from '../../contracts/billing.ts';
import { billingRoutes } from '../../contracts/billing-routes.ts';
import type { DaemonInput, GatewayInput } from '../../deploy/start/config-files.ts';
import { paymentsAddress } from '../../actors/payments/address.ts';
import { chatWorld, type ChatWorld } from './chat.ts';
import { answered, startPlatform, type ApiOptions, type ApiReply, type Person, type TestPlatform } from './platform.ts';
import { openJournals, type Journals } from './proof.ts';
import { linked } from './stack.ts';
import { signed, startStripe, stripeSecrets, type StripeEvent, type StripeServer } from './stripe.ts';

/** Sold; enterprise is not. */
export const prices = { pro: ['price_pro'], team: ['price_team'] } as const;

export interface Paying {
  readonly platform: TestPlatform;
  readonly world: ChatWorld;
  readonly stripe: StripeServer;
  readonly journals: Journals;
  /** Body as JSON, or a text byte for byte. */
  readonly checkout: (token: string | undefined, body: unknown, options?: ApiOptions) => Promise<ApiReply>;
  readonly portal: (token: string | undefined, body: unknown, options?: ApiOptions) => Promise<ApiReply>;
  /** As Stripe sends it. */
  readonly send: (event: unknown, options?: Parameters<typeof signed>[1] & { readonly gateway?: number }) => Promise<ApiReply>;
  /** Sends them one after the other; each is received. */
  readonly deliver: (events: readonly StripeEvent[], gateway?: number) => Promise<void>;
  /** The address of a checkout. */
  readonly bought: (who: Person, organizationId: string, plan?: string) => Promise<string>;
  readonly tierOf: (who: Person) => Promise<z.output<typeof tier>>;
  /** Daemons start again with this value of the launch gate; undefined = unset. */
  readonly gate: (value: string | undefined) => Promise<void>;
  /** Other terms are in force from the daemons' next start on. */
  readonly terms: (version: string) => Promise<void>;
  readonly restart: () => Promise<void>;
  readonly stop: () => Promise<void>;
}

const gateName = 'SELF_SERVICE_CHECKOUT_ENABLED';
const hosted = z.strictObject({ url: z.url() });

export const startPaying = async (options: { readonly gate?: string; readonly models?: DaemonInput['models']; readonly daemon?: Partial<Omit<DaemonInput, 'platform' | 'billing'>>; readonly gateway?: Partial<GatewayInput> } = {}): Promise<Paying> => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-paying-'));
  const file = (name: string): string => join(folder, name);
  const terms = (version: string): Promise<void> => writeFile(file('terms.json'), JSON.stringify({
    version, documents: ['terms', 'privacy'].map((id) => ({ id, title: id, url: `https://x.example/${id}`, sha256: 'a'.repeat(64) })),
  }));
  const [stripe] = await Promise.all([startStripe(), terms('1'), writeFile(file('key'), `${stripeSecrets.key}\n`), writeFile(file('webhook'), stripeSecrets.webhook)]);
  const environment: Record<string, string> = options.gate === undefined ? {} : { [gateName]: options.gate };
  const platform = await startPlatform(undefined, {
    daemons: 2, gateways: 2, daemonEnvironment: environment, ...(options.gateway === undefined ? {} : { gateway: options.gateway }),
    daemon: {
      lease_ttl_ms: 2_000, ...options.daemon, ...(options.models === undefined ? {} : { models: options.models }), platform: { legal_manifest_path: file('terms.json') },
      billing: { stripe: { api_url: stripe.url, secret_key_path: file('key'), webhook_secret_path: file('webhook') }, prices: { pro: [...prices.pro], team: [...prices.team] } },
    },
  });
  const world = await chatWorld(platform);
  const journals = await openJournals(platform.nats.url);
  const post = (path: string) => (token: string | undefined, body: unknown, call: ApiOptions = {}): Promise<ApiReply> =>
    platform.api('POST', path, { ...(token === undefined ? {} : { token }), ...(typeof body === 'string' ? { raw: body } : { json: body }), ...call });
  const checkout = post(billingRoutes.checkout.path);
  const send: Paying['send'] = (event, { gateway = 0, ...how } = {}) => platform.api('POST', billingRoutes.paymentEvents.path, { ...signed(event, how), gateway });
  const restart = async (): Promise<void> => {
    await Promise.all(platform.daemons.filter(({ running }) => running).map((daemon) => daemon.kill('SIGKILL')));
    await Promise.all(platform.daemons.map((daemon) => daemon.start()));
    await Promise.all(platform.gateways.map((gateway) => linked(gateway, platform.daemons.length)));
  };
  return {
    platform, world, stripe, journals, checkout, send, terms, restart, portal: post(billingRoutes.portal.path),
    deliver: async (events, gateway = 0) => {
      for (const event of events) answered(await send(event, { gateway }), 200, z.strictObject({ received: z.literal(true) }));
    },
    bought: async (who, organizationId, plan = 'pro') => answered(await checkout(who.accessToken, { organizationId, plan }), 200, hosted).url,
    tierOf: async (who) => answered(await platform.api('GET', billingRoutes.tier.path, { token: who.accessToken }), 200, tier),
    gate: async (value) => {
      // Unset in the test's own environment too.
      assert.equal(process.env[gateName], undefined);
      delete environment[gateName];
      if (value !== undefined) environment[gateName] = value;
      await restart();
    },
    stop: async () => {
      await journals.close();
      await world.stop();
      await platform.stop();
      await stripe.stop();
      await rm(folder, { recursive: true });
    },
  };
};

export const paymentsOf = paymentsAddress;

/** Bodies that are no checkout, whatever else is right. */
export const badCheckouts = (organizationId: string): readonly unknown[] => [
  '', 'not json', '[]', 'null', '{"organizationId":', Buffer.from([0xff, 0xfe]).toString('latin1'), {}, { organizationId }, { plan: 'pro' }, { organizationId, plan: 7 },
  { organizationId: [organizationId], plan: 'pro' }, { organizationId: '', plan: 'pro' }, { organizationId, plan: '' }, { organizationId, plan: 'pro', price: 'price_pro' },
];
