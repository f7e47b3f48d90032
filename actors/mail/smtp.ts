/**
 * Mail over SMTP (nodemailer, a pool of connections).
 *
 * Guarantees: TLS with a checked certificate, from the first byte or by STARTTLS, before credentials or a mail are sent; without TLS only
 * towards this machine (a local relay), and there STARTTLS is used only when its certificate authority is given. Every mail has a deadline
 * (`limits.mailDeadlineMs`), the number waiting is bounded. Mail contents are never read from files or URLs. Neither addresses nor texts
 * nor the server's words are logged or thrown, only codes.
 */
import { rootCertificates } from 'node:tls';
import { createTransport } from 'nodemailer';
import type { DaemonConfig } from '../../contracts/config.ts';
import { coded, type CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { Log } from '../runtime/log.ts';
import { isLoopback } from './loopback.ts';
import { checkMail, messageIdOf, senderOf, type Mailer } from './mailer.ts';

type MailConfig = NonNullable<DaemonConfig['mail']>;

export interface SmtpOptions {
  readonly from: MailConfig['from'];
  readonly smtp: NonNullable<MailConfig['smtp']>;
  /** Text of `smtp.password_path`. */
  readonly password?: string | undefined;
  /** Text of `smtp.ca_path`. */
  readonly ca?: string | undefined;
  readonly log: Log;
  /** Milliseconds one mail may take. Default `limits.mailDeadlineMs`. */
  readonly deadlineMs?: number;
}

/** What nodemailer says of a failure. */
interface Failure {
  readonly code: string;
  readonly responseCode: number | undefined;
  readonly permanent: boolean | undefined;
}

const failureOf = (error: unknown): Failure | undefined => {
  if (!(error instanceof Error) || !('code' in error) || typeof error.code !== 'string') return undefined;
  const responseCode = 'responseCode' in error && typeof error.responseCode === 'number' ? error.responseCode : undefined;
  const permanent = 'permanent' in error && typeof error.permanent === 'boolean' ? error.permanent : undefined;
  return { code: error.code, responseCode, permanent };
};

/** Answers about this client's rights, not about the mail (RFC 4954 section 6): the operator can repair them. */
const aboutAuthentication: ReadonlySet<number> = new Set([530, 534, 535, 538]);

/** Refused for good = the server answered for this mail or its recipient, with a 5xx, or the mail cannot be put into SMTP at all. */
const isRefusal = ({ code, responseCode, permanent }: Failure): boolean =>
  (code === 'EENVELOPE' || code === 'EMESSAGE') && permanent !== false && (responseCode === undefined || !aboutAuthentication.has(responseCode));

/** The mailer for a mail server. */
export const smtpMailer = ({ from, smtp, password, ca, log, deadlineMs = limits.mailDeadlineMs }: SmtpOptions): Mailer => {
  const sender = senderOf(from);
  const plain = !smtp.secure && ca === undefined && isLoopback(smtp.host);
  const transport = createTransport({
    pool: true, host: smtp.host, port: smtp.port,
    secure: smtp.secure, ...(plain ? { ignoreTLS: true } : { requireTLS: !smtp.secure }),
    tls: { rejectUnauthorized: true, minVersion: 'TLSv1.2', ...(ca === undefined ? {} : { ca: [...rootCertificates, ca] }) },
    ...(smtp.user === undefined ? {} : { auth: { user: smtp.user, pass: password ?? '' } }),
    maxConnections: limits.mailConnectionsMax, maxMessages: limits.mailsPerConnectionMax,
    // Repeating is the caller's: its actor remembers, a pool does not.
    maxRequeues: 0,
    connectionTimeout: limits.mailConnectMs, greetingTimeout: limits.mailConnectMs, dnsTimeout: limits.mailConnectMs, socketTimeout: limits.mailSilenceMs,
    maxResponseSize: limits.mailAnswerMaxBytes,
    disableFileAccess: true, disableUrlAccess: true,
  });
  let waiting = 0;
  let closed = false;

  const translate = (error: unknown, id: string, signal: AbortSignal | undefined): CodedError => {
    if (signal?.aborted === true) return coded('aborted');
    const failure = failureOf(error);
    if (failure === undefined) throw error;
    const { code, responseCode } = failure;
    const refused = isRefusal(failure);
    log.warn({ mail: id, code, response: responseCode }, refused ? 'mail refused' : 'mail not sent');
    const because = responseCode === undefined ? code : `${code} ${responseCode}`;
    return refused ? coded('mail_refused', `The mail server refused this mail for good (${because}).`) : coded('mail_unavailable', `Mail cannot be sent at the moment (${because}).`);
  };

  return {
    send: async (mail, signal) => {
      checkMail(mail);
      if (signal?.aborted === true) throw coded('aborted');
      if (closed || waiting >= limits.mailsWaitingMax) throw coded('mail_unavailable', closed ? 'The mailer is closed.' : 'Too many mails are waiting.');
      waiting += 1;
      // A server that sends a byte now and then is never silent: only a deadline ends it.
      const deadline = AbortSignal.timeout(deadlineMs);
      try {
        await transport.sendMail({
          // As objects: an address is not parsed again, and cannot become a list.
          from: { name: sender.name, address: sender.address }, to: { name: '', address: mail.to },
          subject: mail.subject, text: mail.text, ...(mail.html === undefined ? {} : { html: mail.html }),
          messageId: messageIdOf(mail.id, sender), headers: { 'Auto-Submitted': 'auto-generated' },
          disableFileAccess: true, disableUrlAccess: true,
          signal: signal === undefined ? deadline : AbortSignal.any([signal, deadline]),
        });
      } catch (error) {
        throw translate(error, mail.id, signal);
      } finally {
        waiting -= 1;
      }
    },
    close: () => {
      closed = true;
      transport.close({ force: true });
    },
  };
};
