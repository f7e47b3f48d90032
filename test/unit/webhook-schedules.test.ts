/**
 * The webhook actor under random schedules: events, answers, lost hosts, changed URLs and passing time in any order. Whatever happens,
 * every event that was queued ends as delivered or as a dead letter, and the state stays what its journal says.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fold, initialWebhook, type WebhookState } from '../../actors/webhook/state.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import { deliveredEvent, webhookEvents } from '../../contracts/webhook.ts';
import { draw, runSeed, type Draw } from '../harness/seed.ts';
import { address, idOf, ok, setting, status, url, type Setting } from '../harness/webhook.ts';

type Kind = keyof typeof webhookEvents;
const isKind = (kind: string): kind is Kind => Object.hasOwn(webhookEvents, kind);

/** Folds a journal, checking after each event what must always hold. */
const foldAll = (events: readonly StoredEvent[]): WebhookState => {
  let state = initialWebhook();
  for (const { k, d } of events) {
    if (!isKind(k)) continue;
    const step: (state: WebhookState, payload: never) => WebhookState = fold[k];
    state = step(state, webhookEvents[k].parse(d) as never);
    const { pending, pendingBytes, running, dead } = state;
    assert.equal(pendingBytes, pending.reduce((sum, { body }) => sum + Buffer.byteLength(body), 0), k);
    assert.ok(running === null || pending.some(({ id }) => id === running.id), `${k}: what runs is pending`);
    assert.equal(new Set([...pending, ...dead].map(({ id }) => id)).size, pending.length + dead.length, `${k}: an event is in one place`);
    assert.ok(pending.length <= limits.webhookPendingMax + 1 && dead.length <= limits.webhookDeadMax);
    for (const { id, body } of [...pending, ...dead]) assert.equal(deliveredEvent.parse(JSON.parse(body)).id, id);
  }
  return state;
};

const step = async (s: Setting, d: Draw, nth: number): Promise<void> => {
  const open = s.tries.at(-1);
  switch (d.pick(['notify', 'notify', 'answer', 'answer', 'answer', 'advance', 'advance', 'crash', 'aim', 'url', 'redeliver', 'bug'])) {
    case 'notify': await s.notify(`evt_${nth}`, { nth }); break;
    case 'answer': open?.give(d.pick([ok, status(500), { ok: false, failure: 'connection_failed' }])); break;
    case 'advance': s.host.advance(d.pick([1, limits.webhookDeadlineMs, limits.webhookWakeMs, 600_000, 3_600_000, limits.webhookRetryForMs])); break;
    case 'crash': s.host.crash(); break;
    case 'aim': s.host.crashAt(d.int(1, 3), d.next() < 0.5); break;
    case 'url': await s.configure(d.pick([url, `${url}/other`, `${url}/third`, null])); break;
    case 'redeliver': {
      const [letter] = await s.dead();
      if (letter !== undefined && foldAll(await s.host.events(address)).url !== null) await s.host.ask(address, 'redeliver', { id: letter.id }).catch(isKnownRace);
      break;
    }
    case 'bug': open?.fail(new RangeError('a bug, for the test')); break;
  }
};
/** A repeat after a lost host finds that its first try was stored. */
const isKnownRace = (error: unknown): void => {
  if (!(error instanceof Error && 'code' in error && error.code === 'not_found')) throw error;
};

const seed = runSeed();
test(`webhook schedules - every event queued ends delivered or dead, over any order of failures, crashes and changes (TROUPE_SEED=${seed})`, async (t) => {
  for (let run = 0; run < 40; run++) {
    const d = draw(seed).fork(`run ${run}`);
    const s = setting(t);
    await s.configure(url);
    for (let nth = 0; nth < 40; nth++) await step(s, d, nth);
    // From here on the receiver is well; time passes until nothing is left.
    s.host.crashAt(Number.MAX_SAFE_INTEGER, true);
    await s.configure(`${url}/well`);
    s.always(() => ok);
    for (const one of s.tries) one.give(ok);
    const settled = s.host.until(address, (events) => foldAll(events).pending.length === 0);
    s.host.advance(limits.webhookRetryForMs);
    await settled;
    const events = await s.host.events(address);
    const state = foldAll(events);
    const idsOf = (kind: Kind): Set<unknown> => new Set(events.filter(({ k }) => k === kind).map((event) => event.d['id']));
    const ended = new Set([...idsOf('Delivered'), ...state.dead.map(({ id }) => id)]);
    const lost = [...idsOf('DeliveryQueued')].filter((id) => !ended.has(id));
    assert.deepEqual(lost, [], `run ${run}`);
    // Every attempt of an event, by any host, carried the same bytes.
    for (const id of idsOf('DeliveryQueued')) assert.ok(new Set(s.tries.filter((one) => idOf(one) === id).map(({ body }) => body)).size <= 1, String(id));
    assert.equal(await s.pending(), 0);
    s.host.stop();
  }
});
