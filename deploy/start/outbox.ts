/**
 * Mail in development: what the daemon puts into its outbox is printed by the start and shown on a page of this machine.
 *
 * Guarantee: the page answers on 127.0.0.1 only, to requests that name it so (no page of another site can have a name resolve to it),
 * runs no script and shows a mail's text, never its HTML.
 */
import { mkdirSync, watch } from 'node:fs';
import { createServer } from 'node:http';
import type { OutboxMail } from '../../contracts/mail.ts';
import { readOutbox } from './account.ts';
import type { Say } from './say.ts';

export interface OutboxPage {
  readonly url: string;
  close(): void;
}

/** Lines of a mail that are printed; the page shows it whole. */
const printedLines = 12;

const escapes: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const escape = (text: string): string => text.replace(/[&<>"]/g, (char) => escapes[char] ?? char);

const page = (mails: readonly OutboxMail[]): string => `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Mail in development</title><style>:root{color-scheme:light dark}body{font:16px/1.5 system-ui;max-width:44rem;margin:2rem auto;padding:0 1rem}
article{border-top:1px solid #8888;padding:1rem 0}pre{white-space:pre-wrap;overflow-wrap:anywhere;font:inherit}</style>
<h1>Mail in development</h1><p>Kept here in place of being sent, newest first. Reload to see what came.</p>${
  mails.map((mail) => `<article><h2>${escape(mail.subject)}</h2><p>To ${escape(mail.to)}, <time>${new Date(mail.at).toISOString()}</time></p><pre>${escape(mail.text)}</pre></article>`).join('')
  || '<p>There is none yet.</p>'}</html>`;

/** Shows the folder's mails on `port` and says each new one. `quiet` addresses are not said. Rejects when the port is taken. */
export const showOutbox = async (options: { readonly path: string; readonly port: number; readonly say: Say; readonly quiet: readonly string[] }): Promise<OutboxPage> => {
  const { path, port, say } = options;
  mkdirSync(path, { recursive: true, mode: 0o700 });
  const seen = new Set((await readOutbox(path)).map((mail) => mail.id));
  const look = async (): Promise<void> => {
    for (const mail of (await readOutbox(path)).toReversed()) {
      if (seen.has(mail.id)) continue;
      seen.add(mail.id);
      if (options.quiet.includes(mail.to)) continue;
      const lines = mail.text.split('\n').filter((line) => line.trim() !== '').slice(0, printedLines);
      say.progress(`Mail to ${mail.to}: ${mail.subject}\n${lines.map((line) => `      ${line}`).join('\n')}`);
    }
  };
  let looking = Promise.resolve();
  const watcher = watch(path, () => {
    looking = looking.then(look).catch((error: unknown) => say.warn(`The outbox could not be read: ${error instanceof Error ? error.message : String(error)}`));
  });
  const hosts = new Set([`127.0.0.1:${port}`, `localhost:${port}`]);
  const server = createServer((request, response) => {
    if (!hosts.has(request.headers.host ?? '') || request.method !== 'GET') {
      response.writeHead(403).end();
      return;
    }
    readOutbox(path).then(
      (mails) => response.writeHead(200, {
        'content-type': 'text/html; charset=utf-8', 'cache-control': 'no-store', 'x-content-type-options': 'nosniff',
        'content-security-policy': "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
      }).end(page(mails)),
      () => response.writeHead(500).end(),
    );
  });
  const listening = Promise.withResolvers<void>();
  server.once('error', listening.reject);
  server.listen(port, '127.0.0.1', () => listening.resolve());
  await listening.promise;
  return {
    url: `http://127.0.0.1:${port}/`,
    close: () => {
      watcher.close();
      server.close();
      server.closeAllConnections();
    },
  };
};
