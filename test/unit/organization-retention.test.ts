/** Retention in the organization's actor: when passes begin, over failures, lost hosts, and changes of mind. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { limits } from '../../contracts/limits.ts';
import { organizationActor, person } from '../harness/organization-actor.ts';

const by = person('owner');
const none = { more: false };

test('retention - begins when it is set, then once a day; soon again for what is left over, later for what failed; a lost host\'s pass is done by the next', async () => {
  const first = organizationActor();
  await first.found();
  const days = (): number[] => first.retentions.map((one) => one.days);
  await first.cluster.clock.advance(limits.retentionEveryMs);
  assert.deepEqual(days(), [], 'off is the default');
  await first.ask('update', { by, settings: { retentionDays: 30 } });
  await first.quiet();
  assert.deepEqual(days(), [30]);
  first.retentions[0]?.end(none);
  await first.quiet();
  await first.cluster.clock.advance(limits.retentionEveryMs - 1_000);
  assert.deepEqual(days(), [30]);
  await first.cluster.clock.advance(1_000);
  assert.deepEqual(days(), [30, 30], 'a day later');
  first.retentions[1]?.end({ more: true });
  await first.quiet();
  await first.cluster.clock.advance(limits.organizationRetryMs);
  assert.equal(first.retentions.length, 3, 'what is left over');
  first.retentions[2]?.end(new Error('the store does not answer'));
  await first.quiet();
  await first.cluster.clock.advance(limits.organizationRetryMaxMs);
  assert.equal(first.retentions.length, 4, 'tried again');
  const second = first.restart();
  await second.cluster.clock.advance(limits.retentionEveryMs);
  assert.ok(second.retentions.length > 4, 'by the next host');
  for (const one of second.retentions) one.end(none);
  await second.quiet();
});

test('retention - follows the setting: other days at once, none when it is off or the organization is deleted', async () => {
  const of = organizationActor();
  await of.found();
  await of.ask('update', { by, settings: { retentionDays: 30 } });
  await of.ask('update', { by, settings: { retentionDays: 7 } });
  await of.ask('update', { by, name: 'Another' });
  await of.quiet();
  assert.deepEqual(of.retentions.map(({ days }) => days), [30, 7]);
  // The end of a pass that nobody wants any more says nothing of the next.
  of.retentions[0]?.end({ more: true });
  of.retentions[1]?.end(none);
  await of.quiet();
  await of.cluster.clock.advance(limits.organizationRetryMs * 2);
  assert.equal(of.retentions.length, 2);
  await of.ask('update', { by, settings: { retentionDays: null } });
  await of.cluster.clock.advance(limits.retentionEveryMs * 2);
  assert.equal(of.retentions.length, 2, 'off');
  await of.ask('update', { by, settings: { retentionDays: 1 } });
  await of.quiet();
  of.retentions[2]?.end({ more: true });
  await of.quiet();
  await of.ask('remove', { by });
  await of.cluster.clock.advance(limits.retentionEveryMs * 2);
  assert.equal(of.retentions.length, 3, 'deleted');
});
