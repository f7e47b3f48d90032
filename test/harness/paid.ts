/**
 * Paid turns on the real engine: sessions, completions and their wallet with a priced model, a webhook that keeps what it is told, and
 * sums of the three things that must agree: metering events, charges, balance.
 */
import assert from 'node:assert/strict';
import { z } from 'zod';
import { agent } from '../../actors/agent/agent.ts';
import { memoryBlobs } from '../../actors/blobs/memory.ts';
import { completion } from '../../actors/completion/completion.ts';
import { mock } from '../../actors/providers/mock.ts';
import { createRegistry, type Registry } from '../../actors/providers/registry.ts';
import { defineActor, type ActorDefinition } from '../../actors/runtime/define.ts';
import { session } from '../../actors/session/session.ts';
import { builtinTools } from '../../actors/tools/index.ts';
import { wallet } from '../../actors/wallet/wallet.ts';
import { modelEntry } from '../../contracts/config.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { usage } from '../../contracts/stream.ts';
import { walletEvents } from '../../contracts/wallet.ts';
import { webhookCommands } from '../../contracts/webhook.ts';

export const paidUser = 'usr_01jd0000000000000000000007';
/** `dear`: a few tokens are some cents. */
export const pricedModels: Registry = createRegistry({
  default: 'dear',
  registry: [
    modelEntry.parse({ id: 'dear', provider: 'mock', input_usd_per_mtok: 1_000, output_usd_per_mtok: 10_000 }),
    modelEntry.parse({ id: 'free', provider: 'mock' }),
  ],
}, { mock: mock() });

export const notified = webhookCommands.notify.input;
/** Takes the place of the webhook actor: journals what it is notified of. */
export const keptWebhook = defineActor({
  type: 'webhook', events: { Notified: notified }, initial: () => ({}), apply: { Notified: (state) => state },
  commands: (command) => ({
    notify: command({
      ...webhookCommands.notify, access: 'system',
      handle: (turn, input) => {
        turn.emit('Notified', input);
        return { queued: true };
      },
    }),
  }),
});

/** With the wallet, the webhook above and whatever they need. `idleMs`: of sessions. */
export const paidDefinitions = (options: { readonly idleMs?: number } = {}): readonly ActorDefinition[] => {
  const blobs = memoryBlobs();
  return [
    session({ registry: pricedModels, tools: builtinTools({ fetchAllow: [] }), blobs, metered: true, ...options }),
    completion({ registry: pricedModels, blobs, tools: builtinTools({ fetchAllow: [] }) }), agent(), wallet(), keptWebhook,
  ];
};

/** A request to a completion actor that says one line. */
export const completionOf = (id: string, line: string, model = 'dear'): Readonly<Record<string, unknown>> => ({
  id, model, by: paidUser, prompt_chars: line.length, prompt: { messages: [{ role: 'user', text: line }], tools: [], options: {} },
});

const metered = z.object({ id: z.string(), usage });
/** Metering events, by turn; throws if a turn has two. */
export const meteredTurns = (events: readonly StoredEvent[]): ReadonlyMap<string, number> => {
  const found = new Map<string, number>();
  for (const { k, d } of events) {
    if (k !== 'UsageMetered') continue;
    const { id, usage: used } = metered.parse(d);
    assert.ok(!found.has(id), `${id} was metered twice`);
    found.set(id, used.cost_cents);
  }
  return found;
};

/** Charges, by turn; throws if a turn was charged twice. */
export const chargedTurns = (events: readonly StoredEvent[]): ReadonlyMap<string, number> => {
  const found = new Map<string, number>();
  for (const { k, d } of events) {
    if (k !== 'Charged') continue;
    const { turn_id: id, cents } = walletEvents.Charged.parse(d);
    assert.ok(!found.has(id), `${id} was charged twice`);
    found.set(id, cents);
  }
  return found;
};

export const sumOf = (turns: ReadonlyMap<string, number>): number => [...turns.values()].reduce((sum, cents) => sum + cents, 0);
/** Without what cost nothing. */
export const paidOf = (turns: ReadonlyMap<string, number>): ReadonlyMap<string, number> => new Map([...turns].filter(([, cents]) => cents > 0).toSorted());
