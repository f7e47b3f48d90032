/**
 * Real daemon processes on a real nats-server, with a gateway's link to them and capabilities signed as a gateway would: for
 * tests of the daemon without a gateway in front.
 */
import { generateKeyPairSync, randomBytes, randomUUID } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { SignJWT } from 'jose';
import { audiences, scopes } from '../../contracts/capability.ts';
import { routes, type RouteName } from '../../contracts/routes.ts';
import { agentEvent, reconnectCodes, type AgentEvent } from '../../contracts/stream.ts';
import { addressTokens } from '../../contracts/subjects.ts';
import { daemonSocket, writeDaemonConfig, type DaemonInput } from '../../deploy/start/config-files.ts';
import { socketAccepts } from '../../deploy/start/probe.ts';
import { connectLink, type Link, type LinkOptions, type LinkStream } from '../../gateway/link.ts';
import { silent } from './log.ts';
import { startNats, type NatsServer } from './nats.ts';
import { testProcess, type TestProcess } from './process.ts';
import type { TestScope } from './stack.ts';

const main = join(dirname(dirname(dirname(fileURLToPath(import.meta.url)))), 'actors', 'daemon', 'main.ts');

export interface DaemonUnderTest extends TestProcess {
  readonly socketPath: string;
  readonly configPath: string;
}

export interface TestDaemons {
  readonly folder: string;
  readonly nats: NatsServer;
  readonly daemons: readonly DaemonUnderTest[];
  /** A link to all of them; closed at the end of the test. */
  link(options?: Partial<LinkOptions> & { /** Daemons it must reach; default all that run. */ readonly count?: number }): Promise<Link>;
  /** A capability for agent routes. */
  token(sub: string, org?: string): Promise<string>;
  /** A client of a session that leaves at the end of the test. `org` default: the user's own. */
  client(link: Link, options: { readonly token: string; readonly sid: string; readonly org: string; readonly lastSeqNo?: number }): LinkClient;
  /** Resolves with status and decoded body. */
  ask(link: Link, route: RouteName, token: string, body: unknown): Promise<{ readonly status: number; readonly json: unknown }>;
}

/** Starts nats-server and daemons; everything ends with the test. */
export const startDaemons = async (scope: TestScope, options: { readonly count?: number; readonly config?: Partial<DaemonInput> } = {}): Promise<TestDaemons> => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-daemon-'));
  const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const run = join(folder, 'run');
  await mkdir(run, { mode: 0o700 });
  const publicKeyPath = join(folder, 'capability.pub');
  await writeFile(publicKeyPath, keys.publicKey.export({ type: 'spki', format: 'pem' }));
  const masterKeyPath = join(folder, 'master.key');
  await writeFile(masterKeyPath, randomBytes(32).toString('base64'), { mode: 0o600 });
  const nats = await startNats();
  const links = new Set<Link>();
  const clients: LinkClient[] = [];
  const daemons = Array.from({ length: options.count ?? 1 }, (_, index): DaemonUnderTest => {
    const socketPath = daemonSocket(run, index);
    const configPath = join(folder, `daemon-${index}.toml`);
    writeDaemonConfig(configPath, {
      host: `test-${index}`, socket_path: socketPath, master_key_path: masterKeyPath, log_level: 'debug',
      nats: { url: nats.url }, capability: { public_key_path: publicKeyPath },
      models: { default: 'mock', registry: [{ id: 'mock', provider: 'mock' }] },
      ...options.config,
    });
    return Object.assign(testProcess({ name: `daemon-${index}`, args: ['--no-warnings', main, '--config', configPath], probe: () => socketAccepts(socketPath) }), { socketPath, configPath });
  });
  scope.after(async () => {
    for (const client of clients) client.leave();
    for (const link of links) link.close();
    if (scope.passed === false) for (const daemon of daemons) scope.diagnostic?.(`--- ${daemon.name}\n${daemon.lines().slice(-60).join('\n')}`);
    await Promise.all(daemons.map((daemon) => daemon.stop()));
    await nats.stop();
    await rm(folder, { recursive: true, force: true });
  });
  await Promise.all(daemons.map((daemon) => daemon.start()));

  return {
    folder, nats, daemons,
    link: (linkOptions = {}) => new Promise((resolve) => {
      const link = connectLink({ socketPath: run, release: 'test', log: silent, rescanMs: 20, ...linkOptions });
      links.add(link);
      const stop = link.onState(({ connected }) => {
        if (connected !== (linkOptions.count ?? daemons.filter((daemon) => daemon.running).length)) return;
        stop();
        resolve(link);
      });
    }),
    token: (sub, org = `u-${sub}`) => {
      const now = Math.floor(Date.now() / 1_000);
      return new SignJWT({ org, scope: [scopes.agentSession], iat: now, nbf: now, exp: now + 900, jti: randomUUID(), iss: 'troupe-gateway', aud: audiences.agent, sub })
        .setProtectedHeader({ alg: 'ES256' }).sign(keys.privateKey);
    },
    client: (link, clientOptions) => {
      const client = new LinkClient(link, clientOptions);
      clients.push(client);
      return client;
    },
    ask: async (link, route, token, body) => {
      const answer = await link.request(routes[route], { token, body: body instanceof Uint8Array ? body : JSON.stringify(body) });
      return { status: answer.status, json: JSON.parse(answer.body.toString()) };
    },
  };
};

/**
 * A client of one session over the link: reconnects as a client of the gateway would (from its last seq_no, after 1001, 1011, 4002,
 * 4004), repeats unanswered messages by id, and fails at the first frame that is not the next.
 */
export class LinkClient {
  readonly events: AgentEvent[] = [];
  readonly closes: number[] = [];
  /** The first thing that went against the contract. */
  failure: string | undefined;
  last: number;
  readonly #link: Link;
  readonly #token: string;
  readonly #sid: string;
  readonly #org: string;
  #stream: LinkStream | undefined;
  #unanswered: { readonly id: string; readonly content: string }[] = [];
  #waits: { readonly test: () => boolean; readonly resolve: () => void }[] = [];
  #left = false;

  constructor(link: Link, options: { readonly token: string; readonly sid: string; readonly org: string; readonly lastSeqNo?: number }) {
    this.#link = link;
    this.#token = options.token;
    this.#sid = options.sid;
    this.#org = options.org;
    this.last = options.lastSeqNo ?? 0;
    this.#open();
  }

  /** Says something; said again on every new stream until a turn has ended. */
  say(content: string): void {
    const message = { id: randomUUID(), content };
    this.#unanswered.push(message);
    this.#send(message);
  }

  raw(value: unknown): void {
    this.#stream?.send(JSON.stringify(value));
  }

  /** Resolves when so many turns have ended (FINISH or ERROR) since the start. */
  async turns(count: number): Promise<void> {
    await this.until(() => this.ended >= count);
  }

  get ended(): number {
    return this.events.filter((event) => event.agent_kind === 'FINISH' || event.agent_kind === 'ERROR').length;
  }

  /** All text, in order. */
  get text(): string {
    return this.events.map((event) => (event.agent_kind === 'TOKEN' ? String(event.record.payload['text']) : '')).join('');
  }

  async until(test: () => boolean): Promise<void> {
    if (!test() && this.failure === undefined) await new Promise<void>((resolve) => this.#waits.push({ test, resolve }));
    if (this.failure !== undefined) throw new Error(this.failure);
  }

  leave(): void {
    this.#left = true;
    this.#stream?.close(1000, 'normal');
  }

  #send({ id, content }: { readonly id: string; readonly content: string }): void {
    this.raw({ kind: 'send_message', content, message_id: id });
  }

  #open(): void {
    const stream = this.#link.open(routes.stream, {
      token: this.#token, body: JSON.stringify({ sid: this.#sid, last_seq_no: this.last }),
      partitionKey: addressTokens({ org: this.#org, type: 'session', key: this.#sid }),
      onTexts: (texts, bytes) => {
        for (const text of texts) this.#take(text);
        stream.credit(bytes);
        this.#settle();
      },
      onClose: (code) => {
        this.closes.push(code);
        this.#settle();
        if (this.#left) return;
        if (reconnectCodes.has(code)) setTimeout(() => { if (!this.#left) this.#open(); }, 20);
        else this.#fail(`closed with ${code}`);
      },
    });
    this.#stream = stream;
    for (const message of this.#unanswered) this.#send(message);
  }

  #take(text: Buffer): void {
    const parsed = agentEvent.safeParse(JSON.parse(text.toString('utf8')));
    if (!parsed.success) return this.#fail(`not an agent_event: ${text.toString('utf8')}`);
    if (parsed.data.seq_no !== this.last + 1) return this.#fail(`event ${parsed.data.seq_no} after ${this.last}`);
    this.last = parsed.data.seq_no;
    this.events.push(parsed.data);
    if (parsed.data.agent_kind === 'FINISH' || parsed.data.agent_kind === 'ERROR') this.#unanswered.shift();
  }

  #fail(why: string): void {
    this.failure ??= why;
    this.#settle();
  }

  #settle(): void {
    const due = this.#waits.filter((wait) => this.failure !== undefined || wait.test());
    this.#waits = this.#waits.filter((wait) => !due.includes(wait));
    for (const wait of due) wait.resolve();
  }
}
