/**
 * A clock that a test moves and WebSockets that a test opens, feeds and breaks, for the client's unit tests. Nothing here
 * waits: what is due runs when the test says so.
 */
import { EventEmitter } from 'node:events';
import type { Clock } from '../../gateway/client/clock.ts';
import type { StreamSocket, StreamSocketConstructor } from '../../gateway/client/state.ts';
import type { AgentKind } from '../../contracts/stream.ts';

export class ManualClock implements Clock {
  #now = 0;
  #due: { at: number; run: () => void }[] = [];
  chance = 0.5;

  now(): number { return this.#now; }
  random(): number { return this.chance; }
  after(ms: number, run: () => void): () => void {
    const entry = { at: this.#now + ms, run };
    this.#due.push(entry);
    return () => { this.#due = this.#due.filter((d) => d !== entry); };
  }
  /** Number of timers that wait: 0 after a stream has ended, or it leaks. */
  get waiting(): number { return this.#due.length; }
  /** Moves on by `ms`, running what falls due in order of time. */
  pass(ms: number): void {
    const end = this.#now + ms;
    for (;;) {
      const next = this.#due.filter((d) => d.at <= end).sort((a, b) => a.at - b.at)[0];
      if (next === undefined) break;
      this.#due = this.#due.filter((d) => d !== next);
      this.#now = next.at;
      next.run();
    }
    this.#now = end;
  }
}

export class FakeSocket implements StreamSocket {
  readyState = 0;
  readonly url: URL;
  readonly protocols: string[];
  readonly sent: Record<string, unknown>[] = [];
  closedWith: number | undefined;
  readonly #events = new EventEmitter();

  constructor(url: string, protocols: string[]) {
    this.url = new URL(url);
    this.protocols = protocols;
  }
  addEventListener(type: string, listener: (event: { data: unknown; code: number; reason: string }) => void): void {
    this.#events.on(type, listener);
  }
  send(data: string): void {
    const frame: unknown = JSON.parse(data);
    if (typeof frame === 'object' && frame !== null) this.sent.push({ ...frame });
  }
  close(code?: number): void {
    this.readyState = 2;
    this.closedWith = code;
  }

  /** What the server and the network do. */
  open(): void {
    this.readyState = 1;
    this.#events.emit('open', {});
  }
  text(data: unknown): void { this.#events.emit('message', { data: typeof data === 'string' ? data : JSON.stringify(data) }); }
  binary(): void { this.#events.emit('message', { data: new ArrayBuffer(4) }); }
  pong(): void { this.text({ kind: 'pong', seq_no: 0 }); }
  event(seqNo: number, agent: AgentKind, payload: Record<string, unknown>, kind = 'any'): void {
    this.text({
      kind: 'agent_event', seq_no: seqNo, agent_kind: agent,
      record: { session_id: 's', sequence: seqNo, kind, at: '2026-01-01T00:00:00.000Z', payload },
    });
  }
  token(seqNo: number, text = 'x'): void { this.event(seqNo, 'TOKEN', { text }, 'TextDelta'); }
  finish(seqNo: number): void {
    this.event(seqNo, 'FINISH', { finish_reason: 'stop', usage: { input_tokens: 1, output_tokens: 1, cost_cents: 0 } }, 'RunFinished');
  }
  drop(code: number, reason = ''): void {
    this.readyState = 3;
    this.#events.emit('close', { code, reason });
  }
  /** Frames of the client of one kind. */
  of(kind: string): Record<string, unknown>[] { return this.sent.filter((f) => f['kind'] === kind); }
}

/** A constructor whose sockets the test gets in the order they were made. */
export const fakeSockets = (): { WebSocket: StreamSocketConstructor; made: FakeSocket[] } => {
  const made: FakeSocket[] = [];
  return {
    made,
    WebSocket: class extends FakeSocket {
      constructor(url: string, protocols: string[]) {
        super(url, protocols);
        made.push(this);
      }
    },
  };
};
