/**
 * A whole Troupe as its users meet it: the real stack, and visitors with standard clients (`ws`, `node:https`).
 *
 * Guarantee: a watcher fails the test at the first frame that is not the contract's or not the next event; every wait ends
 * (with what was seen so far in its error), and everything ends with the stack.
 */
import assert from 'node:assert/strict';
import { Agent } from 'node:https';
import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from 'nats';
import { WebSocket, type RawData } from 'ws';
import { decodeCommit } from '../../actors/runtime/commit.ts';
import { personalOrg } from '../../contracts/capability.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { chatSession, type ChatSession } from '../../contracts/session.ts';
import { agentPayloads, wireInbound, type AgentEvent, type AgentKind } from '../../contracts/stream.ts';
import { journalSubject, partitionOf, streams, type ActorAddress } from '../../contracts/subjects.ts';
import { limits } from '../../contracts/limits.ts';
import { callEdge, openSocket, type CallOptions, type Reply, type SocketOptions } from './gateway.ts';
import { startStack, type GatewayProcess, type StackOptions, type TestScope, type TestStack } from './stack.ts';

/** Milliseconds after which a wait is given up: far more than any wait of these tests needs. */
const waitMs = 60_000;

/** Gateway limits that no test meets by accident. */
export const wideLimits = { per_user_capacity: 100_000, per_user_refill_per_sec: 1_000, per_ip_capacity: 100_000, per_ip_refill_per_sec: 1_000 } as const;

export interface WatchOptions extends Omit<SocketOptions, 'query' | 'port' | 'token'> {
  readonly lastSeqNo?: number;
  readonly gateway?: GatewayProcess;
  /** Default: the visitor's own. */
  readonly token?: string;
}

/** How a watcher's connection ended. `closing`: the reason of the frame before it, if one came. */
export interface Closed {
  readonly code: number;
  readonly reason: string;
  readonly closing: string | undefined;
}

/** One WebSocket of a session. Every frame is checked as it comes. */
export class Watcher {
  readonly socket: WebSocket;
  readonly events: AgentEvent[] = [];
  readonly pongs: number[] = [];
  /** Frames as they came. */
  readonly raw: string[] = [];
  /** Pings of the server. */
  pings = 0;
  /** `seq_no` of the last event, or the position it came with. */
  last: number | undefined;
  readonly opened: Promise<void>;
  #closing: string | undefined;
  #closed: Closed | undefined;
  #failure: string | undefined;
  #looks = new Set<() => void>();
  readonly #sid: string;

  constructor(socket: WebSocket, sid: string, lastSeqNo: number | undefined) {
    this.socket = socket;
    this.#sid = sid;
    this.last = lastSeqNo;
    this.opened = new Promise((resolve, reject) => {
      socket.once('open', resolve);
      socket.once('error', reject);
      socket.once('unexpected-response', (_request, answer) => reject(new Error(`The upgrade was answered with ${answer.statusCode}.`)));
    });
    // A refused upgrade is for whoever awaits `opened` or `closed`.
    this.opened.catch(() => undefined);
    socket.on('error', () => undefined);
    socket.on('ping', () => { this.pings += 1; this.#look(); });
    socket.on('message', (data, isBinary) => { this.#take(data, isBinary); this.#look(); });
    socket.on('close', (code, reason) => {
      this.#closed = { code, reason: reason.toString('utf8'), closing: this.#closing };
      this.#look();
    });
  }

  /** The texts of all TOKEN events in order. */
  get text(): string {
    return textOf(this.events);
  }

  /** Turns that have ended. */
  get ended(): number {
    return this.events.filter(isEnd).length;
  }

  get isOpen(): boolean {
    return this.#closed === undefined;
  }

  /** Sends an envelope, or a text as it is. */
  send(message: object | string): void {
    this.socket.send(typeof message === 'string' ? message : JSON.stringify(message));
  }

  say(content: string, more: { readonly message_id?: string; readonly attachment_blob_ref?: string } = {}): void {
    this.send({ kind: 'send_message', content, ...more });
  }

  /** Says something and resolves with the events up to the end of the next turn. */
  async turn(content: string): Promise<AgentEvent[]> {
    const before = this.events.length;
    const ends = this.ended;
    await this.opened;
    this.say(content);
    await this.turns(ends + 1);
    return this.events.slice(before);
  }

  /** Resolves when so many turns have ended. */
  turns(count: number): Promise<void> {
    return this.until(() => this.ended >= count, `${count} turns to end`);
  }

  /** Resolves when a turn has ended that an earlier watcher of the same session may have seen end. */
  afterwards(earlier: Watcher, count: number): Promise<void> {
    return this.until(() => earlier.ended + this.ended >= count, `${count} turns to end`);
  }

  /** Resolves with the `nth` event of a kind, from 1. */
  async event(kind: AgentKind, nth = 1): Promise<AgentEvent> {
    const found = (): AgentEvent | undefined => this.events.filter((event) => event.agent_kind === kind)[nth - 1];
    await this.until(() => found() !== undefined, `${kind} ${nth}`);
    return found() ?? assert.fail();
  }

  /** Sends a ping and waits for its pong: the connection carries frames both ways. */
  async roundTrip(seqNo = 0): Promise<void> {
    const before = this.pongs.length;
    await this.opened;
    this.send({ kind: 'ping', seq_no: seqNo });
    await this.until(() => this.pongs.length > before, 'a pong');
    assert.equal(this.pongs.at(-1), seqNo);
  }

  /** Resolves when `test` holds; rejects when the connection ends first. */
  until(test: () => boolean, what: string): Promise<void> {
    return this.#await(test, what, true);
  }

  /** Resolves with how the connection ended. */
  async closed(): Promise<Closed> {
    await this.#await(() => this.#closed !== undefined, 'the close', false);
    return this.#closed ?? assert.fail();
  }

  /** Leaves as a client does; resolves when the connection has ended. */
  async leave(): Promise<void> {
    this.socket.close();
    await this.closed();
  }

  #await(test: () => boolean, what: string, endFails: boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      const fail = (why: string): void => { over(); reject(new Error(`${why} while waiting for ${what}. ${this.#report()}`)); };
      const timer = setTimeout(() => fail(`Nothing within ${waitMs} ms`), waitMs);
      const over = (): void => { clearTimeout(timer); this.#looks.delete(look); };
      const look = (): void => {
        if (this.#failure !== undefined) fail(this.#failure);
        else if (test()) { over(); resolve(); }
        else if (endFails && this.#closed !== undefined) fail('The connection ended');
      };
      this.#looks.add(look);
      look();
    });
  }

  #report(): string {
    return `Closed: ${JSON.stringify(this.#closed)}. ${this.raw.length} frames, the last: ${this.raw.slice(-5).map((text) => text.slice(0, 300)).join('\n')}`;
  }

  #look(): void {
    for (const look of this.#looks) look();
  }

  #take(data: RawData, isBinary: boolean): void {
    const text = Buffer.isBuffer(data) ? data.toString('utf8') : '';
    this.raw.push(text);
    if (isBinary) return this.#fail('A binary frame came');
    const parsed = wireInbound.safeParse(JSON.parse(text));
    if (!parsed.success) return this.#fail(`A frame is not the contract's: ${text.slice(0, 500)}`);
    const frame = parsed.data;
    if (this.#closing !== undefined) return this.#fail('A frame came after the closing frame');
    switch (frame.kind) {
      case 'pong':
        this.pongs.push(frame.seq_no);
        return;
      case 'closing':
        this.#closing = frame.reason;
        return;
      case 'agent_event':
        this.#event(frame);
        return;
    }
  }

  #event(event: AgentEvent): void {
    if (this.last !== undefined && event.seq_no !== this.last + 1) return this.#fail(`Event ${event.seq_no} came after ${this.last}`);
    if (event.record.sequence !== event.seq_no || event.record.session_id !== this.#sid) return this.#fail(`Event ${event.seq_no} has another record`);
    if (!agentPayloads[event.agent_kind].safeParse(event.record.payload).success) return this.#fail(`Event ${event.seq_no} has a payload that is not ${event.agent_kind}'s`);
    this.last = event.seq_no;
    this.events.push(event);
  }

  #fail(why: string): void {
    this.#failure ??= why;
  }
}

/** FINISH and ERROR end a turn. */
export const isEnd = (event: AgentEvent): boolean => event.agent_kind === 'FINISH' || event.agent_kind === 'ERROR';
export const textOf = (events: readonly AgentEvent[]): string =>
  events.map((event) => (event.agent_kind === 'TOKEN' ? String(event.record.payload['text']) : '')).join('');
/** Kinds in order, neighbouring TOKENs as one. */
export const kindsOf = (events: readonly AgentEvent[]): AgentKind[] =>
  events.map((event) => event.agent_kind).filter((kind, i, all) => kind !== 'TOKEN' || all[i - 1] !== 'TOKEN');
/** What the mock says for `/long n` and `/slow ms n`. */
export const numbered = (n: number): string => Array.from({ length: n }, (_, i) => `w${i + 1}`).join(' ');

/** The server said why, closed with the same reason, and with this code. */
export const closedWith = (closed: Closed, code: number, reason: string): void => assert.deepEqual(closed, { code, reason, closing: reason });

/** A user with a Tier 1 token. */
export interface Visitor {
  readonly sub: string;
  readonly token: string;
  call(path: string, options?: CallOptions & { readonly gateway?: GatewayProcess }): Promise<Reply>;
  /** create_session; the answer must be 201 or 200 and the contract's. */
  create(more?: { readonly label?: string; readonly model?: string; readonly resume_sid?: string }): Promise<ChatSession>;
  watch(sid: string, options?: WatchOptions): Watcher;
  /** A new session, watched from its start. */
  chat(options?: WatchOptions): Promise<{ readonly sid: string; readonly watcher: Watcher }>;
}

export interface EndToEnd {
  readonly stack: TestStack;
  /** Someone nobody has seen; `sub` and `ttlSec` default to a fresh name and one hour. */
  visitor(options?: { readonly sub?: string; readonly org?: string; readonly ttlSec?: number }): Promise<Visitor>;
  /** For `afterEach`: gives the processes' last output to the report of a test that failed. */
  blame(context: object): void;
  stop(): Promise<void>;
}

const isTest = (context: object): context is Pick<TestScope, 'passed' | 'diagnostic'> => 'passed' in context && 'diagnostic' in context;

/** Subject of the journal of a user's own actor. */
export const journalOf = (sub: string, type: 'session' | 'agent', key: string): string => {
  const address: ActorAddress = { org: personalOrg(sub), type, key };
  return journalSubject(partitionOf(address, limits.partitions), address);
};

/** All events of a journal, read from NATS itself. */
export const journaled = async (natsUrl: string, subject: string): Promise<StoredEvent[]> => {
  const nc = await connect({ servers: natsUrl });
  try {
    const { direct } = await jetstreamManager(nc);
    const events: StoredEvent[] = [];
    let seq = 1;
    for (;;) {
      const message = await direct.getMessage(streams.journal(0, 1), { seq, next_by_subj: subject });
      if (message === null) return events;
      events.push(...decodeCommit(message.data).ev);
      seq = message.seq + 1;
    }
  } finally {
    await nc.close();
  }
};

/** Starts the stack with wide gateway limits unless `options.gateway` says otherwise. */
export const startEndToEnd = async (options: StackOptions = {}): Promise<EndToEnd> => {
  const stack = await startStack(undefined, { gateway: { limits: { ...wideLimits, sockets_per_user: 1_000 } }, ...options });
  const agent = new Agent({ ca: stack.ca, keepAlive: false });
  const [gateway] = stack.gateways;
  assert.ok(gateway !== undefined);
  let visitors = 0;

  const visitor = async ({ sub = `user-${++visitors}`, org, ttlSec }: { sub?: string; org?: string; ttlSec?: number } = {}): Promise<Visitor> => {
    const token = await stack.token(sub, org, ttlSec);
    const call: Visitor['call'] = (path, given = {}) => callEdge((given.gateway ?? gateway).port, agent, path, { token, ...given });
    const watch: Visitor['watch'] = (sid, given = {}) => new Watcher(
      openSocket((given.gateway ?? gateway).port, stack.ca.toString('utf8'), sid, {
        ...(given.protocols === undefined && given.headers === undefined ? { token: given.token ?? token } : {}),
        ...given, query: `sid=${encodeURIComponent(sid)}${given.lastSeqNo === undefined ? '' : `&last_seq_no=${given.lastSeqNo}`}`,
      }), sid, given.lastSeqNo,
    );
    const create: Visitor['create'] = async (more = {}) => {
      const reply = await call('/v1/agent/create_session', { body: { user_id: sub, project_id: 'p', ...more } });
      assert.ok(reply.status === 201 || reply.status === 200, `${reply.status} ${reply.text}`);
      return chatSession.parse(reply.json);
    };
    return {
      sub, token, call, watch, create,
      chat: async (given = {}) => {
        const { sid } = await create();
        const watcher = watch(sid, { lastSeqNo: 0, ...given });
        await watcher.opened;
        return { sid, watcher };
      },
    };
  };
  return {
    stack, visitor,
    blame: (context) => {
      if (isTest(context) && context.passed === false) context.diagnostic?.(stack.report());
    },
    stop: async () => {
      agent.destroy();
      await stack.stop();
    },
  };
};
