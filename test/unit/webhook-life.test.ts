/** The webhook actor's life on the real engine: bounds, changes of its configuration, deletion, hosts lost on the way. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { signature, verifySignature } from '../../actors/webhook/signature.ts';
import { limits } from '../../contracts/limits.ts';
import { retryDelaysMs, webhookCommands } from '../../contracts/webhook.ts';
import { address, codeOf, idOf, ok, org, secret, setting, status, url, type Try } from '../harness/webhook.ts';

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

  test('webhook - an event that overtakes its configuration brings it along, and a late one does not undo a newer', async (t) => {
    const s = setting(t);
    s.always(() => ok);
    const notify = async (id: string, target: object): Promise<unknown> =>
      s.host.ask(address, 'notify', { id, type: 'plan.changed', created: '2030-01-01T00:00:00.000Z', data: {}, target });
    assert.deepEqual(await notify('evt_1', { url, revision: 1 }), { queued: true });
    await s.configure(url, { revision: 1 });
    await s.configure(null, { revision: 2 });
    assert.deepEqual(await notify('evt_2', { url, revision: 1 }), { queued: false });
    await s.seen('WebhookConfigured', 2);
    await s.seen('Delivered', 1);
    await s.host.ask(address, 'forget', {});
    assert.deepEqual(await notify('evt_3', { url, revision: 3 }), { queued: false });
    assert.deepEqual(s.tries.map(idOf), ['evt_1']);
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

  test('webhook - a replaced secret signs beside the new one for 24 hours, at most four of them, and no longer [AUD-014]', async (t) => {
    const s = setting(t);
    s.always(() => ok);
    await s.configure(url);
    const nowSec = (one: Try): number => Math.floor(one.at / 1_000);
    const signers = (one: Try): number[] => [1, 2, 3, 4, 5, 6, 7].filter((version) =>
      verifySignature({ secret: `${secret}.${org}.${version}`, header: one.headers['troupe-signature'] ?? '', body: one.body, nowSec: nowSec(one) }));
    const before = s.host.now();
    const rotated = webhookCommands.rotate.output.parse(await s.host.ask(address, 'rotate', {}));
    assert.equal(rotated.secret_version, 2);
    assert.ok(rotated.former_until >= before + limits.webhookFormerSecretMs && rotated.former_until <= s.host.now() + limits.webhookFormerSecretMs);
    await s.notify('evt_1');
    const first = await s.attempt(1);
    assert.deepEqual(signers(first), [1, 2]);
    // The new one is named first: a receiver that reads one `v1` only goes with the secret that is shown.
    const [, mac = ''] = /,v1=([0-9a-f]{64})/.exec(first.headers['troupe-signature'] ?? '') ?? [];
    assert.equal(`t=${nowSec(first)},v1=${mac}`, signature([`${secret}.${org}.2`], nowSec(first), first.body));
    s.host.advance(limits.webhookFormerSecretMs);
    await s.notify('evt_2');
    assert.deepEqual(signers(await s.attempt(2)), [2]);
    for (let i = 0; i < 5; i++) await s.host.ask(address, 'rotate', {});
    await s.notify('evt_3');
    assert.deepEqual(signers(await s.attempt(3)), [3, 4, 5, 6, 7]);
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
