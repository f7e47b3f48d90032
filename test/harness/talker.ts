/**
 * A person at a client, for the fault tests: holds one session over the real edge, says drawn turns one after the other, answers
 * approvals, and writes down every event. Its socket can be cut and its process killed: a new client then goes on from what
 * the old one had written down (`last_seq_no` and pending messages), as an application would.
 *
 * Guarantee: `events` is exactly what the typed client handed over, in order; anything it complains of (a gap, a repeat, a refusal)
 * is in `failure`.
 */
import { WebSocket } from 'ws';
import { createEdge, openSession, type PendingMessage, type SessionStream, type StreamEvent } from '../../gateway/client/index.ts';
import { createTransport } from '../../gateway/cli/transport.ts';
import type { Draw } from './seed.ts';
import { denyMark, drawScript, type ScriptOptions } from './script.ts';
import type { TestStack } from './stack.ts';

export interface TalkerOptions extends ScriptOptions {
  readonly stack: TestStack;
  readonly sub: string;
  readonly random: Draw;
  /** Messages it keeps under way; default 1. */
  readonly depth?: number;
  /** The gateway it connects to; default the first. */
  readonly url?: string;
}

export interface Said {
  readonly messageId: string;
  readonly script: string;
}

export class Talker {
  readonly sub: string;
  readonly org: string;
  readonly said: Said[] = [];
  readonly events: StreamEvent[] = [];
  failure: string | undefined;
  /** Connections that were restored, over all lives. */
  reconnects = 0;
  readonly #options: TalkerOptions;
  readonly #transport: ReturnType<typeof createTransport>;
  readonly #sockets = new Set<WebSocket>();
  #sid = '';
  #token = '';
  #stream: SessionStream | undefined;
  #life = 0;
  #pending: readonly PendingMessage[] = [];
  #ends = 0;
  /** Approvals asked for and not seen settled: call id → dispatch id and preview. */
  readonly #asked = new Map<string, { readonly dispatchId: string; readonly preview: string }>();
  #saying = false;
  #waits: { readonly test: () => boolean; readonly resolve: () => void }[] = [];

  constructor(options: TalkerOptions) {
    this.#options = options;
    this.sub = options.sub;
    this.org = `u-${options.sub}`;
    this.#transport = createTransport(options.stack.ca.toString('utf8'));
  }

  get sid(): string { return this.#sid; }
  /** Turns that ended. */
  get ends(): number { return this.#ends; }
  get url(): string { return this.#options.url ?? this.#options.stack.url; }
  get state(): string { return JSON.stringify(this.#stream?.state); }

  /** Makes the session and connects. */
  async begin(): Promise<void> {
    this.#token = await this.#options.stack.token(this.sub);
    const edge = createEdge({ url: this.url, token: () => this.#token, fetch: this.#transport.fetch });
    this.#sid = (await edge.createSession({ userId: this.sub, projectId: 'p' })).sid;
    this.#open();
  }

  /** Keeps talking, turn after turn, until `rest()`. */
  talk(): void {
    this.#saying = true;
    this.#sayMore();
  }

  /** Says nothing more; resolves when everything said has had its turn. */
  async rest(): Promise<void> {
    this.#saying = false;
    await this.until(() => this.#ends >= this.said.length);
  }

  say(script: string): void {
    const messageId = `${this.sub}-${this.said.length + 1}`;
    this.said.push({ messageId, script });
    this.#stream?.send(script, { messageId });
  }

  cancel(): void { this.#stream?.cancel(); }

  /** Resolves when the test holds; rejects at the first complaint. */
  async until(test: () => boolean): Promise<void> {
    if (!test() && this.failure === undefined) await new Promise<void>((resolve) => { this.#waits.push({ test, resolve }); });
    if (this.failure !== undefined) throw new Error(`${this.sub} (${this.#sid}): ${this.failure}`);
  }

  /** The network drops its connection without a word. False if there is none. */
  cut(): boolean {
    let cut = false;
    for (const socket of this.#sockets) {
      if (socket.readyState !== WebSocket.OPEN && socket.readyState !== WebSocket.CONNECTING) continue;
      socket.terminate();
      cut = true;
    }
    return cut;
  }

  /** kill -9 of the client, and another life of it. */
  die(): void {
    this.#life += 1;
    const dying = this.#stream;
    this.cut();
    dying?.close();
    this.#open();
    // What it had not seen done before it died it asks for again; an approval that came through changes nothing.
    for (const { dispatchId, preview } of this.#asked.values()) this.#decide(dispatchId, preview);
  }

  /** What a client that comes now gets from the first event on, up to `head`. */
  async replay(head: number): Promise<StreamEvent[]> {
    const events: StreamEvent[] = [];
    if (head === 0) return events;
    const done = Promise.withResolvers<void>();
    const stream = openSession({
      url: this.url, sid: this.#sid, token: () => this.#token, WebSocket: this.#transport.WebSocket, lastSeqNo: 0,
      onEvent: (event) => {
        events.push(event);
        if (event.seq_no >= head) done.resolve();
      },
      onState: (state) => {
        if (state.kind === 'closed' || state.kind === 'broken') done.reject(new Error(`the replay ended: ${JSON.stringify(state)}`));
      },
    });
    await done.promise;
    stream.close();
    return events;
  }

  async leave(): Promise<void> {
    this.#life += 1;
    this.#saying = false;
    this.#stream?.close();
    for (const socket of this.#sockets) socket.terminate();
    await this.#transport.close();
  }

  #open(): void {
    const life = this.#life;
    const mine = (): boolean => this.#life === life;
    const sockets = this.#sockets;
    const Plain = this.#transport.WebSocket as unknown as typeof WebSocket;
    const Watched = class extends Plain {
      constructor(url: string, protocols: string[]) {
        super(url, protocols);
        sockets.add(this);
        this.once('close', () => { sockets.delete(this); });
      }
    };
    this.#stream = openSession({
      url: this.url, sid: this.#sid, token: () => this.#token, WebSocket: Watched, lastSeqNo: this.events.at(-1)?.seq_no ?? 0, pending: this.#pending,
      onEvent: (event) => { if (mine()) this.#take(event); },
      onPending: (pending) => { if (mine()) this.#pending = [...pending]; },
      onReconnected: () => { this.reconnects += 1; },
      onState: (state) => {
        if (!mine() || (state.kind !== 'closed' && state.kind !== 'broken')) return;
        this.#fail(`its stream ended: ${JSON.stringify(state)}`);
      },
    });
  }

  #take(event: StreamEvent): void {
    const expected = (this.events.at(-1)?.seq_no ?? 0) + 1;
    if (event.seq_no !== expected) this.#fail(`event ${event.seq_no} where ${expected} is the next`);
    this.events.push(event);
    switch (event.agent_kind) {
      case 'APPROVAL_REQUIRED':
        this.#asked.set(event.payload.call_id, { dispatchId: event.payload.dispatch_id, preview: event.payload.preview });
        this.#decide(event.payload.dispatch_id, event.payload.preview);
        break;
      case 'TOOL_RESULT':
        this.#asked.delete(event.payload.call_id);
        break;
      case 'FINISH':
      case 'ERROR':
        this.#ends += 1;
        this.#asked.clear();
        // After the client has settled the message: its outbox is bounded.
        queueMicrotask(() => { this.#sayMore(); });
        break;
      case 'TOKEN':
      case 'TOOL_CALL_PENDING':
      case 'HIBERNATE':
        break;
    }
    this.#settle();
  }

  #decide(dispatchId: string, preview: string): void {
    if (preview.includes(denyMark)) this.#stream?.cancel(dispatchId);
    else this.#stream?.approve(dispatchId);
  }

  #sayMore(): void {
    while (this.#saying && this.said.length - this.#ends < (this.#options.depth ?? 1)) {
      this.say(drawScript(this.#options.random, `${this.sub}-${this.said.length + 1}`, this.#options));
    }
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
