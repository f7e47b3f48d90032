/** The webhook actor on the real engine: what is queued, tried, given up and forgotten, whatever is lost on the way. */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { verifySignature } from '../../actors/webhook/signature.ts';
import { webhook, type WebhookDeps } from '../../actors/webhook/webhook.ts';
import type { PostRequest, PostResult } from '../../actors/webhook/post.ts';
import { coded, CodedError } from '../../contracts/errors.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import { deliveredEvent, retryDelaysMs, webhookCommands, type DeadLetter } from '../../contracts/webhook.ts';
import { actorHost, type ActorHost } from '../harness/actor-host.ts';
import { recorder } from '../harness/log.ts';

const org = 'org_01jtest';
const address = { org, type: 'webhook', key: org };
const url = 'https://hooks.example.com/troupe';
const secret = 'whsec_not-in-any-journal';

interface Try extends PostRequest {
  /** The host's time. */
  readonly at: number;
  give(result: PostResult): void;
  fail(error: Error): void;
}

interface Setting {
  readonly host: ActorHost;
  readonly log: ReturnType<typeof recorder>;
  readonly tries: readonly Try[];
  /** The n-th attempt, from 1, when it begins. */
  attempt(nth: number): Promise<Try>;
  /** From now on every attempt ends so. */
  always(by: ((request: Try) => PostResult) | undefined): void;
  configure(to: string | null, more?: object): Promise<unknown>;
  notify(id: string, data?: object): Promise<unknown>;
  dead(): Promise<readonly DeadLetter[]>;
  pending(): Promise<number>;
  /** Resolves when the journal holds so many events of a kind. */
  seen(kind: string, count: number): Promise<readonly StoredEvent[]>;
}

const ok: PostResult = { ok: true, status: 200 };
const status = (code: number): PostResult => ({ ok: false, failure: 'status', status: code });

const setting = (t: TestContext): Setting => {
  const tries: Try[] = [];
  const waits: { readonly nth: number; readonly give: (one: Try) => void }[] = [];
  let answer: ((request: Try) => PostResult) | undefined;
  const deps: WebhookDeps = {
    now: () => host.now(),
    secret: (orgId, version) => `${secret}.${orgId}.${version}`,
    post: async (request) => {
      const ended = Promise.withResolvers<PostResult>();
      const one: Try = { ...request, at: host.now(), give: ended.resolve, fail: ended.reject };
      request.signal.addEventListener('abort', () => ended.reject(coded('aborted')));
      tries.push(one);
      if (answer !== undefined) ended.resolve(answer(one));
      for (const wait of waits) if (tries.length === wait.nth) wait.give(one);
      return ended.promise;
    },
  };
  const log = recorder();
  const host = actorHost([webhook(deps)], { log });
  t.after(() => host.stop());
  return {
    host, log, tries,
    attempt: async (nth) => tries[nth - 1] ?? new Promise((give) => { waits.push({ nth, give }); }),
    always: (by) => { answer = by; },
    configure: async (to, more = {}) => host.ask(address, 'configure', { url: to, ...more }),
    notify: async (id, data = {}) => host.ask(address, 'notify', { id, type: 'member.joined', created: '2030-01-01T00:00:00.000Z', data }),
    dead: async () => webhookCommands.dead_letters.output.parse(await host.ask(address, 'dead_letters', {})).dead_letters,
    pending: async () => webhookCommands.describe.output.parse(await host.ask(address, 'describe', {})).pending,
    seen: async (kind, count) => (await host.until(address, (events) => events.filter(({ k }) => k === kind).length >= count)).filter(({ k }) => k === kind),
  };
};

const idOf = (one: Try): string => deliveredEvent.parse(JSON.parse(one.body)).id;
const codeOf = async (promise: Promise<unknown>): Promise<string> => {
  const error: unknown = await promise.then(() => assert.fail('it was taken'), (cause: unknown) => cause);
  assert.ok(error instanceof CodedError, String(error));
  return error.code;
};
const dueOf = (event: StoredEvent | undefined): number => Number(event?.d['due']);

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
    for (const [command, input] of [['configure', { url: 'https://evil.example/' }], ['notify', {}], ['describe', {}], ['dead_letters', {}], ['redeliver', { id: 'x' }], ['forget', {}]] as const) {
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

describe('webhook - bounds', () => {
  test('webhook - a full queue gives up its oldest event, which can be sent again; the one under way is spared', async (t) => {
    const s = setting(t);
    await s.configure(url);
    for (let i = 0; i < limits.webhookPendingMax; i++) await s.notify(`evt_${i}`);
    assert.deepEqual(await s.dead(), []);
    const running = await s.attempt(1);
    assert.equal(idOf(running), 'evt_0');
    await s.notify('evt_new');
    const [letter] = await s.dead();
    assert.equal(letter?.id, 'evt_1');
    assert.equal(letter.last_error, 'queue_full');
    assert.equal(await s.pending(), limits.webhookPendingMax);
    await s.host.ask(address, 'redeliver', { id: 'evt_1' });
    assert.deepEqual((await s.dead()).map(({ id }) => id), ['evt_2']);
    assert.equal(await s.pending(), limits.webhookPendingMax);
  });

  test('webhook - the queue and the dead letters are bounded in bytes, and the state stays small enough for a snapshot', async (t) => {
    const s = setting(t);
    await s.configure(url);
    // Quotes double in a snapshot: the worst there is.
    const data = { t: '"'.repeat(limits.webhookDataMaxBytes / 2 - 8) };
    for (let i = 0; i < 120; i++) await s.notify(`evt_${i}`, data);
    const body = Buffer.byteLength((await s.attempt(1)).body);
    assert.equal(await s.pending(), Math.floor(limits.webhookPendingMaxBytes / body));
    assert.equal((await s.dead()).length, Math.floor(limits.webhookDeadMaxBytes / body));
    assert.equal((await s.dead())[0]?.id, `evt_${120 - Math.floor(limits.webhookPendingMaxBytes / body)}`);
    for (let i = 0; i < limits.snapshotEvery; i++) await s.configure(`${url}?${i}`);
    assert.deepEqual(s.log.lines.filter(({ text }) => text.includes('snapshot')), []);
  });

  test('webhook - the oldest dead letters beyond the bound are forgotten', async (t) => {
    const s = setting(t);
    await s.configure(url);
    for (let i = 0; i < limits.webhookDeadMax + 5; i++) await s.notify(`evt_${i}`);
    await s.attempt(1);
    await s.configure(null);
    const letters = await s.dead();
    assert.equal(letters.length, limits.webhookDeadMax);
    assert.equal(letters[0]?.id, `evt_${limits.webhookDeadMax + 4}`);
    assert.equal(letters.at(-1)?.id, 'evt_5');
    assert.ok(letters.every(({ last_error }) => last_error === 'no_url'));
  });
});

describe('webhook - configuring', () => {
  test('webhook - a changed URL is tried at once with what is pending, the attempt at the old one called off', async (t) => {
    const s = setting(t);
    await s.configure(url);
    await s.notify('evt_1');
    // Until its next attempt is an hour away.
    for (const [i, delay] of retryDelaysMs.slice(0, 5).entries()) {
      (await s.attempt(i + 1)).give(status(500));
      await s.seen('DeliveryFailed', i + 1);
      if (i < 4) s.host.advance(delay);
    }
    await s.notify('evt_2');
    const old = await s.attempt(6);
    await s.configure(`${url}/new`);
    const next = await s.attempt(7);
    assert.equal(next.url, `${url}/new`);
    assert.ok(old.signal.aborted);
    s.always(() => ok);
    next.give(ok);
    await s.seen('Delivered', 2);
    assert.deepEqual(new Set(s.tries.slice(6).map(idOf)), new Set(['evt_1', 'evt_2']));
    assert.ok(s.tries.slice(6).every((one) => one.url === `${url}/new`));
    assert.equal((await s.seen('DeliveryFailed', 5)).length, 5, 'the one called off has not failed');
  });

  test('webhook - an older configuration that arrives late changes nothing; the same again neither', async (t) => {
    const s = setting(t);
    await s.configure(`${url}/b`, { revision: 7 });
    await s.configure(`${url}/a`, { revision: 6 });
    await s.configure(`${url}/b`, { revision: 7 });
    assert.equal(webhookCommands.describe.output.parse(await s.host.ask(address, 'describe', {})).url, `${url}/b`);
    assert.equal((await s.host.events(address)).filter(({ k }) => k === 'WebhookConfigured').length, 1);
    await s.configure(null, { revision: 8 });
    assert.equal(webhookCommands.describe.output.parse(await s.host.ask(address, 'describe', {})).url, null);
  });

  test('webhook - a new version of the secret signs from the next attempt on', async (t) => {
    const s = setting(t);
    await s.configure(url);
    await s.notify('evt_1');
    (await s.attempt(1)).give(status(500));
    await s.seen('DeliveryFailed', 1);
    await s.configure(url, { secret_version: 2 });
    s.host.advance(retryDelaysMs[0] ?? 0);
    const verify = (one: Try, version: number): boolean =>
      verifySignature({ secret: `${secret}.${org}.${version}`, header: one.headers['troupe-signature'] ?? '', body: one.body, nowSec: Math.floor(one.at / 1_000) });
    const second = await s.attempt(2);
    const [first] = s.tries;
    assert.ok(first !== undefined && verify(first, 1) && !verify(first, 2));
    assert.ok(verify(second, 2) && !verify(second, 1));
  });

  test('webhook - a deleted organization\'s webhook drops everything and stays silent', async (t) => {
    const s = setting(t);
    await s.configure(url);
    await s.notify('evt_1');
    await s.notify('evt_2');
    const running = await s.attempt(1);
    await s.host.ask(address, 'forget', {});
    await s.host.ask(address, 'forget', {});
    assert.deepEqual(await s.notify('evt_3'), { queued: false });
    for (const [command, input] of [['configure', { url }], ['redeliver', { id: 'evt_1' }], ['dead_letters', {}], ['describe', {}]] as const) assert.equal(await codeOf(s.host.ask(address, command, input)), 'not_found', command);
    s.host.advance(limits.webhookRetryForMs);
    s.host.crash();
    await s.notify('evt_4');
    assert.ok(running.signal.aborted);
    assert.equal(s.tries.length, 1);
  });
});

describe('webhook - losing the host', () => {
  test('webhook - [AUD-017] what is pending survives the loss of its host, and an attempt under way is made again, without anybody asking', async (t) => {
    const s = setting(t);
    await s.configure(url);
    await s.notify('evt_1');
    await s.notify('evt_2');
    await s.attempt(1);
    s.always(() => ok);
    s.host.crash();
    s.host.advance(limits.webhookWakeMs);
    await s.seen('Delivered', 2);
    assert.deepEqual(s.tries.map(idOf), ['evt_1', 'evt_1', 'evt_2']);
    assert.equal(s.tries[0]?.body, s.tries[1]?.body);
  });

  test('webhook - a host lost at any append of a delivery, stored or not: delivered in the end, bytes unchanged', async (t) => {
    for (const stored of [true, false]) {
      // Queued and begun, failed, begun again, delivered.
      for (let n = 1; n <= 4; n++) {
        const s = setting(t);
        await s.configure(url);
        let fails = 1;
        s.always(() => (fails-- > 0 ? status(500) : ok));
        s.host.crashAt(n, stored);
        // The ask is repeated by the host as a tell would be; a stored first try makes the repeat a known id.
        await s.notify('evt_1', { n });
        for (let delivered = false; !delivered;) {
          const found = await s.host.until(address, (events) => events.some(({ k }) => k === 'Delivered' || k === 'DeliveryFailed' || k === 'DeliveryStarted'));
          delivered = found.some(({ k }) => k === 'Delivered');
          s.host.advance(limits.webhookWakeMs);
          await new Promise((resolve) => { setImmediate(resolve); });
        }
        assert.equal(s.host.crashes, 1, `append ${n} was reached`);
        assert.equal(await s.pending(), 0);
        assert.equal(new Set(s.tries.map(({ body }) => body)).size, 1, `append ${n}`);
        assert.equal((await s.host.events(address)).filter(({ k }) => k === 'Delivered').length, 1);
      }
    }
  });

  test('webhook - the secret stands in no event, snapshot or log', async (t) => {
    const s = setting(t);
    await s.configure(url);
    await s.notify('evt_1');
    (await s.attempt(1)).give(status(500));
    await s.seen('DeliveryFailed', 1);
    s.host.advance(retryDelaysMs[0] ?? 0);
    (await s.attempt(2)).fail(new RangeError('bug'));
    await s.seen('DeliveryFailed', 2);
    const said = JSON.stringify([await s.host.events(address), s.log.lines.map(({ fields, text }) => [text, fields])]);
    assert.ok(said.includes('evt_1') && s.log.lines.length > 0);
    assert.ok(!said.includes('whsec_') && !/v1=[0-9a-f]{64}/.test(said));
  });
});
