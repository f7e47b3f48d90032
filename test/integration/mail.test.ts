/** Mail over SMTP to a real mail server (smtp-server), read back by another's parser (postal-mime). */
import assert from 'node:assert/strict';
import { before, describe, test, type TestContext } from 'node:test';
import { smtpMailer, type SmtpOptions } from '../../actors/mail/smtp.ts';
import type { Mail, Mailer } from '../../actors/mail/mailer.ts';
import { invitation, signInCode } from '../../actors/mail/templates.ts';
import { CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { certificateFor, type ServerCertificate } from '../harness/certificate.ts';
import { recorder } from '../harness/log.ts';
import { startSmtp, type SmtpOptions as ServerOptions, type SmtpReceiver } from '../harness/smtp.ts';

let certificate: ServerCertificate;
let stranger: ServerCertificate;
before(async () => {
  certificate = await certificateFor(['localhost']);
  stranger = await certificateFor(['mail.example.com'], false);
});

const mail = (more: Partial<Mail> = {}): Mail => ({ id: '01JTESTMAIL', to: 'ann@example.com', subject: 'Hello', text: 'Hi Ann.\n', ...more });

interface Pair {
  readonly server: SmtpReceiver;
  readonly mailer: Mailer;
  readonly log: ReturnType<typeof recorder>;
}

const pair = async (t: TestContext, server: ServerOptions = {}, client: Partial<Omit<SmtpOptions, 'smtp'>> & { readonly smtp?: Partial<SmtpOptions['smtp']> } = {}): Promise<Pair> => {
  const receiver = await startSmtp(server);
  const log = recorder();
  const { smtp, ...more } = client;
  const mailer = smtpMailer({
    from: 'Troupe <no-reply@troupe.example>', log, ...more,
    smtp: { host: '127.0.0.1', port: receiver.port, secure: false, ...smtp },
  });
  t.after(async () => {
    mailer.close();
    await receiver.stop();
  });
  return { server: receiver, mailer, log };
};

const refused = async (sending: Promise<void>): Promise<CodedError> => {
  const error: unknown = await sending.then(() => assert.fail('it was sent'), (cause: unknown) => cause);
  assert.ok(error instanceof CodedError, String(error));
  return error;
};

test('mail - a mail arrives as it was written: sender, recipient, subject of any script, both parts, Message-ID of its id', async (t) => {
  const { server, mailer } = await pair(t);
  await mailer.send(mail({ subject: 'Grüße aus Köln, 東京', text: 'Zeile 1\n.\nZeile 3 – ende\n', html: '<p>Zeile 1</p>' }));
  const [got] = server.mails;
  assert.equal(got?.from, 'no-reply@troupe.example');
  assert.deepEqual(got.to, ['ann@example.com']);
  assert.deepEqual(got.email.from, { name: 'Troupe', address: 'no-reply@troupe.example' });
  assert.deepEqual(got.email.to?.map((to) => to.address), ['ann@example.com']);
  assert.equal(got.email.subject, 'Grüße aus Köln, 東京');
  assert.equal(got.email.text?.trim(), 'Zeile 1\n.\nZeile 3 – ende');
  assert.equal(got.email.html?.trim(), '<p>Zeile 1</p>');
  assert.equal(got.email.messageId, '<01JTESTMAIL@troupe.example>');
  assert.equal(got.email.headers.find(({ key }) => key === 'auto-submitted')?.value, 'auto-generated');
});

test('mail - a repeat under the same id has the same Message-ID', async (t) => {
  const { server, mailer } = await pair(t);
  await mailer.send(mail());
  await mailer.send(mail());
  await mailer.send(mail({ id: 'another' }));
  assert.deepEqual(server.mails.map(({ email }) => email.messageId), ['<01JTESTMAIL@troupe.example>', '<01JTESTMAIL@troupe.example>', '<another@troupe.example>']);
  assert.equal(server.connections, 1, 'the pool keeps its connection');
});

test('mail - the sign-in code reaches the text a person reads, and no header', async (t) => {
  const { server, mailer } = await pair(t);
  await mailer.send(mail({ ...signInCode({ code: '48151623', minutes: 10 }) }));
  const [got] = server.mails;
  assert.match(got?.email.text ?? '', /48151623/);
  assert.match(got?.email.html ?? '', /48151623/);
  assert.ok(got?.email.headers.every(({ value }) => !value.includes('48151623')));
});

test('mail - an invitation carries its link, and says that an account can be made', async (t) => {
  const { server, mailer } = await pair(t);
  const link = `https://troupe.example/invitation?token=${'a'.repeat(120)}&x=1`;
  await mailer.send(mail({ ...invitation({ organization: 'Ärzte <b>& Co</b>', by: 'Ann', role: 'member', link, days: 14 }) }));
  const { email } = server.mails[0] ?? assert.fail('nothing came');
  assert.equal(email.subject, 'Invitation to Ärzte <b>& Co</b> on Troupe');
  assert.ok(email.text?.includes(link), 'the link in one piece');
  assert.match(email.text ?? '', /If you have no account yet, you can make one/);
  assert.ok(email.html?.includes(`href="${link.replaceAll('&', '&amp;')}"`));
  assert.ok(!email.html?.includes('<b>'), 'a name is no markup');
});

describe('mail - header injection', () => {
  for (const [what, wrong] of [
    ['a line break in the recipient', { to: 'ann@example.com\r\nBcc: eve@example.com' }],
    ['a line break after the recipient', { to: 'ann@example.com\n' }],
    ['two recipients', { to: 'ann@example.com, eve@example.com' }],
    ['a recipient with a name', { to: 'Eve <eve@example.com>' }],
    ['a recipient with a command', { to: 'ann@example.com> NOTIFY=SUCCESS' }],
    ['a look-alike domain', { to: 'ann@exаmple.com' }],
    ['a line break in the subject', { subject: 'Hello\r\nBcc: eve@example.com' }],
    ['a bare line feed in the subject', { subject: 'Hello\nBcc: eve@example.com' }],
    ['a line separator in the subject', { subject: 'Hello\u2028Bcc: eve@example.com' }],
    ['a line break in the id', { id: 'x>\r\nBcc: eve@example.com' }],
    ['an id that would end the Message-ID', { id: 'x@y>' }],
    ['a subject that is too long', { subject: 'x'.repeat(limits.mailSubjectMaxChars + 1) }],
    ['a text that is too long', { text: 'x'.repeat(limits.mailTextMaxBytes + 1) }],
  ] as const) {
    test(`mail - ${what} is refused before a server is asked`, async (t) => {
      const { server, mailer } = await pair(t);
      assert.equal((await refused(mailer.send(mail(wrong)))).code, 'mail_refused');
      assert.equal(server.connections, 0);
    });
  }

  test('mail - what stands in the text adds no header and does not end the mail', async (t) => {
    const { server, mailer } = await pair(t);
    const text = 'Hi\r\n.\r\nMAIL FROM:<eve@example.com>\r\n\r\nBcc: eve@example.com\n';
    await mailer.send(mail({ text }));
    await mailer.send(mail({ id: 'second' }));
    assert.equal(server.mails.length, 2);
    assert.equal(server.mails[0]?.email.text?.replaceAll('\r\n', '\n').trim(), text.replaceAll('\r\n', '\n').trim());
    assert.ok(server.mails.every(({ to }) => to.length === 1));
  });
});

describe('mail - what the server answers', () => {
  for (const [stage, code, expected] of [
    ['rcpt', 550, 'mail_refused'], ['rcpt', 450, 'mail_unavailable'], ['mail', 553, 'mail_refused'], ['mail', 451, 'mail_unavailable'],
    ['data', 554, 'mail_refused'], ['data', 452, 'mail_unavailable'], ['connect', 554, 'mail_unavailable'], ['connect', 421, 'mail_unavailable'],
    ['mail', 530, 'mail_unavailable'],
  ] as const) {
    test(`mail - ${code} at ${stage} is ${expected}, and the next mail goes through`, async (t) => {
      const { server, mailer, log } = await pair(t);
      server.fault(stage, code);
      const error = await refused(mailer.send(mail()));
      assert.equal(error.code, expected);
      assert.equal(error.entry.kind, expected === 'mail_refused' ? 'refusal' : 'fault');
      assert.equal(log.lines.length, 1);
      const said = JSON.stringify([error.message, error.details, error.cause, log.lines]);
      assert.ok(!said.includes('ann@example.com') && !said.includes('for the test'), 'neither the address nor the server\'s words');
      server.fault(stage, undefined);
      await mailer.send(mail());
      assert.equal(server.mails.length, 1);
    });
  }

  test('mail - a server that is not there is mail_unavailable', async (t) => {
    const { server, mailer } = await pair(t);
    await server.stop();
    assert.equal((await refused(mailer.send(mail()))).code, 'mail_unavailable');
  });

  test('mail - a server that never answers a mail ends at the mail\'s deadline', async (t) => {
    const { server, mailer } = await pair(t, {}, { deadlineMs: 300 });
    server.fault('data', 'stall');
    assert.equal((await refused(mailer.send(mail()))).code, 'mail_unavailable');
    assert.equal(server.mails.length, 0);
  });

  test('mail - an aborted effect ends its mail at once', async (t) => {
    const { server, mailer } = await pair(t);
    server.fault('rcpt', 'stall');
    const stalled = server.stalled();
    const controller = new AbortController();
    const sending = refused(mailer.send(mail(), controller.signal));
    await stalled;
    controller.abort();
    assert.equal((await sending).code, 'aborted');
    assert.equal((await refused(mailer.send(mail(), controller.signal))).code, 'aborted');
  });

  test('mail - mails that were given up free their connections', async (t) => {
    const { server, mailer } = await pair(t);
    server.fault('rcpt', 'stall');
    for (let i = 0; i < limits.mailConnectionsMax + 1; i++) {
      const stalled = server.stalled();
      const controller = new AbortController();
      const sending = refused(mailer.send(mail({ id: `m${i}` }), controller.signal));
      await stalled;
      controller.abort();
      assert.equal((await sending).code, 'aborted');
    }
    server.fault('rcpt', undefined);
    await mailer.send(mail({ id: 'last' }));
    assert.deepEqual(server.mails.map(({ email }) => email.messageId), ['<last@troupe.example>']);
  });

  test('mail - a closed mailer fails what is under way and takes no more', async (t) => {
    const { server, mailer } = await pair(t);
    server.fault('rcpt', 'stall');
    const stalled = server.stalled();
    const sending = refused(mailer.send(mail()));
    await stalled;
    mailer.close();
    assert.equal((await sending).code, 'mail_unavailable');
    assert.equal((await refused(mailer.send(mail()))).code, 'mail_unavailable');
  });

  test('mail - more than the bound waiting are refused, and the waiting ones arrive', async (t) => {
    const { server, mailer } = await pair(t);
    const sendings = Array.from({ length: limits.mailsWaitingMax + 3 }, (_, i) => mailer.send(mail({ id: `m${i}` })).then(() => 'sent', (error: unknown) => error instanceof CodedError ? error.code : 'bug'));
    const ends = await Promise.all(sendings);
    assert.equal(ends.filter((end) => end === 'sent').length, limits.mailsWaitingMax);
    assert.deepEqual(ends.slice(-3), ['mail_unavailable', 'mail_unavailable', 'mail_unavailable']);
    assert.equal(server.mails.length, limits.mailsWaitingMax);
    assert.ok(server.connections <= limits.mailConnectionsMax + Math.ceil(limits.mailsWaitingMax / limits.mailsPerConnectionMax));
  });
});

describe('mail - TLS', () => {
  const login = { user: 'troupe', password: 'correct horse' };

  test('mail - STARTTLS with the given authority, login over it', async (t) => {
    const { server, mailer } = await pair(t, { certificate, login }, { ca: certificate.cert, password: login.password, smtp: { host: 'localhost', user: login.user } });
    await mailer.send(mail());
    assert.equal(server.mails[0]?.secure, true);
    assert.equal(server.mails[0].user, 'troupe');
  });

  test('mail - TLS from the first byte', async (t) => {
    const { server, mailer } = await pair(t, { certificate, secure: true }, { ca: certificate.cert, smtp: { secure: true } });
    await mailer.send(mail());
    assert.equal(server.mails[0]?.secure, true);
  });

  test('mail - a server that takes STARTTLS away gets no mail', async (t) => {
    const { server, mailer } = await pair(t, { plain: true }, { ca: certificate.cert });
    assert.equal((await refused(mailer.send(mail()))).code, 'mail_unavailable');
    assert.equal(server.mails.length, 0);
  });

  test('mail - a certificate of an unknown authority, or of another name, is not believed', async (t) => {
    const unknown = await pair(t, { certificate, secure: true }, { smtp: { secure: true } });
    assert.equal((await refused(unknown.mailer.send(mail()))).code, 'mail_unavailable');
    const other = await pair(t, { certificate: stranger, secure: true }, { ca: stranger.cert, smtp: { secure: true } });
    assert.equal((await refused(other.mailer.send(mail()))).code, 'mail_unavailable');
    assert.equal(unknown.server.mails.length + other.server.mails.length, 0);
  });

  test('mail - a wrong password is a fault that the operator can repair, and is not said', async (t) => {
    const { mailer, log } = await pair(t, { certificate, login }, { ca: certificate.cert, password: 'wrong battery', smtp: { host: 'localhost', user: login.user } });
    const error = await refused(mailer.send(mail()));
    assert.equal(error.code, 'mail_unavailable');
    assert.match(error.message, /EAUTH 535/);
    assert.ok(!JSON.stringify([error.message, log.lines]).includes('battery'));
  });
});

