/** Where a period of usage begins, on days where that is easily wrong. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { periodStartMs } from '../../contracts/billing.ts';

const start = (period: Parameters<typeof periodStartMs>[0], now: string): string => new Date(periodStartMs(period, Date.parse(now))).toISOString();

test('usage - a day begins today, a week 7 days and a month one calendar month before, at 00:00 UTC [BIL-004] [BIL-005] [BIL-006]', () => {
  assert.equal(start('day', '2026-03-31T23:59:59.999Z'), '2026-03-31T00:00:00.000Z');
  assert.equal(start('day', '2026-03-31T00:00:00.000Z'), '2026-03-31T00:00:00.000Z');
  assert.equal(start('week', '2026-03-03T12:00:00.000Z'), '2026-02-24T00:00:00.000Z');
  assert.equal(start('week', '2026-01-02T12:00:00.000Z'), '2025-12-26T00:00:00.000Z');
  assert.equal(start('month', '2026-11-21T05:00:00.000Z'), '2026-10-21T00:00:00.000Z');
  assert.equal(start('month', '2026-01-15T05:00:00.000Z'), '2025-12-15T00:00:00.000Z');
  assert.equal(start('month', '2026-03-31T05:00:00.000Z'), '2026-02-28T00:00:00.000Z', 'the month before has no such day');
  assert.equal(start('month', '2028-03-30T05:00:00.000Z'), '2028-02-29T00:00:00.000Z');
  assert.equal(start('month', '2026-05-31T05:00:00.000Z'), '2026-04-30T00:00:00.000Z');
});
