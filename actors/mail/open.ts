/** The mailer that the configuration names: SMTP, the outbox of development, or none. */
import type { DaemonConfig } from '../../contracts/config.ts';
import type { Log } from '../runtime/log.ts';
import { noMailer, type Mailer } from './mailer.ts';
import { outboxMailer } from './outbox.ts';
import { smtpMailer } from './smtp.ts';

export interface MailerOptions {
  readonly config: DaemonConfig['mail'];
  /** Texts of the files that `mail.smtp.password_path` and `mail.smtp.ca_path` name. */
  readonly password?: string | undefined;
  readonly ca?: string | undefined;
  readonly log: Log;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** Opens no connection yet. Close it when the daemon stops. */
export const openMailer = ({ config, password, ca, log, now }: MailerOptions): Mailer => {
  if (config?.smtp !== undefined) return smtpMailer({ from: config.from, smtp: config.smtp, password, ca, log });
  if (config?.outbox_path !== undefined) return outboxMailer({ from: config.from, path: config.outbox_path, now });
  return noMailer;
};
