/** The webhook actor on the real engine: what is queued, sent, tried again and given up. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { PostResult } from '../../actors/webhook/post.ts';
import { limits } from '../../contracts/limits.ts';
import { retryDelaysMs } from '../../contracts/webhook.ts';
import { address, codeOf, dueOf, idOf, ok, org, setting, status, url } from '../harness/webhook.ts';

describe('webhook - delivering', () => {
  test('webhook - [AUD-007] an event is sent to the URL as {id, type, created, organizationId, data}', async (t) => {
    const s = setting(t);
    await s.configure(url);
    assert.deepEqual(await s.notify('evt_1', { member: 'usr_1', name: 'Zoë' }), { queued: true });
    const first = await s.attempt(1);
    assert.equal(first.url, url);
    assert.deepEqual(JSON.parse(first.body), { id: 'evt_1', type: 'member.joined', created: '2030-01-01T00:00:00.000Z', organizationId: org, data: { member: 'usr_1', name: 'Zoë' } });
    assert.equal(first.headers['content-type'], 'application/json');
    first.give(ok);
    await s.seen('Delivered', 1);
    assert.equal(await s.pending(), 0);
    assert.equal(s.tries.length, 1);
  });

  test('webhook - [AUD-008] without a URL nothing is queued, before one is set and after it is removed', async (t) => {
    const s = setting(t);
    assert.deepEqual(await s.notify('evt_1'), { queued: false });
    await s.configure(url);
    s.always(() => ok);
    await s.notify('evt_2');
    await s.seen('Delivered', 1);
    await s.configure(null);
    assert.deepEqual(await s.notify('evt_3'), { queued: false });
    assert.deepEqual(s.tries.map(idOf), ['evt_2']);
    assert.equal((await s.host.events(address)).filter(({ k }) => k === 'DeliveryQueued').length, 1);
  });

  test('webhook - [AUD-009] a type outside the list is refused', async (t) => {
    const s = setting(t);
    await s.configure(url);
    for (const type of ['org.deleted', 'session.started', 'member.', '']) {
      assert.equal(await codeOf(s.host.ask(address, 'notify', { id: 'evt_1', type, created: '2030-01-01T00:00:00.000Z', data: {} })), 'bad_request', type);
    }
    assert.equal(s.tries.length, 0);
  });

  test('webhook - only the system may ask anything of it', async (t) => {
    const s = setting(t);
    await s.configure(url);
    for (const [command, input] of [['configure', { url: 'https://evil.example/' }], ['notify', {}], ['describe', {}], ['dead_letters', {}], ['redeliver', { id: 'x' }], ['rotate', {}], ['forget', {}]] as const) {
      for (const principal of [{ kind: 'user', sub: 'usr_1', org, scopes: ['*'] }, { kind: 'integrator', org }] as const) {
        assert.equal(await codeOf(s.host.ask(address, command, input, principal)), 'forbidden', command);
      }
    }
  });

  test('webhook - one attempt at a time; all arrive; an id that is queued is not queued again', async (t) => {
    const s = setting(t);
    await s.configure(url);
    await s.notify('evt_1');
    await s.notify('evt_2');
    assert.deepEqual(await s.notify('evt_2', { other: true }), { queued: false });
    await s.notify('evt_3');
    const first = await s.attempt(1);
    assert.equal(s.tries.length, 1);
    s.always(() => ok);
    first.give(ok);
    await s.seen('Delivered', 3);
    assert.deepEqual(s.tries.map(idOf), ['evt_1', 'evt_2', 'evt_3']);
  });

  test('webhook - data above the bound is refused, and what fits is not', async (t) => {
    const s = setting(t);
    await s.configure(url);
    const text = 'x'.repeat(limits.webhookDataMaxBytes - '{"t":""}'.length);
    assert.equal(await codeOf(s.notify('evt_1', { t: `${text}x` })), 'payload_too_large');
    assert.deepEqual(await s.notify('evt_1', { t: text }), { queued: true });
  });
});

describe('webhook - failing', () => {
  test('webhook - [AUD-015] a failed attempt is repeated with growing delays, the same id and the same bytes, signed anew', async (t) => {
    const s = setting(t);
    await s.configure(url);
    await s.notify('evt_1', { b: 1, a: 2 });
    const results: readonly PostResult[] = [status(500), { ok: false, failure: 'connection_failed' }, { ok: false, failure: 'redirect', status: 302 }, status(404)];
    for (const [i, result] of results.entries()) {
      const one = await s.attempt(i + 1);
      one.give(result);
      const failed = (await s.seen('DeliveryFailed', i + 1)).at(-1);
      const wait = dueOf(failed) - s.host.now();
      assert.ok(wait <= (retryDelaysMs[i] ?? 0) && wait > (retryDelaysMs[i] ?? 0) - 5_000, `delay ${i}: ${wait}`);
      assert.equal(s.tries.length, i + 1, 'not before it is due');
      s.host.advance(wait + 1);
    }
    (await s.attempt(5)).give(ok);
    await s.seen('Delivered', 1);
    assert.equal(new Set(s.tries.map(({ body }) => body)).size, 1);
    const signatures = s.tries.map(({ headers }) => headers['troupe-signature'] ?? '');
    assert.equal(new Set(signatures).size, 5);
    for (const [i, one] of s.tries.entries()) assert.equal(signatures[i]?.split(',')[0], `t=${Math.floor(one.at / 1_000)}`);
    assert.deepEqual((await s.seen('DeliveryFailed', 4)).map(({ d }) => d['error']), ['status 500', 'connection_failed', 'redirect 302', 'status 404']);
  });

  test('webhook - [AUD-016] one that fails for 24 hours is tried a last time then, and becomes a dead letter that can be sent again', async (t) => {
    const s = setting(t);
    await s.configure(url);
    s.always(() => status(503));
    await s.notify('evt_1');
    const since = s.host.now();
    let fails = 0;
    for (;;) {
      const found = await s.host.until(address, (events) => events.filter(({ k }) => k === 'DeliveryFailed').length > fails || events.some(({ k }) => k === 'DeliveryGivenUp'));
      if (found.some(({ k }) => k === 'DeliveryGivenUp')) break;
      fails += 1;
      const due = dueOf(found.findLast(({ k }) => k === 'DeliveryFailed'));
      assert.ok(due <= since + limits.webhookRetryForMs + 1_000);
      s.host.advance(due - s.host.now() + 1);
    }
    const times = s.tries.map(({ at }) => at - since);
    const gaps = times.slice(1).map((at, i) => at - (times[i] ?? 0));
    assert.ok(gaps.every((gap, i) => gap > (gaps[i - 1] ?? 0)), `growing: ${gaps.join(', ')}`);
    const last = times.at(-1) ?? 0;
    assert.ok(last >= limits.webhookRetryForMs - 1_000 && last < limits.webhookRetryForMs + 60_000, String(last));
    assert.equal(s.tries.length, retryDelaysMs.length + 1);
    assert.equal(await s.pending(), 0);
    const [letter, ...others] = await s.dead();
    assert.equal(others.length, 0);
    assert.deepEqual({ ...letter, at: 0 }, { id: 'evt_1', type: 'member.joined', created: '2030-01-01T00:00:00.000Z', attempts: s.tries.length, last_error: 'status 503', at: 0 });
    // It stays dead, also when the same event is told again.
    s.host.advance(limits.webhookRetryForMs);
    assert.deepEqual(await s.notify('evt_1'), { queued: false });
    const before = s.tries.length;
    s.always(() => ok);
    await s.host.ask(address, 'redeliver', { id: 'evt_1' });
    await s.seen('Delivered', 1);
    assert.equal(s.tries.length, before + 1);
    assert.equal(new Set(s.tries.map(({ body }) => body)).size, 1);
    assert.deepEqual(await s.dead(), []);
    assert.equal(await codeOf(s.host.ask(address, 'redeliver', { id: 'evt_1' })), 'not_found');
  });

  test('webhook - one sent again has a new 24 hours', async (t) => {
    const s = setting(t);
    await s.configure(url);
    await s.notify('evt_1');
    await s.attempt(1);
    await s.configure(null);
    assert.equal(await codeOf(s.host.ask(address, 'redeliver', { id: 'evt_1' })), 'conflict');
    s.host.advance(2 * limits.webhookRetryForMs);
    await s.configure(url);
    await s.host.ask(address, 'redeliver', { id: 'evt_1' });
    (await s.attempt(2)).give(status(500));
    await s.seen('DeliveryFailed', 1);
    assert.equal(await s.pending(), 1);
  });

  test('webhook - an attempt without an end is over after the deadline and tried again', async (t) => {
    const s = setting(t);
    await s.configure(url);
    await s.notify('evt_1');
    const first = await s.attempt(1);
    s.host.advance(limits.webhookDeadlineMs);
    const [failed] = await s.seen('DeliveryFailed', 1);
    assert.equal(failed?.d['error'], 'timed_out');
    assert.ok(first.signal.aborted);
    // What the late attempt still says changes nothing.
    first.give(ok);
    s.host.advance(retryDelaysMs[0] ?? 0);
    (await s.attempt(2)).give(ok);
    await s.seen('Delivered', 1);
    assert.equal(s.tries.length, 2);
  });

  test('webhook - a bug while sending is a failed attempt, not a lost event', async (t) => {
    const s = setting(t);
    await s.configure(url);
    await s.notify('evt_1');
    (await s.attempt(1)).fail(new RangeError('bug'));
    const [failed] = await s.seen('DeliveryFailed', 1);
    assert.equal(failed?.d['error'], 'internal_error');
    s.host.advance(retryDelaysMs[0] ?? 0);
    (await s.attempt(2)).give(ok);
    await s.seen('Delivered', 1);
  });

  test('webhook - one that fails does not hold up the others', async (t) => {
    const s = setting(t);
    await s.configure(url);
    s.always((one) => (idOf(one) === 'evt_1' ? status(400) : ok));
    for (const id of ['evt_1', 'evt_2', 'evt_3']) await s.notify(id);
    await s.seen('Delivered', 2);
    assert.deepEqual(s.tries.map(idOf), ['evt_1', 'evt_2', 'evt_3']);
    assert.equal(await s.pending(), 1);
  });

  test('webhook - after an outage longer than 24 hours an event is tried once more before it is given up', async (t) => {
    const s = setting(t);
    await s.configure(url);
    await s.notify('evt_1');
    (await s.attempt(1)).give(status(500));
    await s.seen('DeliveryFailed', 1);
    s.host.crash();
    s.host.advance(3 * limits.webhookRetryForMs);
    (await s.attempt(2)).give(status(500));
    await s.seen('DeliveryGivenUp', 1);
    assert.equal((await s.dead())[0]?.attempts, 2);
  });
});
