/** An organization with its payments, wallet and names on the real engine, a processor's cancelling in the test's hands, and the words a processor would say. */
import { z } from 'zod';
import { name } from '../../actors/name/name.ts';
import { nameAddress } from '../../actors/name/address.ts';
import { organization } from '../../actors/organization/organization.ts';
import { paymentsAddress } from '../../actors/payments/address.ts';
import { payments } from '../../actors/payments/payments.ts';
import { fold, initialPayments, type PaymentsState } from '../../actors/payments/state.ts';
import { wallet } from '../../actors/wallet/wallet.ts';
import { coded } from '../../contracts/errors.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { nameCommands } from '../../contracts/name.ts';
import { organizationCommands } from '../../contracts/organization.ts';
import { paymentsCommands, paymentsEvents, type PaymentEvent } from '../../contracts/payments.ts';
import { balance, type Balance } from '../../contracts/wallet.ts';
import { actorHost, type ActorHost } from './actor-host.ts';
import { within } from './chaos.ts';
import { person } from './organization-actor.ts';
import { keptWebhook } from './paid.ts';

export const orgId = 'org_01jd0000000000000000000009';
export const address = paymentsAddress(orgId);
export const organizationAt = { org: orgId, type: 'organization', key: orgId };
export const walletAt = { org: orgId, type: 'wallet', key: orgId };

type Said<K extends PaymentEvent['kind']> = Extract<PaymentEvent, { kind: K }>;
export const month = 30 * 86_400;
/** Seconds at which tests begin. */
export const start = 1_800_000_000;

let nth = 0;
const fresh = (): string => `evt_${nth++}`;
export const live = (subscription: string, more: Partial<Said<'subscription'>> = {}): Said<'subscription'> =>
  ({ kind: 'subscription', event: fresh(), at: start, customer: 'cus_1', subscription, plan: 'pro', status: 'live', since: start, made: false, ...more });
export const paid = (invoice: string, more: Partial<Said<'paid'>> = {}): Said<'paid'> =>
  ({ kind: 'paid', event: fresh(), at: start, customer: 'cus_1', invoice, subscription: 'sub_1', plan: 'pro', until: start + month, renews: true, ...more });
export const linked = (more: Partial<Said<'linked'>> = {}): Said<'linked'> =>
  ({ kind: 'linked', event: fresh(), at: start, customer: 'cus_1', subscription: 'sub_1', ...more });
export const unpaid = (invoice: string): Said<'unpaid'> => ({ kind: 'unpaid', event: fresh(), at: start, customer: 'cus_1', invoice });

type Kind = keyof typeof paymentsEvents;
const isKind = (kind: string): kind is Kind => Object.hasOwn(paymentsEvents, kind);

/** The state that a journal is. */
export const foldAll = (events: readonly StoredEvent[]): PaymentsState => {
  let state = initialPayments();
  for (const { k, d } of events) {
    if (!isKind(k)) continue;
    const step: (state: PaymentsState, payload: never) => PaymentsState = fold[k];
    state = step(state, paymentsEvents[k].parse(d) as never);
  }
  return state;
};

export interface PaymentsWorld {
  readonly host: ActorHost;
  /** Subscriptions that were asked to be cancelled, in order. */
  readonly cancels: string[];
  /** Cancelling fails from now on. */
  cancelFails: boolean;
  /** Passes of erasures that were begun: whether it was the last. */
  readonly erased: boolean[];
  receive(...events: readonly PaymentEvent[]): Promise<boolean[]>;
  state(): Promise<PaymentsState>;
  customer(): Promise<string | null>;
  plan(): Promise<string>;
  balance(): Promise<Balance>;
  use(cents: number): Promise<void>;
  delete(): Promise<void>;
  claim(customer: string): Promise<void>;
  holder(customer: string): Promise<string | null>;
  /** Resolves when the journal of that actor has so many events of the kind. */
  seen(of: typeof address, kind: string, count?: number): Promise<StoredEvent[]>;
}

/** With an organization of plan free, made by `owner`. */
export const paymentsWorld = async (t: { after(fn: () => void): void }): Promise<PaymentsWorld> => {
  const cancels: string[] = [];
  const erased: boolean[] = [];
  const host = actorHost([
    payments({
      cancel: async (subscription) => {
        cancels.push(subscription);
        if (self.cancelFails) throw coded('payment_error');
      },
    }),
    organization({
      mailer: { send: async () => undefined }, invitationLink: () => '', now: () => host.now(),
      erase: async (_id, last) => { erased.push(last); }, retain: async () => ({ more: false }),
    }),
    wallet(), name(), keptWebhook,
  ]);
  t.after(() => host.stop());
  const by = person('owner');
  const ask = async <S extends z.ZodType>(of: typeof address, command: string, input: unknown, output: S): Promise<z.output<S>> => output.parse(await host.ask(of, command, input));
  let turns = 0;
  const self: PaymentsWorld = {
    host, cancels, erased, cancelFails: false,
    receive: async (...events) => {
      const taken: boolean[] = [];
      for (const event of events) taken.push((await ask(address, 'receive', { event }, paymentsCommands.receive.output)).taken);
      return taken;
    },
    state: async () => foldAll(await host.events(address)),
    customer: async () => (await ask(address, 'describe', {}, paymentsCommands.describe.output)).customer,
    plan: async () => (await ask(organizationAt, 'authorise', { permission: 'org.read', by }, organizationCommands.authorise.output)).plan,
    balance: () => ask(walletAt, 'balance', {}, balance),
    use: async (cents) => { await host.ask(walletAt, 'charge', { turn_id: `turn_${turns++}`, cents, model: 'm', by: 'usr_a', input_tokens: 1, output_tokens: 1, at: host.now() }); },
    delete: async () => { await host.ask(organizationAt, 'remove', { by }); },
    claim: async (customer) => { await host.ask(nameAddress('customer', customer), 'claim', { holder: orgId }); },
    holder: async (customer) => (await ask(nameAddress('customer', customer), 'holder', {}, nameCommands.holder.output)).holder,
    seen: (of, kind, count = 1) => within(60_000, `${count} ${kind}`, host.until(of, (events) => events.filter(({ k }) => k === kind).length >= count), () => ''),
  };
  await host.ask(organizationAt, 'create', { name: 'Acme', slug: 'acme', default_model: 'mock', by });
  return self;
};
