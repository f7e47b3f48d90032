/** Mails in the outbox folder of daemons under test, waited for by watching the folder. */
import { watch } from 'node:fs';
import { mkdir, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { outboxMail, type OutboxMail } from '../../contracts/mail.ts';

/** Milliseconds: many stacks may be starting on two cores. */
const patienceMs = 30_000;

export interface Outbox {
  readonly path: string;
  /** All mails kept now, oldest first. */
  all(): Promise<OutboxMail[]>;
  /** The first mail to this address, with such a subject, that no earlier call has given, there already or to come. Rejects after half a minute. */
  next(to: string, subject?: RegExp): Promise<OutboxMail>;
}

export const openOutbox = async (path: string): Promise<Outbox> => {
  await mkdir(path, { recursive: true, mode: 0o700 });
  const given = new Set<string>();
  const all = async (): Promise<OutboxMail[]> => {
    const names = (await readdir(path)).filter((name) => name.endsWith('.json'));
    const mails = await Promise.all(names.map(async (name) => outboxMail.parse(JSON.parse(await readFile(join(path, name), 'utf8')))));
    return mails.toSorted((a, b) => a.at - b.at);
  };
  const next: Outbox['next'] = (to, subject = /^/) => new Promise((resolve, reject) => {
    let looking = Promise.resolve();
    let over = false;
    const end = (settle: () => void): void => {
      over = true;
      watcher.close();
      clearTimeout(timer);
      settle();
    };
    const look = async (): Promise<void> => {
      // A look that was still to come must not take the next mail, which nobody would get.
      if (over) return;
      const found = (await all()).find((mail) => mail.to === to && subject.test(mail.subject) && !given.has(mail.message_id));
      if (found === undefined) return;
      given.add(found.message_id);
      end(() => resolve(found));
    };
    // One look after the other; the watch is armed before the first, so that no mail falls between.
    const lookAgain = (): void => {
      looking = looking.then(look).catch((error: unknown) => end(() => reject(error instanceof Error ? error : new Error(String(error)))));
    };
    const watcher = watch(path, lookAgain);
    const timer = setTimeout(() => end(() => reject(new Error(`no mail to ${to} within ${patienceMs} ms`))), patienceMs);
    lookAgain();
  });
  return { path, all, next };
};
