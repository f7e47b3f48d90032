/**
 * A whole Troupe with accounts for end-to-end tests: `startStack` with a real Postgres, the platform configured on every daemon and gateway,
 * its gateway tokens believed at the edge, mails kept in a folder, and a client that speaks to it as a browser or a program would, over TLS with the stack's own authority.
 *
 * Guarantee: as `startStack`: when the test ends nothing is left. All gateways serve the platform; `base_url` is the first one's.
 */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { IncomingHttpHeaders } from 'node:http';
import { Agent, request as httpsRequest } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { authRoutes, signedIn, tokenAnswer } from '../../contracts/auth-routes.ts';
import { cookieNames } from '../../contracts/platform.ts';
import type { DaemonInput, GatewayInput } from '../../deploy/start/config-files.ts';
import { freePort } from './port.ts';
import { openOutbox, type Outbox } from './outbox.ts';
import { startPostgres, type PostgresServer } from './postgres.ts';
import { startStack, type StackOptions, type TestScope, type TestStack } from './stack.ts';

export type Method = 'GET' | 'POST' | 'PATCH' | 'DELETE';

export interface ApiOptions {
  /** Bearer. */
  readonly token?: string;
  /** Value of the session cookie. */
  readonly cookie?: string;
  /** CSRF proof, sent as X-CSRF-Token. */
  readonly csrf?: string;
  readonly json?: unknown;
  /** Sent as application/json, byte for byte. */
  readonly raw?: string;
  /** Sent as application/x-www-form-urlencoded. */
  readonly form?: Readonly<Record<string, string>>;
  readonly headers?: Readonly<Record<string, string>>;
  /** The address the request comes from, e.g. `127.0.0.9`. */
  readonly localAddress?: string;
  /** Which gateway. Default 0. */
  readonly gateway?: number;
}

export interface ApiReply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** Text as it came. */
  readonly body: string;
  /** Undefined if the body is no JSON. */
  readonly json: unknown;
}

/** A person who has signed up. */
export interface Person {
  readonly email: string;
  readonly userId: string;
  /** Value of the session cookie. */
  readonly cookie: string;
  readonly csrf: string;
  /** Of the web console: lives 15 minutes. */
  readonly accessToken: string;
}

export interface PlatformOptions extends Omit<StackOptions, 'daemon' | 'gateway'> {
  /** Further keys of each daemon's configuration; `platform` is merged with the stack's own. */
  readonly daemon?: Partial<Omit<DaemonInput, 'platform'>> & { readonly platform?: Partial<NonNullable<DaemonInput['platform']>> };
  readonly gateway?: Partial<GatewayInput> | ((index: number) => Partial<GatewayInput>);
}

export interface TestPlatform extends TestStack {
  readonly baseUrl: string;
  readonly postgres: PostgresServer;
  readonly outbox: Outbox;
  /** Folder of the platform's own keys. */
  readonly keysFolder: string;
  api(method: Method, path: string, options?: ApiOptions): Promise<ApiReply>;
  /** Mails a code to the address and gives it. */
  signInCode(email: string, options?: ApiOptions): Promise<string>;
  /** Signs in by e-mail: makes the account at the first time, opens a further session later. */
  signUp(email: string, options?: Pick<ApiOptions, 'localAddress' | 'gateway'>): Promise<Person>;
}

const sent = z.strictObject({ sent: z.literal(true) });
const browserSession = z.object({ csrf: z.string() });

/** Value of a cookie that an answer sets; undefined if it does not. */
export const cookieOf = (reply: ApiReply, name: string): string | undefined => {
  for (const line of reply.headers['set-cookie'] ?? []) {
    const [pair = ''] = line.split(';');
    const at = pair.indexOf('=');
    if (pair.slice(0, at) === name) return pair.slice(at + 1);
  }
  return undefined;
};

/** What the answer must be, parsed; its status and body are in the failure. */
export const answered = <S extends z.ZodType>(reply: ApiReply, status: number, schema: S): z.output<S> => {
  assert.equal(reply.status, status, reply.body);
  return schema.parse(reply.json);
};

/** One request over TLS; answers with what came. */
export const callApi = (at: { readonly port: number; readonly agent: Agent }, method: Method, path: string, options: ApiOptions = {}): Promise<ApiReply> => new Promise((resolve, reject) => {
  const { token, cookie, csrf, json, raw, form, localAddress } = options;
  const body = raw ?? (form !== undefined ? new URLSearchParams(form).toString() : json === undefined ? undefined : JSON.stringify(json));
  const request = httpsRequest({
    host: '127.0.0.1', servername: 'localhost', port: at.port, method, path, agent: at.agent, localAddress,
    headers: {
      host: `localhost:${at.port}`,
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...(cookie === undefined ? {} : { cookie: `${cookieNames.session}=${cookie}` }),
      ...(csrf === undefined ? {} : { 'x-csrf-token': csrf }),
      ...(body === undefined ? {} : { 'content-type': form === undefined ? 'application/json' : 'application/x-www-form-urlencoded', 'content-length': Buffer.byteLength(body) }),
      ...options.headers,
    },
  }, (answer) => {
    const chunks: Buffer[] = [];
    answer.on('data', (chunk: Buffer) => chunks.push(chunk));
    answer.on('error', reject);
    answer.on('end', () => {
      const text = Buffer.concat(chunks).toString('utf8');
      resolve({ status: answer.statusCode ?? 0, headers: answer.headers, body: text, json: jsonOf(text) });
    });
  });
  request.on('error', reject);
  request.end(body);
});

const jsonOf = (text: string): unknown => {
  try {
    return JSON.parse(text);
  } catch {
    // A page or an export: `body` is what there is.
    return undefined;
  }
};

const platformFiles = async (folder: string, postgresUrl: string): Promise<{ readonly signingKeyPath: string; readonly urlPath: string }> => {
  const signingKeyPath = join(folder, 'platform-signing.key');
  const urlPath = join(folder, 'postgres.url');
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  await writeFile(signingKeyPath, privateKey.export({ type: 'pkcs8', format: 'pem' }), { mode: 0o600 });
  await writeFile(urlPath, postgresUrl, { mode: 0o600 });
  return { signingKeyPath, urlPath };
};

export const startPlatform = async (scope: TestScope | undefined, options: PlatformOptions = {}): Promise<TestPlatform> => {
  const keysFolder = await mkdtemp(join(tmpdir(), 'troupe-platform-'));
  const outbox = await openOutbox(join(keysFolder, 'outbox'));
  const ends: (() => Promise<void>)[] = [() => rm(keysFolder, { recursive: true, force: true })];
  // Last made, first ended: the stack before its database.
  const end = async (): Promise<void> => {
    for (const step of ends.splice(0).toReversed()) await step();
  };
  // `after` hooks run in the order they were given: this one must be the only one, so the stack is given a scope of its own.
  scope?.after(async () => {
    if (scope.passed === false) scope.diagnostic?.(stack?.report() ?? '');
    await end();
  });
  let stack: TestStack | undefined;
  try {
    const postgres = await startPostgres();
    ends.push(() => postgres.stop());
    const { signingKeyPath, urlPath } = await platformFiles(keysFolder, postgres.url);
    const port = options.port ?? await freePort();
    const baseUrl = `https://localhost:${port}`;
    stack = await startStack(undefined, {
      platformIdentity: true, ...options, port,
      daemon: {
        postgres: { url_path: urlPath }, mail: { from: 'Troupe <no-reply@troupe.example>', outbox_path: outbox.path }, ...options.daemon,
        platform: { base_url: baseUrl, signing_key_path: signingKeyPath, ...options.daemon?.platform },
      },
      // Wide buckets: tests of the buckets ask for narrow ones.
      gateway: (index) => ({
        platform: { base_url: baseUrl }, limits: { per_user_capacity: 10_000, per_user_refill_per_sec: 1_000, per_ip_capacity: 10_000, per_ip_refill_per_sec: 1_000 },
        ...(options.gateway instanceof Function ? options.gateway(index) : options.gateway),
      }),
    });
    const { gateways, ca } = stack;
    const running = stack;
    const agent = new Agent({ ca, keepAlive: false });
    ends.push(() => running.stop());

    const api = (method: Method, path: string, call: ApiOptions = {}): Promise<ApiReply> => {
      const gateway = gateways[call.gateway ?? 0];
      assert.ok(gateway !== undefined, 'no such gateway');
      return callApi({ port: gateway.port, agent }, method, path, call);
    };
    const signInCode = async (email: string, call: ApiOptions = {}): Promise<string> => {
      answered(await api('POST', authRoutes.emailStart.path, { ...call, json: { email } }), 202, sent);
      const { text } = await outbox.next(email, /sign-in code/);
      const code = /(?<!\d)\d{8}(?!\d)/.exec(text)?.[0];
      assert.ok(code !== undefined, `no code in the mail:\n${text}`);
      return code;
    };
    const signUp = async (email: string, call: Pick<ApiOptions, 'localAddress' | 'gateway'> = {}): Promise<Person> => {
      const code = await signInCode(email, call);
      const verified = await api('POST', authRoutes.emailVerify.path, { ...call, json: { email, code } });
      const { user } = answered(verified, 200, signedIn);
      const cookie = cookieOf(verified, cookieNames.session);
      assert.ok(cookie !== undefined, 'no session cookie was set');
      const session = answered(await api('GET', authRoutes.session.path, { ...call, cookie }), 200, browserSession);
      const token = answered(await api('POST', authRoutes.sessionToken.path, { ...call, cookie, csrf: session.csrf, json: {} }), 200, tokenAnswer);
      return { email, userId: user.id, cookie, csrf: session.csrf, accessToken: token.access_token };
    };

    return {
      ...stack, baseUrl, postgres, outbox, keysFolder, api, signInCode, signUp,
      stop: async () => {
        agent.destroy();
        await end();
      },
    };
  } catch (error) {
    await end();
    throw error;
  }
};
