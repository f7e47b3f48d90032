/**
 * `POST /v1/chat` (interface 4.7; decisions, Deployment services; RUN): one turn of a deployment's session as server-sent events.
 *
 * Guarantees
 * D1  What a client sees was journaled before (G2), every event once and in order, up to the end of its turn.
 * D2  A turn goes on when its client leaves; who comes back with the same body and `Last-Event-ID` gets what follows that event, and no second turn.
 *     In the format `native` that is everything which follows it, before the turn too, and in a branch its past.
 * D3  A refusal (a gate's block, no credits, a body) before anything was said has its status. After that it is an event of the stream.
 * The head is held back until the model has said something, the turn is over, or `limits.answerBeginMs` have passed. Backpressure is credit: a slow
 * client is a cursor into the journal, and the model is not held up for it.
 */
import { randomUUID } from 'node:crypto';
import { decodeTime } from 'ulid';
import { sseComment, sseType } from '../../../contracts/chat.ts';
import { coded, CodedError, errorEntry, shown } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { runtimeRoutes, type RuntimeChatBody, type StreamFormat } from '../../../contracts/runtime-routes.ts';
import { sessionCommands, sessionEvents } from '../../../contracts/session.ts';
import { acceptHeader, hasParts, uiChatRequest } from '../../../contracts/ui-chat.ts';
import type { Upcast } from '../frames.ts';
import type { Log } from '../log.ts';
import type { StreamAnswer } from '../platform/stream-answer.ts';
import { bodyOf, queryOf } from '../platform/typed.ts';
import { messageIdOf, uiMessageStream, uiParts } from '../platform/ui-chat.ts';
import { openTail } from '../tail.ts';
import { resolveBranch, type SessionBranch } from './branch.ts';
import { anthropicTeller } from './chat-formats-anthropic.ts';
import { nativeWriter, type TurnWriter } from './chat-formats-native.ts';
import { openaiTeller } from './chat-formats-openai.ts';
import { turnWriter, uiTeller } from './chat-formats-turn.ts';
import { conversationOf, formatOf, lastEventOf, modelOf } from './conversation.ts';
import type { DeploymentDeps, DeploymentHandlers, DeploymentRequest } from './deps.ts';
import { envelopeOf, type SessionEvent } from './envelope.ts';
import { branchEvents } from './events.ts';
import { endsTurn, followTurn, justBelow, type Turn } from './follow.ts';

export type RuntimeDeps = Pick<DeploymentDeps, 'actors' | 'tails' | 'registry' | 'upcast' | 'log'>;

interface Said {
  readonly format: StreamFormat;
  readonly body: RuntimeChatBody;
  readonly model: string;
  readonly branch: SessionBranch;
}

const writerOf = ({ format, body, model, branch }: Said, { run_id: id }: Turn, upcast: Upcast): TurnWriter => {
  switch (format) {
    case 'native':
      return nativeWriter((seen) => envelopeOf(seen, branch, upcast));
    case 'openai':
      return turnWriter(openaiTeller({ id: `chatcmpl-${id}`, created: Math.floor(decodeTime(id) / 1_000), model }, body.stream_options?.include_usage === true), upcast, { headers: {}, saysFailure: false });
    case 'anthropic':
      return turnWriter(anthropicTeller({ id: `msg_${id}`, model }), upcast, { headers: {}, saysFailure: false });
    case 'ui_sdk': {
      const request = uiChatRequest.parse({ model, messages: body.messages });
      if (!hasParts(request)) return turnWriter(uiTeller(uiParts({ id }), id), upcast, { headers: {}, saysFailure: false });
      const stream = uiMessageStream({ id, model }, messageIdOf(request, id));
      return turnWriter(uiTeller(stream, id), upcast, { headers: { ...stream.headers }, saysFailure: true });
    }
  }
};

/** The pieces of an answer, one after the other, whoever has them. */
class Pieces {
  readonly #answer: StreamAnswer;
  readonly #headers: TurnWriter['headers'];
  #before: Promise<void> = Promise.resolve();
  #waiting = '';

  constructor(answer: StreamAnswer, headers: TurnWriter['headers']) {
    this.#answer = answer;
    this.#headers = headers;
  }

  get bytes(): number {
    return this.#waiting.length;
  }

  say(text: string): void {
    this.#waiting += text;
  }

  /** Sends what waits; begins the answer if it has not begun. */
  flush(): Promise<void> {
    this.#before = this.#before.then(() => this.#send());
    return this.#before;
  }

  async #send(): Promise<void> {
    const text = this.#waiting;
    if (text === '') return;
    this.#waiting = '';
    if (!this.#answer.begun) {
      await this.#answer.begin(200, { 'content-type': `${sseType}; charset=utf-8`, 'cache-control': 'no-cache, no-transform', ...this.#headers });
      this.#answer.fillSilence(sseComment, limits.sseKeepAliveMs);
    }
    await this.#answer.write(text);
  }
}

/** Kinds after which a turn has said something. */
const sayings: ReadonlySet<string> = new Set(['TextDelta', 'ToolCall', 'RunFinished']);

interface Telling {
  readonly writer: TurnWriter;
  readonly turn: Turn;
  /** What the client has: events up to this one are not said again. */
  readonly after: string;
  readonly upcast: Upcast;
  readonly log: Log;
}

/** Says a turn's events. Throws the turn's own failure where that is to be the answer's status. */
const tell = async (events: AsyncGenerator<readonly SessionEvent[], void, undefined>, answer: StreamAnswer, { writer, turn, after, upcast, log }: Telling): Promise<void> => {
  const pieces = new Pieces(answer, writer.headers);
  const patience = setTimeout(() => {
    pieces.say(sseComment);
    pieces.flush().catch((error: unknown) => log.debug({ code: shown(error).code }, 'an answer found nobody'));
  }, limits.answerBeginMs);
  let speaks = turn.resumed;
  try {
    for await (const commit of events) {
      for (const seen of commit) {
        const { event } = seen;
        const own = event.d['run_id'] === turn.run_id;
        if (own && event.k === 'RunErrored' && !answer.begun && !speaks) refuse(seen, writer, upcast);
        if (own && (sayings.has(event.k) || event.k === 'RunErrored')) speaks = true;
        if (!own && !writer.all) continue;
        // Seen by the writer all the same: what it says next depends on it.
        const text = writer.event(seen);
        if (event.id > after) pieces.say(text);
        if (endsTurn(seen, turn.run_id)) pieces.say(writer.end);
      }
      if (speaks || answer.begun || pieces.bytes > limits.hubGroupBytes) await pieces.flush();
    }
    // Who comes back with the last event of all is told nothing, but that.
    if (!answer.begun) pieces.say(sseComment);
    await pieces.flush();
    if (!answer.signal.aborted) answer.end();
  } finally {
    clearTimeout(patience);
  }
};

/** Nothing was said: a refusal of the turn is the answer's status, and so is a failure that the format has no word for. */
const refuse = ({ event }: SessionEvent, { saysFailure }: TurnWriter, upcast: Upcast): void => {
  const { code, message } = sessionEvents.RunErrored.parse(upcast(event));
  if (errorEntry(code).kind === 'refusal' || !saysFailure) throw new CodedError(code, message);
};

/** True if the event is one that clients of the branch see. */
const isEventOf = async (deps: RuntimeDeps, branch: SessionBranch, id: string): Promise<boolean> => {
  for await (const { event } of branchEvents(deps.tails, branch, justBelow(id))) return event.id === id;
  return false;
};

/** What follows the client's last event and comes before its turn; then the turn. Formats that say only the turn have no word for the first. */
async function* fromLast(deps: RuntimeDeps, branch: SessionBranch, span: { readonly after: string; readonly turn: Turn }, turn: AsyncGenerator<readonly SessionEvent[], void, undefined>): AsyncGenerator<readonly SessionEvent[], void, undefined> {
  for await (const seen of branchEvents(deps.tails, branch, span.after)) {
    if (seen.event.id >= span.turn.from) break;
    yield [seen];
  }
  yield* turn;
}

/** Asks the session for the turn. */
const converse = async (deps: RuntimeDeps, { caller, signal }: Pick<DeploymentRequest, 'caller' | 'signal'>, said: Said, lastEventId: string | undefined): Promise<Turn> => {
  const { branch, body, model } = said;
  const { earlier, content, system } = conversationOf(body);
  const { converse: contract } = sessionCommands;
  const deployment = { id: caller.deploymentId, session_id: branch.session_id, branch: branch.branch };
  return contract.output.parse(await deps.actors.ask({
    address: branch.address, command: 'converse', principal: { kind: 'system' }, id: randomUUID(), signal,
    input: {
      session: { deployment, agent_id: caller.agentId, user_id: caller.subject, model }, earlier, content,
      ...(system === undefined ? {} : { system }), ...(body.message_id === undefined ? {} : { message_id: body.message_id }),
      ...(lastEventId === undefined ? {} : { last_event_id: lastEventId }),
    },
  }));
};

export const chatHandlers = (deps: RuntimeDeps): DeploymentHandlers => ({
  streams: {
    [runtimeRoutes.runtime_chat.id]: async (request, answer) => {
      const { context, caller } = request;
      const body = bodyOf(runtimeRoutes.runtime_chat, request);
      const format = formatOf(queryOf(runtimeRoutes.runtime_chat, request).format, context.headers?.[acceptHeader] ?? '');
      const lastEventId = lastEventOf(context.headers);
      const model = modelOf(deps.registry, body).id;
      const branch = await resolveBranch(deps.tails, caller, body.session_id, body.branch, true);
      if (lastEventId !== undefined && !await isEventOf(deps, branch, lastEventId)) throw coded('event_not_found');
      const said = { format, body, model, branch };

      const over = new AbortController();
      const tail = await openTail(deps.tails, branch.address, AbortSignal.any([answer.signal, over.signal]));
      try {
        const turn = await converse(deps, request, said, lastEventId);
        const after = turn.resumed ? lastEventId ?? '' : '';
        const writer = writerOf(said, turn, deps.upcast);
        const own = followTurn(deps.tails, tail, branch.address, turn);
        const events = writer.all && lastEventId !== undefined ? fromLast(deps, branch, { after: lastEventId, turn }, own) : own;
        await tell(events, answer, { writer, turn, after, upcast: deps.upcast, log: deps.log });
      } finally {
        over.abort();
      }
    },
  },
});
