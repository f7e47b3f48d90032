/**
 * Real daemons with the platform configured, asked over the link as a gateway would, without one: for tests of what the daemon decides.
 * Real nats-server and Postgres; mails in an outbox folder; everything ends with the test.
 */
import assert from 'node:assert/strict';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { signedIn, tokenAnswer } from '../../contracts/auth-routes.ts';
import { answerHeaders, cookieNames, platformAnswer, type AnswerHeaders } from '../../contracts/platform.ts';
import { platformRouteList } from '../../contracts/platform-routes.ts';
import type { DaemonInput } from '../../deploy/start/config-files.ts';
import type { Link } from '../../gateway/link.ts';
import { startDaemons, type TestDaemons } from './daemon.ts';
import { openOutbox, type Outbox } from './outbox.ts';
import { startPostgres, type PostgresServer } from './postgres.ts';
import type { TestScope } from './stack.ts';

export interface CallOptions {
  /** Bearer or value of the session cookie. */
  readonly token?: string;
  readonly csrf?: string;
  readonly ip?: string;
  readonly query?: unknown;
  readonly body?: unknown;
  /** Which daemon. Default: any. */
  readonly daemon?: number;
}

export interface CallReply {
  readonly status: number;
  /** Of a success; empty otherwise. */
  readonly headers: AnswerHeaders;
  readonly json: unknown;
  /** `code` of an error. */
  readonly code: string | undefined;
}

export interface SignedUp {
  readonly email: string;
  readonly userId: string;
  readonly cookie: string;
  readonly csrf: string;
  readonly accessToken: string;
}

export interface TestAccounts extends Omit<TestDaemons, 'link' | 'ask' | 'token' | 'client'> {
  readonly baseUrl: string;
  readonly outbox: Outbox;
  readonly postgres: PostgresServer;
  /** PEM, SPKI, of the signing key. */
  readonly publicKeyPem: string;
  readonly signingKeyPem: string;
  call(routeId: string, options?: CallOptions): Promise<CallReply>;
  /** Resolves when this daemon, started again, can be asked again. */
  reached(daemon: number): Promise<void>;
  /** Asks for a code and takes it from the mail. */
  code(email: string, ip?: string): Promise<string>;
  signUp(email: string): Promise<SignedUp>;
  /** A pair of tokens of the api-token page. */
  apiToken(person: SignedUp): Promise<{ readonly token: string; readonly refreshToken: string }>;
}

const errorBody = z.object({ code: z.string() });
const session = z.object({ csrf: z.string() });
const pair = z.object({ token: z.string(), refresh_token: z.string() });

/** The cookie's value of a Set-Cookie line. */
export const cookieValue = (headers: AnswerHeaders): string => {
  const line = headers['set-cookie']?.find((l) => l.startsWith(`${cookieNames.session}=`));
  return line?.slice(cookieNames.session.length + 1).split(';')[0] ?? '';
};

/** The reply's JSON by a schema; its status must be this. */
export const got = <S extends z.ZodType>(reply: CallReply, status: number, schema: S): z.output<S> => {
  assert.equal(reply.status, status, JSON.stringify(reply.json));
  return schema.parse(reply.json);
};

export const startAccounts = async (scope: TestScope, options: { readonly count?: number; readonly config?: Partial<Omit<DaemonInput, 'platform'>>; readonly platform?: Partial<NonNullable<DaemonInput['platform']>> } = {}): Promise<TestAccounts> => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-accounts-'));
  const postgres = await startPostgres();
  const outbox = await openOutbox(join(folder, 'outbox'));
  const ends: (() => Promise<void>)[] = [];
  scope.after(async () => {
    for (const end of ends.toReversed()) await end();
    await postgres.stop();
    await rm(folder, { recursive: true, force: true });
  });
  const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const signingKeyPem = keys.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
  await writeFile(join(folder, 'signing.key'), signingKeyPem, { mode: 0o600 });
  await writeFile(join(folder, 'postgres.url'), postgres.url, { mode: 0o600 });
  const baseUrl = `https://${randomBytes(4).toString('hex')}.example`;
  // Its own end runs before that of the database.
  const daemons = await startDaemons({ after: (end) => void ends.push(end), get passed() { return scope.passed ?? true; }, diagnostic: (text) => scope.diagnostic?.(text) }, {
    count: options.count ?? 1,
    config: {
      postgres: { url_path: join(folder, 'postgres.url') }, mail: { from: 'no-reply@troupe.example', outbox_path: outbox.path }, ...options.config,
      platform: { base_url: baseUrl, signing_key_path: join(folder, 'signing.key'), ...options.platform },
    },
  });
  const all = await daemons.link();
  const each: Link[] = [];
  for (const daemon of daemons.daemons) each.push(await daemons.link({ socketPath: daemon.socketPath, count: 1 }));

  const call = async (routeId: string, { token = '', csrf, ip = '192.0.2.1', query, body, daemon }: CallOptions = {}): Promise<CallReply> => {
    const route = platformRouteList.find(({ id }) => id === routeId);
    const link = daemon === undefined ? all : each[daemon];
    assert.ok(route !== undefined && link !== undefined, routeId);
    const context = { ip, user_agent: 'test', ...(csrf === undefined ? {} : { csrf }) };
    const answer = await link.request(route, { token, body: JSON.stringify({ context, query, body: body ?? (route.body === undefined ? undefined : {}) }) });
    const json: unknown = JSON.parse(answer.body.toString());
    if (route.answers[answer.status] === undefined) return { status: answer.status, headers: {}, json, code: errorBody.parse(json).code };
    const { headers, text } = platformAnswer.parse(json);
    return { status: answer.status, headers: answerHeaders.parse(headers), json: text === '' ? undefined : JSON.parse(text), code: undefined };
  };
  const code = async (email: string, ip?: string): Promise<string> => {
    const reply = await call('email_start', { body: { email }, ...(ip === undefined ? {} : { ip }) });
    assert.equal(reply.status, 202, JSON.stringify(reply.json));
    const { text } = await outbox.next(email, /sign-in code/);
    return /(?<!\d)\d{8}(?!\d)/.exec(text)?.[0] ?? '';
  };
  const signUp = async (email: string): Promise<SignedUp> => {
    const verified = await call('email_verify', { body: { email, code: await code(email) } });
    const { user } = got(verified, 200, signedIn);
    const cookie = cookieValue(verified.headers);
    const { csrf } = got(await call('session', { token: cookie }), 200, session);
    const { access_token: accessToken } = got(await call('session_token', { token: cookie, csrf }), 200, tokenAnswer);
    return { email, userId: user.id, cookie, csrf, accessToken };
  };
  const until = (link: Link, count: () => number): Promise<void> => new Promise((resolve) => {
    const look = (connected: number): void => {
      if (connected < count()) return;
      stop();
      resolve();
    };
    const stop = link.onState(({ connected }) => look(connected));
    look(link.state().connected);
  });
  const reached = async (daemon: number): Promise<void> => {
    const link = each[daemon];
    assert.ok(link !== undefined);
    await until(link, () => 1);
    // Calls that name no daemon go over a link of their own.
    await until(all, () => daemons.daemons.filter(({ running }) => running).length);
  };
  return {
    ...daemons, baseUrl, reached, outbox, postgres, signingKeyPem, publicKeyPem: keys.publicKey.export({ type: 'spki', format: 'pem' }).toString(), call, code, signUp,
    apiToken: async ({ cookie, csrf }) => {
      const { token, refresh_token: refreshToken } = got(await call('make_api_token', { token: cookie, csrf }), 200, pair);
      return { token, refreshToken };
    },
  };
};
