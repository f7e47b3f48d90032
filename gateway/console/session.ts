/**
 * One tab's session: makes or resumes it, folds its stream into what is shown, keeps what a reload needs.
 *
 * Knows no view: `state` is replaced on every change and `onChange` told. History comes from the stream itself
 * (`last_seq_no` 0 on every load), so what is shown is what the journal holds, not what this browser remembers.
 */
import { CodedError, shown } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { Edge } from '../client/edge.ts';
import { frameBytes } from '../client/outbox.ts';
import { openSession, type Reconnected, type SessionStream } from '../client/session-stream.ts';
import type { StreamSocketConstructor, StreamState } from '../client/state.ts';
import { emptyConversation, shows, wrote, type Conversation, type Mine } from './conversation.ts';
import { keepSession, keptSession } from './keep.ts';

export interface Problem {
  readonly code: string;
  readonly message: string;
}

export interface SessionState {
  /** Absent until the first message makes the session. */
  readonly sid: string | undefined;
  /** As asked for when the session was made; '' = the server's default. Unknown ('') for a session made elsewhere. */
  readonly model: string;
  readonly connection: StreamState | undefined;
  readonly conversation: Conversation;
  readonly busy: boolean;
  readonly creating: boolean;
  /** Said to screen readers too: what has just happened. */
  readonly notice: string;
  readonly problem: Problem | undefined;
}

export interface SessionWorld {
  readonly url: string;
  readonly userId: string;
  readonly token: () => string | Promise<string>;
  /** Forgets a token that was refused, so that `token` gives a new one: a stream that ended with it is opened again. Absent = there is only one. */
  readonly renew?: (() => void) | undefined;
  readonly edge: Edge;
  readonly WebSocket: StreamSocketConstructor;
  readonly storage: Storage;
  /** The address shows the session, so that a reload finds it. */
  readonly onSid: (sid: string | undefined) => void;
  readonly onChange: (state: SessionState) => void;
}

const projectId = 'console';
/** Milliseconds from which a connection without events counts as one that served. */
const servedMs = 5_000;
const fresh: SessionState = {
  sid: undefined, model: '', connection: undefined, conversation: emptyConversation(), busy: false, creating: false, notice: '', problem: undefined,
};

const reconnectedText = ({ downMs, lost }: Reconnected): string => `reconnected in ${(downMs / 1000).toFixed(1)} s, ${lost} events lost`;

export class Session {
  readonly #world: SessionWorld;
  #state: SessionState = fresh;
  #stream: SessionStream | undefined;
  #mine: readonly Mine[] = [];

  constructor(world: SessionWorld) {
    this.#world = world;
  }

  get state(): SessionState { return this.#state; }

  /** Shows a session from its first event on. */
  open(sid: string): void {
    this.#stream?.close();
    this.#stream = undefined;
    const kept = keptSession(this.#world.storage, sid);
    this.#mine = kept.mine;
    this.#set({ ...fresh, sid, model: kept.model, conversation: emptyConversation(kept.mine), busy: kept.pending.length > 0 });
    this.#connect(sid, 0, kept.pending);
  }

  /** Back to the empty page; the session left behind lives on. */
  leave(): void {
    this.#stream?.close();
    this.#stream = undefined;
    this.#mine = [];
    this.#world.onSid(undefined);
    this.#set(fresh);
  }

  /** Opens the stream again after it ended, where it ended. */
  retry(): void {
    const { sid } = this.#state;
    if (sid === undefined) return;
    this.#set({ problem: undefined });
    this.#connect(sid, this.#stream?.lastSeqNo ?? 0, this.#stream?.pending ?? []);
  }

  /** Sends a message, making the session first if there is none. True if it was taken. */
  async send(text: string, file: File | undefined, model: string): Promise<boolean> {
    try {
      const attached = await this.#attach(text, file);
      const stream = this.#stream ?? await this.#create(model);
      const after = stream.lastSeqNo ?? 0;
      const { messageId } = stream.send(attached.content, attached.attachment === undefined ? {} : { attachment: attached.attachment });
      const message: Mine = { messageId, content: attached.content, after, ...(attached.attachment === undefined ? {} : { attachment: attached.attachment }) };
      this.#mine = [...this.#mine, message];
      this.#set({ conversation: wrote(this.#state.conversation, message), busy: true, problem: undefined });
      this.#keep();
      return true;
    } catch (error) {
      this.#fail(error);
      return false;
    }
  }

  approve(dispatchId: string): void { this.#try(() => this.#stream?.approve(dispatchId)); }
  deny(dispatchId: string): void { this.#try(() => this.#stream?.cancel(dispatchId)); }
  cancel(): void {
    if (!this.#state.busy) return;
    this.#try(() => this.#stream?.cancel());
    this.#set({ notice: 'cancelling …' });
  }
  wake(): void { this.#stream?.wake(); }

  async #attach(text: string, file: File | undefined): Promise<{ content: string; attachment?: string }> {
    if (file !== undefined) {
      const { hash } = await this.#world.edge.putBlob(new Uint8Array(await file.arrayBuffer()));
      return { content: text === '' ? `Attached: ${file.name}` : text, attachment: hash };
    }
    const id = 'x'.repeat(limits.idMaxChars);
    if (frameBytes({ kind: 'send_message', content: text, message_id: id }) <= limits.clientFrameMaxBytes) return { content: text };
    const { hash, size } = await this.#world.edge.putBlob(new TextEncoder().encode(text));
    return { content: `The message is attached (${size} bytes of text).`, attachment: hash };
  }

  async #create(model: string): Promise<SessionStream> {
    this.#set({ creating: true, problem: undefined });
    try {
      const { sid } = await this.#world.edge.createSession({ userId: this.#world.userId, projectId, ...(model === '' ? {} : { model }) });
      this.#world.onSid(sid);
      this.#set({ sid, model });
      return this.#connect(sid, 0, []);
    } finally {
      this.#set({ creating: false });
    }
  }

  #connect(sid: string, lastSeqNo: number, pending: SessionStream['pending']): SessionStream {
    const { edge, url, token, WebSocket, userId, renew } = this.#world;
    let openedAtMs = Infinity;
    let heard = false;
    const mine = (): boolean => this.#stream === undefined || this.#stream === stream;
    this.#stream = undefined;
    const stream: SessionStream = openSession({
      url, sid, token, WebSocket, lastSeqNo, pending, diagnose: () => edge.resumeSession({ userId, projectId, sid }),
      onEvent: (event) => {
        if (!mine()) return;
        heard = true;
        const conversation = shows(this.#state.conversation, event);
        const ended = this.#state.conversation.running && !conversation.running;
        this.#set({ conversation, busy: conversation.running || stream.pending.length > 0, ...(ended ? { notice: 'answer complete' } : {}) });
      },
      onPending: () => {
        if (mine()) this.#keep();
      },
      onReconnected: (r) => {
        if (mine()) this.#set({ notice: reconnectedText(r) });
      },
      onState: (connection) => {
        if (!mine()) return;
        if (connection.kind === 'open') openedAtMs = performance.now();
        // Only after it was of use: a token that is refused at once would be refused again, and again.
        const served = heard || performance.now() - openedAtMs > servedMs;
        if (renew !== undefined && served && connection.kind === 'closed' && connection.error?.code === 'unauthorized') {
          renew();
          this.#connect(sid, stream.lastSeqNo ?? lastSeqNo, stream.pending);
          return;
        }
        const problem: Problem | undefined = connection.kind === 'broken'
          ? { code: 'stream_broken', message: `The stream broke (${connection.problem}): expected event ${connection.expected}, got ${connection.got}.` }
          : connection.kind === 'closed' && connection.error !== undefined ? { code: connection.error.code, message: connection.error.message } : undefined;
        this.#set({
          connection, ...(problem === undefined ? {} : { problem }),
          ...(connection.kind === 'waiting' ? { notice: 'connection lost, reconnecting …' } : {}),
        });
      },
    });
    this.#stream = stream;
    return stream;
  }

  #try(run: () => void): void {
    try {
      run();
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(error: unknown): void {
    this.#set({ problem: shown(error) });
    // Without a code it is a bug of this page: it must reach the browser's console.
    if (!(error instanceof CodedError)) reportError(error);
  }

  #keep(): void {
    const { sid, model } = this.#state;
    if (sid === undefined) return;
    const kept = keepSession(this.#world.storage, sid, { model, mine: this.#mine, pending: this.#stream?.pending ?? [] });
    if (!kept) this.#set({ notice: 'this browser has no room to keep your messages for a reload' });
  }

  #set(change: Partial<SessionState>): void {
    this.#state = { ...this.#state, ...change };
    this.#world.onChange(this.#state);
  }
}
