/**
 * The development account: signed up by the product's own routes at the first start (e-mail code out of the outbox, legal acceptance,
 * token page, organization, API key), kept in `.troupe/account.json` (0600) and used again.
 *
 * Guarantee: nothing here knows a secret of the daemon; what it does, any person's browser could. A kept account that the platform
 * does not know any more (its data was removed) is made anew.
 */
import { existsSync, mkdirSync, readFileSync, watch } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { rootCertificates } from 'node:tls';
import { Agent, fetch } from 'undici';
import { z } from 'zod';
import { limits } from '../../contracts/limits.ts';
import { outboxMail, type OutboxMail } from '../../contracts/mail.ts';
import { writePrivate } from './folder.ts';

export const devEmail = 'dev@troupe.localhost';
const devSlug = 'dev';

const kept = z.strictObject({
  userId: z.string(), email: z.string(), accessToken: z.string(), refreshToken: z.string(),
  org: z.strictObject({ id: z.string(), slug: z.string(), apiKey: z.string() }),
});
export type DevAccount = z.infer<typeof kept>;

export interface AccountPlace {
  readonly baseUrl: string;
  readonly caPem: string;
  readonly outboxPath: string;
  readonly keptPath: string;
}

export const readKept = (path: string): DevAccount | undefined => {
  if (!existsSync(path)) return undefined;
  const parsed = kept.safeParse(JSON.parse(readFileSync(path, 'utf8')));
  return parsed.success ? parsed.data : undefined;
};

interface Answer {
  readonly status: number;
  readonly body: unknown;
  readonly cookies: readonly string[];
}

/** The mails of a folder, newest first. What is not one of ours is left out. */
export const readOutbox = async (path: string): Promise<readonly OutboxMail[]> => {
  const names = (await readdir(path)).filter((name) => name.endsWith('.json') && !name.startsWith('.'));
  const mails = await Promise.all(names.map(async (name) => {
    // Pruned meanwhile, or not a mail: nothing to show.
    const text = await readFile(join(path, name), 'utf8').catch(() => 'null');
    const parsed = outboxMail.safeParse(JSON.parse(text));
    return parsed.success ? [parsed.data] : [];
  }));
  return mails.flat().toSorted((a, b) => b.at - a.at);
};

/** The first mail to an address at or after a time; waits for it. Throws when it does not come within `limits.startReadyMs`. */
const mailTo = async (path: string, to: string, fromMs: number): Promise<OutboxMail> => {
  const signal = AbortSignal.timeout(limits.startReadyMs);
  for (;;) {
    // Armed before the look, so that what comes between is seen.
    const changed = new Promise<void>((resolve) => {
      const watcher = watch(path, { signal }, () => {
        watcher.close();
        resolve();
      });
      watcher.on('error', () => resolve());
      signal.addEventListener('abort', () => resolve(), { once: true });
    });
    const found = (await readOutbox(path)).find((mail) => mail.to === to && mail.at >= fromMs);
    if (found !== undefined) return found;
    if (signal.aborted) throw new Error('the mail with the sign-in code did not come');
    await changed;
  }
};

/** The development account of this Troupe. Throws a sentence naming the step that failed. */
export const ensureAccount = async (place: AccountPlace): Promise<DevAccount> => {
  const agent = new Agent({ connect: { ca: [...rootCertificates, place.caPem] } });
  const ask = async (method: string, path: string, given: { readonly body?: object; readonly token?: string; readonly cookie?: string; readonly csrf?: string } = {}): Promise<Answer> => {
    const answer = await fetch(place.baseUrl + path, {
      method, dispatcher: agent, redirect: 'error', signal: AbortSignal.timeout(limits.clientRequestMs),
      headers: {
        accept: 'application/json',
        ...(given.body === undefined ? {} : { 'content-type': 'application/json' }),
        ...(given.token === undefined ? {} : { authorization: `Bearer ${given.token}` }),
        ...(given.cookie === undefined ? {} : { cookie: given.cookie }),
        ...(given.csrf === undefined ? {} : { 'x-csrf-token': given.csrf }),
      },
      ...(given.body === undefined ? {} : { body: JSON.stringify(given.body) }),
    });
    const text = await answer.text();
    return { status: answer.status, body: text === '' ? undefined : JSON.parse(text), cookies: answer.headers.getSetCookie() };
  };
  const need = async <S extends z.ZodType>(schema: S, method: string, path: string, given: Parameters<typeof ask>[2] = {}): Promise<z.output<S>> => {
    const { status, body } = await ask(method, path, given);
    if (status < 200 || status > 299) throw new Error(`${method} ${path} answered ${status} ${JSON.stringify(body)}`);
    return schema.parse(body);
  };
  const signUp = async (): Promise<{ readonly cookie: string; readonly csrf: string; readonly userId: string }> => {
    mkdirSync(place.outboxPath, { recursive: true, mode: 0o700 });
    const fromMs = Date.now();
    await need(z.unknown(), 'POST', '/api/auth/email/start', { body: { email: devEmail } });
    const [code = ''] = /\b\d{8}\b/.exec((await mailTo(place.outboxPath, devEmail, fromMs)).text) ?? [];
    const verified = await ask('POST', '/api/auth/email/verify', { body: { email: devEmail, code } });
    const cookie = verified.cookies[0]?.split(';')[0];
    if (verified.status !== 200 || cookie === undefined) throw new Error(`the sign-in code was answered with ${verified.status}`);
    const session = await need(z.object({ user: z.object({ id: z.string() }), csrf: z.string() }), 'GET', '/api/auth/session', { cookie });
    return { cookie, csrf: session.csrf, userId: session.user.id };
  };

  try {
    const before = readKept(place.keptPath);
    if (before !== undefined && (await ask('GET', '/api/auth/me', { token: before.accessToken })).status === 200) {
      const key = await ask('GET', `/api/organization?orgId=${before.org.id}`, { token: before.org.apiKey });
      if (key.status === 200 || key.status === 403) return before;
    }
    const { cookie, csrf, userId } = await signUp();
    const short = await need(z.object({ access_token: z.string() }), 'POST', '/api/auth/session/token', { cookie, csrf, body: {} });
    const manifest = await need(z.object({ hash: z.string() }), 'GET', '/api/legal/manifest');
    await need(z.unknown(), 'POST', '/api/legal/acceptance', { token: short.access_token, body: { hash: manifest.hash, terms: true, privacy: true, processing: true, age: true } });
    // After the acceptance, so that it stands for it.
    const made = await need(z.object({ token: z.string(), refresh_token: z.string() }), 'POST', '/api/auth/api-token', { cookie, csrf, body: {} });
    const token = made.token;
    const { organizations } = await need(z.object({ organizations: z.array(z.object({ id: z.string(), slug: z.string() })) }), 'GET', '/api/organization', { token });
    const org = organizations.find((o) => o.slug === devSlug)
      ?? await need(z.object({ id: z.string(), slug: z.string() }), 'POST', '/api/organization', { token, body: { name: 'Development', slug: devSlug } });
    const keys = await need(z.object({ keys: z.array(z.object({ id: z.string(), revokedAt: z.string().nullable() })) }), 'GET', `/api/organization/api-keys?orgId=${org.id}`, { token });
    // Keys of a start before, whose text is lost, count towards the plan.
    for (const key of keys.keys.filter((k) => k.revokedAt === null)) await need(z.unknown(), 'DELETE', '/api/organization/api-keys', { token, body: { orgId: org.id, id: key.id } });
    const { key: apiKey } = await need(z.object({ key: z.string() }), 'POST', '/api/organization/api-keys', { token, body: { orgId: org.id, name: 'npm start', scopes: ['*'] } });
    const account: DevAccount = { userId, email: devEmail, accessToken: token, refreshToken: made.refresh_token, org: { id: org.id, slug: org.slug, apiKey } };
    writePrivate(place.keptPath, `${JSON.stringify(account, null, 2)}\n`);
    return account;
  } finally {
    await agent.destroy();
  }
};
