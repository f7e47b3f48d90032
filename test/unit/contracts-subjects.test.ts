/** Subjects: every id becomes one token and comes back; nothing from outside adds a token, a wildcard or a twin. */
import assert from 'node:assert/strict';
import test from 'node:test';
import fc from 'fast-check';
import { CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import {
  addressTokens, commandSubject, deadLetterSubject, decodeToken, encodeToken, eventsSubject, inboxSubject, journalSubject, ownerSubject, parseCommandSubject,
  parseInboxSubject, parseOwnerSubject, parseStateSubject, partitionOf, reminderSubject, republish, snapshotSubject, streams, wildcards,
} from '../../contracts/subjects.ts';

const seed = Number(process.env['TEST_SEED'] ?? Date.now() % 1_000_000_007);
const check = <T extends unknown[]>(property: fc.IPropertyWithHooks<T>, t: { diagnostic(text: string): void }): void => {
  t.diagnostic(`seed ${seed}`);
  fc.assert(property, { seed, numRuns: 2_000 });
};
/** Any well-formed text whose token is short enough; short texts of nasty characters are frequent. */
const id = fc.oneof(
  fc.string({ unit: 'grapheme', maxLength: 20 }),
  fc.string({ unit: 'binary', maxLength: 20 }).filter((text) => text.isWellFormed()),
  fc.string({ unit: fc.constantFrom('.', '*', '>', '=', '$', ' ', '\t', '\n', '\0', '\u007f', '/', '\\', '\ufeff', '\u00a0', 'A', '-', '_', '2', 'E'), maxLength: 20 }),
).filter((text) => Buffer.byteLength(text) * 3 <= limits.subjectTokenMaxBytes);
const address = fc.record({ org: id, type: id, key: id });
const refused = (error: unknown): boolean => error instanceof CodedError && error.code === 'bad_request';

test('subjects - every id becomes one token of safe characters and comes back', (t) => {
  check(fc.property(id, (text) => {
    const token = encodeToken(text);
    assert.match(token, /^[A-Za-z0-9_=-]+$/);
    assert.equal(decodeToken(token), text);
  }), t);
});

test('subjects - two ids never share a token, however alike they look', (t) => {
  check(fc.property(id, id, (a, b) => { assert.equal(encodeToken(a) === encodeToken(b), a === b); }), t);
  const alike = ['a', 'A', 'а', 'ａ', 'á', 'a\u0301', 'a\u200b', '\ufeffa', 'a\u00ad', 'Å', 'A\u030a', '\u212b', 'ß', 'ss', 'ı', 'i', '\u0130', 'i\u0307'];
  assert.equal(new Set(alike.map(encodeToken)).size, alike.length);
  for (const text of alike) assert.equal(decodeToken(encodeToken(text)), text);
});

test('subjects - wildcards, dots, spaces and the system prefix cannot be smuggled in', () => {
  assert.equal(encodeToken('>'), '=3E');
  assert.equal(encodeToken('*'), '=2A');
  assert.equal(encodeToken('a.b'), 'a=2Eb');
  assert.equal(encodeToken(' '), '=20');
  assert.equal(encodeToken('$SYS'), '=24SYS');
  assert.equal(encodeToken('='), '=3D');
  assert.equal(encodeToken(''), '=');
  assert.equal(encodeToken('plain_ID-9'), 'plain_ID-9');
});

test('subjects - a lone surrogate is refused: all of them would become the same bytes', () => {
  for (const text of ['\ud800', '\udfff', 'a\ud83d', '\ude00b']) assert.throws(() => encodeToken(text), refused);
  assert.equal(decodeToken(encodeToken('\ud83d\ude00')), '😀');
});

test('subjects - a token nobody encoded is refused, so that each address has one spelling', () => {
  for (const token of ['=4', '=4g', '=2e', '=41', 'a.b', 'a b', '*', '>', 'é', '=FF', '=C0=AE', '=ED=A0=80', '==', 'a=', '']) assert.throws(() => decodeToken(token), refused, token);
});

test('subjects - tokens have a bound in bytes; the longest id a client may use fits', () => {
  assert.equal(encodeToken('x'.repeat(limits.subjectTokenMaxBytes)).length, limits.subjectTokenMaxBytes);
  assert.throws(() => encodeToken('x'.repeat(limits.subjectTokenMaxBytes + 1)), refused);
  assert.throws(() => encodeToken('é'.repeat(limits.subjectTokenMaxBytes / 6 + 1)), refused);
});

test('subjects - an address and its command come back from every kind of subject', (t) => {
  check(fc.property(address, id, fc.nat({ max: limits.partitions - 1 }), (a, command, n) => {
    assert.deepEqual(parseCommandSubject(commandSubject(a, command)), { ...a, command });
    assert.deepEqual(parseOwnerSubject(ownerSubject(n, a, command)), { ...a, command });
    assert.deepEqual(parseInboxSubject(inboxSubject(n, a, command)), { ...a, command });
    for (const subject of [journalSubject(n, a), snapshotSubject(n, a), reminderSubject(n, a)]) assert.deepEqual(parseStateSubject(subject), { ...a, partition: n });
  }), t);
});

test('subjects - a subject of another kind or shape is no address', () => {
  for (const subject of ['', 'actor', 'actor.a.b.c', 'actor.a.b.c.d.e', 'part.1.a.b.c.d', 'xactor.a.b.c.d', 'actor..b.c.d', 'actor.*.b.c.d']) assert.throws(() => parseCommandSubject(subject), refused, subject);
  for (const subject of ['part.x.a.b.c.d', 'part.-1.a.b.c.d', 'part.1.a.b.c', 'part.01.a.b.c.d', 'inbox.1.a.b.c.d']) assert.throws(() => parseOwnerSubject(subject), refused, subject);
  for (const subject of ['journal.x.a.b.c', 'journal.1.a.b', 'journal.1.a.b.c.d', 'inbox.1.a.b.c', 'journal..a.b.c']) assert.throws(() => parseStateSubject(subject), refused, subject);
});

/** NATS' own matching of a subject against a pattern, to check what hosts subscribe to. */
const matches = (pattern: string, subject: string): boolean => {
  const [p, s] = [pattern.split('.'), subject.split('.')];
  return p.every((token, i) => token === '>' || (s[i] !== undefined && (token === '*' || token === s[i]))) && (p.at(-1) === '>' ? s.length >= p.length : s.length === p.length);
};

test('subjects - what hosts subscribe to matches what callers send, and nothing of another partition', (t) => {
  check(fc.property(address, id, fc.nat({ max: 63 }), fc.nat({ max: 63 }), (a, command, n, m) => {
    assert.ok(matches(wildcards.commands, commandSubject(a, command)));
    assert.equal(matches(wildcards.owner(m), ownerSubject(n, a, command)), m === n);
    assert.equal(matches(wildcards.inbox(m), inboxSubject(n, a, command)), m === n);
    assert.equal(matches(wildcards.reminders(m), reminderSubject(n, a)), m === n);
    assert.ok(matches(republish.src, journalSubject(n, a)));
    const tokens = journalSubject(n, a).split('.');
    assert.equal(republish.dest.replaceAll(/\{\{wildcard\((\d)\)\}\}/g, (_, i) => tokens[Number(i)] ?? ''), eventsSubject(a));
    assert.ok(deadLetterSubject(a, command).startsWith('deadletter.'));
    assert.ok(!matches(wildcards.commands, ownerSubject(n, a, command)));
  }), t);
});

test('subjects - the partition of an address never changes: these are fixed for ever', () => {
  const at = (org: string, type: string, key: string): number => partitionOf({ org, type, key }, 64);
  // Changing one of these numbers strands every journal written before: it needs a migration, not a new number here.
  assert.deepEqual([at('acme', 'session', 'a'), at('acme', 'session', 'b'), at('dev', 'agent', 'ada'), at('u-é', 'wallet', ''), at('', '', '')], [24, 17, 41, 13, 28]);
});

test('subjects - partitions are within range and evenly used', (t) => {
  check(fc.property(address, fc.integer({ min: 1, max: 4_096 }), (a, count) => {
    const n = partitionOf(a, count);
    assert.ok(Number.isInteger(n) && n >= 0 && n < count);
    assert.equal(n, partitionOf({ ...a }, count));
  }), t);
  const used = Array.from({ length: 64 }, () => 0);
  for (let i = 0; i < 64_000; i++) {
    const n = partitionOf({ org: 'acme', type: 'session', key: `s${i}` }, 64);
    used[n] = (used[n] ?? 0) + 1;
  }
  assert.ok(Math.min(...used) > 700 && Math.max(...used) < 1_300, `${Math.min(...used)}..${Math.max(...used)} of 1000 each`);
});

test('subjects - journal streams share the partitions out by number', () => {
  assert.deepEqual([0, 1, 8, 9].map((n) => streams.journal(n, 8)), ['JOURNAL_0', 'JOURNAL_1', 'JOURNAL_0', 'JOURNAL_1']);
  assert.equal(addressTokens({ org: 'a.b', type: 't', key: '' }), 'a=2Eb.t.=');
});
