/** Mail without a server: templates, the sender's form, the outbox of development, what the configuration opens. */
import assert from 'node:assert/strict';
import { chmod, mkdtemp, readdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { messageIdOf, senderOf, type Mail } from '../../actors/mail/mailer.ts';
import { openMailer } from '../../actors/mail/open.ts';
import { outboxMailer } from '../../actors/mail/outbox.ts';
import { invitation, organizationDeleted, signInCode } from '../../actors/mail/templates.ts';
import { daemonConfig } from '../../contracts/config.ts';
import { limits } from '../../contracts/limits.ts';
import { outboxMail, type OutboxMail } from '../../contracts/mail.ts';
import { silent } from '../harness/log.ts';

const from = 'Troupe <no-reply@troupe.example>';
const mail = (more: Partial<Mail> = {}): Mail => ({ id: '01JTESTMAIL', to: 'ann@example.com', subject: 'Hello', text: 'Hi Ann.\n', ...more });

const folder = async (t: TestContext): Promise<string> => {
  const path = await mkdtemp(join(tmpdir(), 'troupe-outbox-'));
  t.after(async () => {
    await chmod(path, 0o700);
    await rm(path, { recursive: true, force: true });
  });
  return path;
};
const readMails = async (path: string): Promise<OutboxMail[]> =>
  Promise.all((await readdir(path)).filter((name) => name.endsWith('.json')).map(async (name) => outboxMail.parse(JSON.parse(await readFile(join(path, name), 'utf8')))));
const mode = async (path: string): Promise<number> => (await stat(path)).mode & 0o777;

test('mail sender - an address with and without a name', () => {
  assert.deepEqual(senderOf(from), { name: 'Troupe', address: 'no-reply@troupe.example', domain: 'troupe.example' });
  assert.deepEqual(senderOf('a.b@c.example'), { name: '', address: 'a.b@c.example', domain: 'c.example' });
  assert.deepEqual(senderOf('Das Team von Köln <a@b.example>'), { name: 'Das Team von Köln', address: 'a@b.example', domain: 'b.example' });
  assert.equal(messageIdOf('01J', senderOf(from)), '<01J@troupe.example>');
});

const config = (value: object) => daemonConfig.shape.mail.safeParse(value);
test('mail configuration - a sender that is not one address is refused, as are both ways at once and none', () => {
  const smtp = { host: 'mail.example.com', port: 587 };
  assert.ok(config({ from, smtp }).success);
  assert.ok(config({ from: 'a@b.example', outbox_path: '/x' }).success);
  for (const wrong of ['', 'nobody', 'a@b, c@d', 'X\r\nBcc: e@f <a@b>', 'X <a@b>\n', '"X" <a@b>', 'X <a@b> <c@d>', 'X <a b@c>', `${'x'.repeat(129)} <a@b>`]) assert.ok(!config({ from: wrong, smtp }).success, wrong);
  assert.ok(!config({ from, smtp, outbox_path: '/x' }).success);
  assert.ok(!config({ from }).success);
  assert.ok(!config({ from, smtp: { ...smtp, password: 'inline' } }).success, 'a secret is given by path only');
  assert.ok(daemonConfig.shape.mail.safeParse(undefined).success);
});

test('mail configuration - without a mail section every mail is refused with a fault, so that its actor tries again', async () => {
  const mailer = openMailer({ config: undefined, log: silent, now: () => 0 });
  await assert.rejects(mailer.send(mail()), { code: 'mail_unavailable' });
  mailer.close();
});

test('mail outbox - a mail is one file of its owner\'s, a repeat replaces it', async (t) => {
  const path = join(await folder(t), 'outbox');
  const mailer = openMailer({ config: daemonConfig.shape.mail.parse({ from, outbox_path: path }), log: silent, now: () => 1_700_000_000_000 });
  await mailer.send(mail());
  await mailer.send(mail({ text: 'Hi again.\n', html: '<p>Hi</p>' }));
  await mailer.send(mail({ id: 'other' }));
  assert.deepEqual((await readdir(path)).toSorted(), ['01JTESTMAIL.json', 'other.json']);
  assert.equal(await mode(path), 0o700);
  assert.equal(await mode(join(path, 'other.json')), 0o600);
  const first = (await readMails(path)).find(({ id }) => id === '01JTESTMAIL');
  assert.deepEqual(first, {
    id: '01JTESTMAIL', message_id: '<01JTESTMAIL@troupe.example>', at: 1_700_000_000_000, from, to: 'ann@example.com', subject: 'Hello', text: 'Hi again.\n', html: '<p>Hi</p>',
  });
});

test('mail outbox - a folder that others could read is closed to them', async (t) => {
  const path = await folder(t);
  await chmod(path, 0o777);
  await outboxMailer({ from, path, now: () => 0 }).send(mail());
  assert.equal(await mode(path), 0o700);
});

test('mail outbox - keeps the newest mails up to its bound, and leaves files that are not mails', async (t) => {
  const path = await folder(t);
  const mailer = outboxMailer({ from, path, now: () => 0 });
  await writeFile(join(path, 'notes.txt'), 'mine');
  for (let i = 0; i < limits.outboxMailsMax; i++) {
    const file = join(path, `old${i}.json`);
    await writeFile(file, '{}');
    await utimes(file, 1_000 + i, 1_000 + i);
  }
  await mailer.send(mail());
  const names = await readdir(path);
  assert.equal(names.filter((name) => name.endsWith('.json')).length, limits.outboxMailsMax);
  assert.ok(!names.includes('old0.json') && names.includes('old1.json') && names.includes('01JTESTMAIL.json') && names.includes('notes.txt'));
});

test('mail outbox - many at once from several mailers: none lost, none half there', async (t) => {
  const path = await folder(t);
  const [one, two] = [outboxMailer({ from, path, now: () => 0 }), outboxMailer({ from, path, now: () => 0 })];
  await Promise.all(Array.from({ length: 60 }, async (_, i) => (i % 2 === 0 ? one : two).send(mail({ id: `m${i % 50}` }))));
  assert.equal((await readMails(path)).length, 50);
  assert.ok((await readdir(path)).every((name) => name.endsWith('.json')), 'nothing unfinished is left');
});

test('mail outbox - the same mails are refused as by a mail server, and nothing is written', async (t) => {
  const path = await folder(t);
  const mailer = outboxMailer({ from, path, now: () => 0 });
  for (const wrong of [{ to: 'ann@example.com\nBcc: eve@example.com' }, { subject: 'a\r\nb' }, { id: '../escape' }, { id: '' }, { to: '' }]) {
    await assert.rejects(mailer.send(mail(wrong)), { code: 'mail_refused' });
  }
  assert.deepEqual(await readdir(path), []);
});

test('mail outbox - a folder that cannot be is mail_unavailable', async (t) => {
  const path = await folder(t);
  await writeFile(join(path, 'file'), '');
  await assert.rejects(outboxMailer({ from, path: join(path, 'file', 'outbox'), now: () => 0 }).send(mail()), { code: 'mail_unavailable' });
});

test('mail templates - names are one escaped line in every part', () => {
  const evil = '<script>alert(1)</script>\r\nBcc: eve@example.com\u202eevil\u0000 & "Co" \ud800';
  for (const content of [
    invitation({ organization: evil, by: evil, role: 'admin', link: 'https://troupe.example/i?t=1', days: 14 }),
    organizationDeleted({ organization: evil, by: evil }),
  ]) {
    assert.ok(!['\r', '\n', '\u0000', '\u202e'].some((char) => content.subject.includes(char)) && content.subject.isWellFormed());
    assert.ok(content.subject.length <= limits.mailSubjectMaxChars);
    assert.ok(!content.html.includes('<script>') && content.html.includes('&lt;script&gt;'));
    assert.ok(!['\r', '\u0000', '\u202e'].some((char) => content.html.includes(char) || content.text.includes(char)));
    assert.ok(!content.text.includes('\nBcc:'));
    assert.ok(content.html.isWellFormed() && content.text.isWellFormed());
  }
});

test('mail templates - a long name is cut, also in the middle of wide characters', () => {
  const { subject } = organizationDeleted({ organization: '🎭'.repeat(500), by: 'x' });
  assert.ok(subject.length <= limits.mailSubjectMaxChars && subject.isWellFormed() && subject.includes('…'));
});

test('mail templates - only an https link is written; http to this machine alone', () => {
  const to = (link: string): string => invitation({ organization: 'o', by: 'b', role: 'member', link, days: 14 }).text;
  assert.match(to('https://troupe.example/i?t=a'), /https:\/\/troupe\.example\/i\?t=a\n/);
  assert.match(to('http://localhost:8443/i'), /http:\/\/localhost:8443\/i/);
  assert.match(to('http://127.0.0.1:8443/i'), /127\.0\.0\.1/);
  for (const wrong of ['http://troupe.example/i', 'javascript:alert(1)', 'data:text/html,x', 'https://a:b@troupe.example/', 'http://localhost.evil.example/']) assert.throws(() => to(wrong), TypeError, wrong);
});

test('mail templates - the code stands in both parts and not in the subject', () => {
  const { subject, text, html } = signInCode({ code: '48151623', minutes: 10 });
  assert.ok(!subject.includes('48151623'));
  assert.match(text, /^ {4}48151623$/m);
  assert.match(html, />48151623</);
  assert.match(text, /10 minutes/);
});
