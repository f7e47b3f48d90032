/** Mailed sign-in codes: once, bounded in time and tries, retried mail, no code in what is kept. Real engine, moved clock. */
import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { coded, CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { signinCommands } from '../../contracts/signin.ts';
import type { Mail } from '../../actors/mail/mailer.ts';
import { signinAddress } from '../../actors/signin/address.ts';
import { signin } from '../../actors/signin/signin.ts';
import { askBy } from '../../actors/daemon/platform/ask.ts';
import { createSigninCodes } from '../../actors/daemon/platform/signin-code.ts';
import { createCluster, createHost, domainOf, subjectOf } from '../harness/memory-host.ts';

const email = 'ann@example.com';
const address = signinAddress(email);

/** `fails`: codes with which the next mails fail. */
const setup = (fails: ('mail_unavailable' | 'mail_refused')[] = []) => {
  const cluster = createCluster();
  const codeOf = createSigninCodes(createSecretKey(randomBytes(32)));
  const mails: Mail[] = [];
  const waiting: (() => void)[] = [];
  let tries = 0;
  const mailer = {
    send: async (mail: Mail): Promise<void> => {
      tries += 1;
      const fail = fails.shift();
      if (fail === undefined) mails.push(mail);
      for (const wake of waiting.splice(0)) wake();
      if (fail !== undefined) throw coded(fail);
    },
  };
  const host = createHost(cluster, { definitions: [signin({ mailer, codeOf })] });
  const ask = askBy({ ask: (message) => host.engine.deliver(message) }, signinCommands);
  const tried = async (count: number): Promise<void> => {
    while (tries < count) await new Promise<void>((resolve) => { waiting.push(resolve); });
  };
  /** Resolves when the journal holds so many failures: then the next try is armed. */
  const failed = async (count: number): Promise<void> => {
    while (domainOf(cluster, address).filter((line) => line.startsWith('MailFailed')).length < count) await setImmediate();
  };
  const start = (from = '192.0.2.1') => ask(address, 'start', { email, from });
  const verify = async (code: string, from = '192.0.2.1'): Promise<string> => (await ask(address, 'verify', { code, from })).state;
  const code = async (nth: number): Promise<string> => {
    await tried(nth);
    return /\d{8}/.exec(mails.at(-1)?.text ?? '')?.[0] ?? '';
  };
  const other = (text: string): string => String((Number(text) + 1) % 100_000_000).padStart(8, '0');
  const codeOfMail = (nth: number): string => /\d{8}/.exec(mails[nth - 1]?.text ?? '')?.[0] ?? '';
  return { cluster, host, mails, codeOfMail, tried, failed, start, verify, code, other };
};

const refusal = async (work: Promise<unknown>): Promise<CodedError> => {
  const error = await work.then(() => undefined, (e: unknown) => e);
  assert.ok(error instanceof CodedError);
  return error;
};

test('signin - a mailed code works once [TOK-049]', async () => {
  const { start, verify, code, mails, other } = setup();
  await start();
  const first = await code(1);
  assert.match(first, /^\d{8}$/);
  assert.equal(mails[0]?.to, email);
  assert.equal(await verify(other(first)), 'refused');
  assert.equal(await verify(first), 'verified');
  assert.equal(await verify(first), 'refused');
});

test('signin - of tries with the right code at once exactly one signs in [TOK-049]', async () => {
  const { start, verify, code } = setup();
  await start();
  const right = await code(1);
  const states = await Promise.all(Array.from({ length: 8 }, () => verify(right)));
  assert.deepEqual(states.filter((s) => s === 'verified').length, 1);
});

test('signin - after five wrong tries from one place no more count from there, and the code stays good for who got it [TOK-049]', async () => {
  const { start, verify, code, other } = setup();
  await start();
  const right = await code(1);
  for (let i = 1; i < limits.signinTriesMax; i++) assert.equal(await verify(other(right)), 'refused');
  assert.equal(await verify(right), 'verified', 'the fifth try from there');
  await start();
  const second = await code(2);
  for (let i = 0; i < limits.signinTriesMax; i++) assert.equal(await verify(other(second)), 'refused');
  assert.equal(await verify(second), 'refused', 'the sixth from there, right as it is');
  assert.equal(await verify(second, '198.51.100.7'), 'verified');
});

test('signin - wrong tries from many places end a code for all places but the one it was asked for from', async () => {
  const { start, verify, code, other } = setup();
  await start();
  const right = await code(1);
  const places = Array.from({ length: limits.signinTriesAllMax / limits.signinTriesMax }, (_, i) => `203.0.113.${i}`);
  for (const place of places) for (let i = 0; i < limits.signinTriesMax; i++) assert.equal(await verify(other(right), place), 'refused');
  assert.equal(await verify(right, '198.51.100.7'), 'refused');
  assert.equal(await verify(right), 'verified');
});

test('signin - a wrong try counts for every code that stands, so that more codes are no more tries', async () => {
  const { start, verify, code, codeOfMail, other } = setup();
  await start();
  await start();
  const second = await code(2);
  const wrong = [1, 2, 3, 4, 5].reduce((from) => other(from), second);
  for (let i = 0; i < limits.signinTriesMax; i++) assert.equal(await verify(wrong), 'refused');
  assert.equal(await verify(codeOfMail(1)), 'refused');
  assert.equal(await verify(second), 'refused');
});

test('signin - a code is good for ten minutes less a millisecond', async () => {
  const { cluster, start, verify, code } = setup();
  await start();
  const right = await code(1);
  await cluster.clock.advance(limits.signinCodeTtlMs);
  assert.equal(await verify(right), 'refused');
  await start();
  const second = await code(2);
  await cluster.clock.advance(limits.signinCodeTtlMs - 1);
  assert.equal(await verify(second), 'verified');
});

test('signin - codes stand beside each other: each is good once, whoever asked for the others, and none is guessed before one was asked for', async () => {
  const { start, verify, code, codeOfMail } = setup();
  assert.equal(await verify('00000000'), 'refused');
  await start();
  const first = await code(1);
  for (let i = 0; i < limits.signinMailsPerBlockMax; i++) await start('198.51.100.7');
  await code(1 + limits.signinMailsPerBlockMax);
  assert.equal(await verify(first), 'verified');
  assert.equal(await verify(first), 'refused');
  const theirs = codeOfMail(2);
  assert.notEqual(theirs, first);
  assert.equal(await verify(theirs, '198.51.100.7'), 'verified');
});

test('signin - five codes an hour for one address from one place: the sixth is refused and says until when, and another place still gets its own', async () => {
  const { cluster, start, verify, code, tried } = setup();
  for (let i = 1; i <= limits.signinMailsPerBlockMax; i++) {
    await start();
    await tried(i);
    await cluster.clock.advance(60_000);
  }
  const refused = await refusal(start());
  assert.equal(refused.code, 'rate_limited');
  assert.deepEqual(refused.details, { limit: 5, remaining: 0, reset: Math.ceil((cluster.clock.now() + 55 * 60_000) / 1_000), retry_after: 55 * 60 });
  assert.equal(await verify(await code(5)), 'verified');
  await start('198.51.100.7');
  assert.equal(await verify(await code(6), '198.51.100.7'), 'verified');
  await cluster.clock.advance(55 * 60_000);
  await start();
  await tried(7);
});

test('signin - twenty codes an hour for one address from wherever; the next is refused, and those that were mailed stay good', async () => {
  const { cluster, start, verify, code, tried } = setup();
  for (let i = 1; i <= limits.signinMailsPerHourMax; i++) {
    await start(`203.0.113.${i % (limits.signinMailsPerHourMax / limits.signinMailsPerBlockMax)}`);
    await tried(i);
  }
  const refused = await refusal(start('198.51.100.7'));
  assert.deepEqual([refused.code, refused.details?.['limit'], refused.details?.['retry_after']], ['rate_limited', 20, 3_600]);
  assert.equal(await verify(await code(20)), 'verified');
  await cluster.clock.advance(3_600_000);
  await start('198.51.100.7');
  await tried(21);
});

test('signin - mail that is unavailable is tried again under the same id while the code is good; a refused one is not', async () => {
  const { cluster, start, verify, code, failed, mails } = setup(['mail_unavailable', 'mail_unavailable']);
  await start();
  await failed(1);
  await cluster.clock.advance(limits.signinMailRetryMs);
  await failed(2);
  await cluster.clock.advance(2 * limits.signinMailRetryMs);
  assert.equal(await verify(await code(3)), 'verified');
  assert.equal(mails.length, 1);
  assert.match(mails[0]?.id ?? '', /^signin-[0-9A-Z]{26}$/);
  const refused = setup(['mail_refused']);
  await refused.start();
  await refused.failed(1);
  await refused.cluster.clock.advance(limits.signinCodeTtlMs);
  assert.equal(refused.mails.length, 0);
});

test('signin - of several codes each mail that failed is tried again in its own time, and none twice', async () => {
  const { cluster, start, tried, failed, verify, code, codeOfMail, mails } = setup(['mail_unavailable', 'mail_unavailable']);
  await start();
  await failed(1);
  await cluster.clock.advance(limits.signinMailRetryMs / 2);
  await start();
  await failed(2);
  await cluster.clock.advance(limits.signinMailRetryMs / 2);
  await tried(3);
  await cluster.clock.advance(limits.signinMailRetryMs / 2);
  const last = await code(4);
  await cluster.clock.advance(limits.signinMailRetryMs * 4);
  assert.deepEqual(mails.length, 2);
  assert.equal(await verify(codeOfMail(1)), 'verified');
  assert.equal(await verify(last), 'verified');
});

test('signin - no code is in the journal, in a snapshot or in the log', async () => {
  const { cluster, host, start, verify, code, other } = setup();
  await start();
  const right = await code(1);
  await verify(other(right));
  await verify(right);
  const kept = cluster.stores.journal.messages(subjectOf(address)).map((m) => Buffer.from(m.data).toString('utf8')).join('\n');
  assert.ok(kept.includes('CodeMissed') && kept.includes('CodeUsed'));
  for (const text of [kept, JSON.stringify(host.log)]) {
    assert.equal(text.includes(right), false);
    assert.equal(text.includes(other(right)), false);
  }
});

test('signin - codes are spread over all eight digits and differ by attempt, address and key', () => {
  const codes = createSigninCodes(createSecretKey(Buffer.alloc(32, 1)));
  const drawn = Array.from({ length: 2_000 }, (_, i) => codes('key', `attempt-${i}`));
  assert.ok(drawn.every((code) => /^\d{8}$/.test(code)));
  assert.ok(new Set(drawn).size > 1_990);
  assert.equal(new Set(drawn.map((code) => code[0])).size, 10);
  assert.notEqual(codes('key', 'a'), codes('other', 'a'));
  assert.notEqual(codes('key', 'a'), createSigninCodes(createSecretKey(Buffer.alloc(32, 2)))('key', 'a'));
});
