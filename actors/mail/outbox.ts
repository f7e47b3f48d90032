/**
 * Mail in development: kept in a folder in place of being sent, one JSON file per mail (contracts/mail.ts), for `npm start` to show.
 *
 * Guarantees: folder 0700, files 0600; a file is there whole or not at all; a repeat under the same id replaces the file; at most
 * `limits.outboxMailsMax` are kept, the newest. Several processes may share the folder.
 */
import { randomBytes } from 'node:crypto';
import { chmod, mkdir, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { OutboxMail } from '../../contracts/mail.ts';
import { checkMail, messageIdOf, senderOf, type Mailer } from './mailer.ts';

export interface OutboxOptions {
  readonly from: string;
  readonly path: string;
  /** Unix milliseconds. */
  readonly now: () => number;
}

const mailFile = /^[A-Za-z0-9_-]{1,128}\.json$/;
const isGone = (error: unknown): boolean => error instanceof Error && 'code' in error && error.code === 'ENOENT';

/** Deletes the oldest beyond the bound. What another process deletes meanwhile is gone all the same. */
const prune = async (path: string): Promise<void> => {
  const names = (await readdir(path)).filter((name) => mailFile.test(name));
  if (names.length <= limits.outboxMailsMax) return;
  const aged = await Promise.all(names.map(async (name) => {
    try {
      return { name, at: (await stat(join(path, name))).mtimeMs };
    } catch (error) {
      if (isGone(error)) return { name, at: Number.NEGATIVE_INFINITY };
      throw error;
    }
  }));
  const old = aged.toSorted((a, b) => b.at - a.at).slice(limits.outboxMailsMax);
  await Promise.all(old.map(async ({ name }) => rm(join(path, name), { force: true })));
};

/** The mailer that keeps mails in a folder, which it makes. Throws as `Mailer.send` says; `mail_unavailable` when the folder cannot be written. */
export const outboxMailer = ({ from, path, now }: OutboxOptions): Mailer => {
  const sender = senderOf(from);
  const keep = async (mail: OutboxMail): Promise<void> => {
    await mkdir(path, { recursive: true, mode: 0o700 });
    // Also where it was there before.
    await chmod(path, 0o700);
    const unfinished = join(path, `.${mail.id}.${randomBytes(6).toString('hex')}`);
    await writeFile(unfinished, `${JSON.stringify(mail, undefined, 2)}\n`, { mode: 0o600, flag: 'wx' });
    await rename(unfinished, join(path, `${mail.id}.json`));
    await prune(path);
  };
  return {
    send: async (mail, signal) => {
      checkMail(mail);
      if (signal?.aborted === true) throw coded('aborted');
      const { id, to, subject, text, html } = mail;
      try {
        await keep({ id, message_id: messageIdOf(id, sender), at: now(), from, to, subject, text, ...(html === undefined ? {} : { html }) });
      } catch (cause) {
        const code = cause instanceof Error && 'code' in cause ? String(cause.code) : 'unknown error';
        throw coded('mail_unavailable', `The outbox cannot be written (${code}).`, { cause });
      }
    },
    close: () => undefined,
  };
};
