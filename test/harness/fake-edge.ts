/**
 * A small edge that speaks the contract over real TLS and real WebSockets, for the tests of the clients: sessions with a
 * numbered event log, dedup by message_id, replay, approvals, cancels, and every way to hurt a client: cuts, gaps,
 * repeats, close codes, refused upgrades. It is not the gateway; the gateway's own tests prove the gateway.
 */
import { createHash, randomInt, randomUUID } from 'node:crypto';
import { createServer, type Server } from 'node:https';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { generate } from 'selfsigned';
import { WebSocketServer, type WebSocket } from 'ws';
import { encodeAgentEvent, wireOutbound, type AgentKind } from '../../contracts/stream.ts';
import type { ConsoleFiles } from '../../gateway/console/files.ts';
import { consoleHeaders } from '../../gateway/console/files.ts';
import { freePort } from './port.ts';

interface Logged {
  readonly seq: number;
  readonly agent: AgentKind;
  readonly text: string;
}
interface Session {
  readonly sid: string;
  readonly userId: string;
  readonly model: string | undefined;
  readonly log: Logged[];
  readonly ids: Set<string>;
  readonly queue: string[];
  readonly watchers: Set<WebSocket>;
  readonly approvals: Map<string, (granted: boolean) => void>;
  running: boolean;
  cancelled: boolean;
  /** Resolves when a `slow` turn may go on. */
  go: (() => void) | undefined;
}

export interface FakeEdgeOptions {
  readonly token?: string;
  readonly userId?: string;
  readonly files?: ConsoleFiles;
  /** Port to listen on again, with the certificate and sessions of the edge it was. */
  readonly again?: FakeEdge;
}

const base32 = 'abcdefghijklmnopqrstuvwxyz234567';
const newSid = (): string => Array.from({ length: 26 }, () => base32.charAt(randomInt(32))).join('');
const usage = { input_tokens: 3, output_tokens: 5, cost_cents: 1 };

/** What a message makes the agent do: `/tool`, `/approve`, `/error`, `/slow`, anything else is echoed word by word. */
export class FakeEdge {
  readonly #server: Server;
  readonly #sockets = new Set<Duplex>();
  readonly sessions: Map<string, Session>;
  readonly caPem: string;
  readonly #key: string;
  readonly token: string;
  readonly userId: string;
  readonly #files: ConsoleFiles | undefined;
  readonly blobs = new Map<string, Buffer>();
  /** Every message that arrived, repeats included. */
  readonly received: { sid: string; id: string | undefined; content: string; attachment: string | undefined }[] = [];
  #awaited: (() => void)[] = [];
  /** Resolves with the next message that arrives. */
  nextMessage(): Promise<void> {
    return new Promise((resolve) => { this.#awaited.push(resolve); });
  }
  /** Upgrades are answered with this status when set. */
  refuseUpgrades: number | undefined;
  /** Every session message is swallowed when set, as by a daemon killed before it wrote. */
  swallow = false;
  upgrades = 0;

  private constructor(server: Server, pems: { caPem: string; key: string }, options: FakeEdgeOptions) {
    this.#server = server;
    this.caPem = pems.caPem;
    this.#key = pems.key;
    this.token = options.token ?? 'fake.token.1';
    this.userId = options.userId ?? 'user-1';
    this.#files = options.files;
    this.sessions = options.again?.sessions ?? new Map();
  }

  static async start(options: FakeEdgeOptions = {}): Promise<FakeEdge> {
    const made = options.again === undefined
      ? await generate([{ name: 'commonName', value: 'localhost' }], {
        keyType: 'ec', algorithm: 'sha256',
        extensions: [{ name: 'subjectAltName', altNames: [{ type: 2, value: 'localhost' }, { type: 7, ip: '127.0.0.1' }] }],
      })
      : undefined;
    const caPem = made?.cert ?? options.again?.caPem ?? '';
    const key = made?.private ?? options.again?.keyPem ?? '';
    const server = createServer({ cert: caPem, key, minVersion: 'TLSv1.3' });
    const edge = new FakeEdge(server, { caPem, key }, options.again === undefined ? options : { ...options, token: options.again.token, userId: options.again.userId });
    const sockets = new WebSocketServer({ noServer: true, maxPayload: 64 * 1024, handleProtocols: (offered) => (offered.has('troupe.v1') ? 'troupe.v1' : false) });
    server.on('connection', (socket) => {
      edge.#sockets.add(socket);
      socket.on('close', () => edge.#sockets.delete(socket));
    });
    server.on('request', (request, response) => { edge.#request(request, response); });
    server.on('upgrade', (request, socket, head) => { edge.#upgrade(sockets, request, socket, head); });
    const { promise, resolve, reject } = Promise.withResolvers<undefined>();
    server.once('error', reject);
    const port = options.again?.port ?? await freePort();
    server.listen(port, '127.0.0.1', () => { resolve(undefined); });
    await promise;
    return edge;
  }

  get keyPem(): string { return this.#key; }
  get port(): number {
    const address = this.#server.address() as AddressInfo | null;
    if (address !== null) this.#port = address.port;
    return this.#port;
  }
  #port = 0;
  get url(): string { return `https://127.0.0.1:${this.port}`; }

  /** Kills every connection without a close frame, as a `kill -9` of the gateway does. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }
  /** Closes every stream with a code, after the `closing` frame. */
  closeAll(code: number, reason: string): void {
    for (const session of this.sessions.values()) {
      for (const ws of session.watchers) {
        ws.send(JSON.stringify({ kind: 'closing', reason }));
        ws.close(code, reason);
      }
    }
  }
  /** Sends an event with a number of one's own choice to the watchers: a gap or a repeat. */
  forge(sid: string, seq: number): void {
    for (const ws of this.sessions.get(sid)?.watchers ?? []) ws.send(encodeAgentEvent(sid, seq, 'TextDelta', new Date().toISOString(), 'TOKEN', { text: 'forged' }));
  }
  /** Lets a `/slow` turn go on. */
  release(sid: string): void { this.sessions.get(sid)?.go?.(); }

  async stop(): Promise<void> {
    void this.port;
    const { promise, resolve } = Promise.withResolvers<undefined>();
    this.#server.close(() => { resolve(undefined); });
    this.cut();
    await promise;
  }

  #answer(response: ServerResponse, status: number, body: unknown): void {
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  }

  #request(request: IncomingMessage, response: ServerResponse): void {
    const path = new URL(request.url ?? '/', 'https://x').pathname;
    if (path === '/healthz') {
      response.writeHead(200, { 'content-type': 'text/plain' }).end('OK');
      return;
    }
    const file = request.method === 'GET' ? this.#files?.get(path) : undefined;
    if (file !== undefined) {
      response.writeHead(200, { ...consoleHeaders, 'content-type': file.type }).end(file.body);
      return;
    }
    if (request.headers.authorization !== `Bearer ${this.token}`) {
      this.#answer(response, 401, { error: 'unauthorized', message: 'A valid bearer token is required.' });
      return;
    }
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      const body = Buffer.concat(parts);
      if (path === '/v1/agent/blobs') {
        const hash = `sha256:${createHash('sha256').update(body).digest('hex')}`;
        this.blobs.set(hash, body);
        this.#answer(response, 201, { hash, size: body.length });
      } else if (path === '/v1/agent/sessions') this.#list(response, new URL(request.url ?? '/', 'https://edge').searchParams);
      else if (path === '/v1/agent/create_session') this.#session(response, JSON.parse(body.toString()) as Record<string, string>);
      else this.#answer(response, 404, { error: 'not_found', message: 'There is nothing here.' });
    });
  }

  /** A session without events. */
  addSession(sid = newSid(), model?: string): void {
    this.sessions.set(sid, {
      sid, userId: this.userId, model, log: [], ids: new Set(), queue: [], watchers: new Set(), approvals: new Map(),
      running: false, cancelled: false, go: undefined,
    });
  }

  /** Newest first; the cursor is how many came before. */
  #list(response: ServerResponse, query: URLSearchParams): void {
    const all = [...this.sessions.values()].toReversed();
    const from = Number(query.get('cursor') ?? 0);
    const to = from + Number(query.get('limit') ?? 50);
    this.#answer(response, 200, {
      sessions: all.slice(from, to).map(({ sid, model, log, running }) => ({
        sid, agent_id: `agent-${sid}`, project_id: 'p', label: null, model: model ?? 'mock', state: running ? 'running' : 'idle',
        created_at: '2026-01-02T03:04:05.000Z', last_event_at: '2026-01-02T03:04:06.000Z',
        turns: log.filter(({ agent }) => agent === 'FINISH').length, usage,
      })),
      next_cursor: to < all.length ? String(to) : null, current: true,
    });
  }

  #session(response: ServerResponse, body: Record<string, string>): void {
    if (body['user_id'] !== this.userId) {
      this.#answer(response, 403, { error: 'user_id_mismatch', message: 'user_id is not the subject of the token.' });
      return;
    }
    if (body['model'] === 'no-such-model') {
      this.#answer(response, 400, { error: 'bad_request', reason: 'model_not_supported', message: 'The model is not in the registry.' });
      return;
    }
    const resumed = body['resume_sid'];
    const sid = resumed ?? newSid();
    if (resumed !== undefined && !this.sessions.has(sid)) {
      this.#answer(response, 404, { error: 'not_found', reason: 'session_not_found', message: 'There is no such session.' });
      return;
    }
    if (resumed === undefined) this.addSession(sid, body['model']);
    this.#answer(response, resumed === undefined ? 201 : 200, {
      sid, agent_id: `agent-${sid}`, user_id: this.userId, project_id: body['project_id'], created_at_unix: 1_760_000_000,
    });
  }

  #upgrade(server: WebSocketServer, request: IncomingMessage, socket: Duplex, head: Buffer): void {
    this.upgrades += 1;
    const url = new URL(request.url ?? '/', 'https://x');
    const offered = String(request.headers['sec-websocket-protocol'] ?? '').split(',').map((p) => p.trim());
    const status = this.refuseUpgrades ?? (offered.includes(`bearer.${this.token}`) ? undefined : 401);
    if (status !== undefined) {
      socket.end(`HTTP/1.1 ${status} Refused\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
      return;
    }
    server.handleUpgrade(request, socket, head, (ws) => {
      const session = this.sessions.get(url.searchParams.get('sid') ?? '');
      if (session === undefined) {
        ws.send('{"kind":"closing","reason":"session_not_found"}');
        ws.close(4010, 'session_not_found');
        return;
      }
      const last = Number(url.searchParams.get('last_seq_no') ?? session.log.length);
      if (last > session.log.length) {
        ws.send('{"kind":"closing","reason":"sequence_retired"}');
        ws.close(4005, 'sequence_retired');
        return;
      }
      for (const logged of session.log.slice(last)) ws.send(logged.text);
      session.watchers.add(ws);
      ws.on('close', () => session.watchers.delete(ws));
      ws.on('message', (data: Buffer) => { this.#take(session, ws, data.toString()); });
    });
  }

  #take(session: Session, ws: WebSocket, text: string): void {
    const frame = wireOutbound.parse(JSON.parse(text));
    switch (frame.kind) {
      case 'ping':
        ws.send(JSON.stringify({ kind: 'pong', seq_no: frame.seq_no }));
        return;
      case 'close':
        ws.send('{"kind":"closing","reason":"normal"}');
        ws.close(1000, 'normal');
        return;
      case 'approve_dispatch':
        session.approvals.get(frame.dispatch_id)?.(true);
        return;
      case 'cancel_dispatch':
        if (frame.dispatch_id === '') {
          session.cancelled = session.running;
          session.go?.();
        } else session.approvals.get(frame.dispatch_id)?.(false);
        return;
      case 'send_message':
        this.received.push({ sid: session.sid, id: frame.message_id, content: frame.content, attachment: frame.attachment_blob_ref });
        for (const resolve of this.#awaited.splice(0)) resolve();
        if (this.swallow) return;
        if (frame.message_id !== undefined && session.ids.has(frame.message_id)) return;
        if (frame.message_id !== undefined) session.ids.add(frame.message_id);
        session.queue.push(frame.attachment_blob_ref === undefined ? frame.content : `${frame.content} (${this.blobs.get(frame.attachment_blob_ref)?.length} bytes attached)`);
        void this.#run(session);
    }
  }

  #emit(session: Session, kind: string, agent: AgentKind, payload: unknown): void {
    const seq = session.log.length + 1;
    const text = encodeAgentEvent(session.sid, seq, kind, new Date().toISOString(), agent, payload);
    session.log.push({ seq, agent, text });
    for (const ws of session.watchers) ws.send(text);
  }

  async #run(session: Session): Promise<void> {
    if (session.running) return;
    session.running = true;
    for (let content = session.queue.shift(); content !== undefined; content = session.queue.shift()) await this.#turn(session, content);
    session.running = false;
  }

  async #turn(session: Session, content: string): Promise<void> {
    const say = (text: string): void => { this.#emit(session, 'TextDelta', 'TOKEN', { text }); };
    session.cancelled = false;
    if (content.startsWith('/error')) {
      say('Well, ');
      this.#emit(session, 'RunErrored', 'ERROR', { code: 'provider_error', message: 'The model provider failed.' });
      return;
    }
    if (content.startsWith('/slow')) {
      say('Thinking');
      await new Promise<void>((resolve) => { session.go = resolve; });
      session.go = undefined;
      if (session.cancelled) {
        this.#emit(session, 'RunFinished', 'FINISH', { finish_reason: 'cancelled', usage });
        return;
      }
      say(' done.');
    } else if (content.startsWith('/tool') || content.startsWith('/approve')) {
      const call_id = randomUUID();
      const tool_name = content.startsWith('/tool') ? 'calculator' : 'send_mail';
      say('Let me see. ');
      this.#emit(session, 'ToolCall', 'TOOL_CALL_PENDING', { call_id, tool_name, arguments: { expression: '6*7', note: content } });
      let granted = true;
      if (tool_name === 'send_mail') {
        const dispatch_id = randomUUID();
        const answer = new Promise<boolean>((resolve) => { session.approvals.set(dispatch_id, resolve); });
        this.#emit(session, 'ApprovalRequested', 'APPROVAL_REQUIRED', { dispatch_id, call_id, preview: 'send_mail to ops@example.com: "Deploy done"' });
        granted = await answer;
        session.approvals.delete(dispatch_id);
      }
      this.#emit(session, 'ToolResult', 'TOOL_RESULT', { call_id, tool_name, result: granted ? { value: 42 } : { code: 'denied' }, is_error: !granted });
      say(granted ? 'The answer is 42.' : 'Then I will not.');
    } else {
      for (const word of `You said: ${content}`.match(/\S+\s*/g) ?? []) say(word);
    }
    this.#emit(session, 'RunFinished', 'FINISH', { finish_reason: 'stop', usage });
  }
}
