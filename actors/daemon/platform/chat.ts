/**
 * Public chat: `/api/v1/chat/completions` and `/api/v1/models` (interface 4.2; decisions, Chat).
 *
 * Guarantees: in this order a request is refused for its body, its payer (payer.ts), the terms, the plan's limits, its model, the payer's credits; only then a
 * completion is asked for. What a client sees was journaled before (G2). A client that leaves ends the model call; one that is slow holds
 * it up, and one that takes nothing for `limits.chatStallMs` has left. An error before the first byte has its status; one after it is the
 * last event of the stream, which then ends without `[DONE]`.
 */
import { createHash, randomUUID } from 'node:crypto';
import type { z } from 'zod';
import { chatError, chatHeaders, sseComment, sseData, sseType, type CompletionRequest } from '../../../contracts/chat.ts';
import { chatRoutes as routes } from '../../../contracts/chat-routes.ts';
import { completionEvents, type Approval, type CompletionPrompt, type CompletionStart } from '../../../contracts/completion.ts';
import { coded, CodedError, errorEntry, shown } from '../../../contracts/errors.ts';
import type { StoredEvent } from '../../../contracts/event.ts';
import { limits } from '../../../contracts/limits.ts';
import type { AnswerHeaders, Caller, RequestContext } from '../../../contracts/platform.ts';
import type { ActorAddress } from '../../../contracts/subjects.ts';
import { planAllowance } from '../../allowance/address.ts';
import type { Blobs } from '../../blobs/blobs.ts';
import { completionOfCall } from '../../completion/loop.ts';
import { offersOf } from '../../tools/call.ts';
import type { Tools } from '../../tools/tool.ts';
import { openTail, type TailSource } from '../tail.ts';
import { createRequireCredits } from './billing.ts';
import { conversationOf, isGiven, promptChars, promptOf } from './chat-prompt.ts';
import { ChunkWriter, wholeAnswer, type AnswerHead } from './chat-wire.ts';
import type { PlatformDeps } from './deps.ts';
import { requirePolicy } from './legal.ts';
import { createPayers } from './payer.ts';
import { forCaller, type PlatformHandler, type PlatformHandlerRequest } from './serve.ts';
import type { StreamAnswer } from './stream-answer.ts';
import type { StreamHandler } from './stream-serve.ts';
import { bodyOf } from './typed.ts';

export interface ChatDeps extends Pick<PlatformDeps, 'actors' | 'projections' | 'allowances' | 'manifest' | 'models' | 'log' | 'newUlid' | 'now'> {
  readonly tails: TailSource;
  readonly blobs: Pick<Blobs, 'put'>;
  /** That may run here. */
  readonly tools: Tools;
}

/** Unix seconds from which the registry's models are there; the shape wants a time. */
const modelsSince = 1_735_689_600;

export const modelHandlers = ({ models }: Pick<PlatformDeps, 'models'>): Readonly<Record<string, PlatformHandler>> => ({
  [routes.models.id]: forCaller(async () => ({
    status: 200, body: { object: 'list', data: models.ids.map((id) => ({ id, object: 'model', created: modelsSince, owned_by: 'troupe' })) },
  })),
});

const callerId = (caller: Caller): string => (caller.kind === 'user' ? caller.userId : caller.keyId);

/** What a conversation is called: the session that the caller names, else how it begins. */
const conversationName = (context: RequestContext, prompt: CompletionPrompt): readonly ['session' | 'prefix', string] => {
  const named = context.headers?.[chatHeaders.session] ?? '';
  if (named.length > limits.chatNoteMaxChars) {
    throw coded('validation_error', `${chatHeaders.session} has at most ${limits.chatNoteMaxChars} characters.`, { details: { field: chatHeaders.session, constraint: 'length' } });
  }
  return named === '' ? ['prefix', conversationOf(prompt)] : ['session', named];
};

/** The actor of a conversation: of this caller alone, whatever the conversation is called. */
const conversationAddress = (org: string, caller: Caller, ...name: readonly string[]): ActorAddress =>
  ({ org, type: 'completion', key: createHash('sha256').update(JSON.stringify([callerId(caller), ...name])).digest('hex') });

const shownKinds = [
  'CompletionStepStarted', 'CompletionDelta', 'CompletionToolCall', 'CompletionToolResult', 'CompletionApprovalRequested', 'CompletionFinished', 'CompletionFailed',
] as const;
type ShownKind = (typeof shownKinds)[number];
/** An event that a client sees something of. */
type Seen = { readonly [K in ShownKind]: { readonly kind: K; readonly payload: z.output<(typeof completionEvents)[K]> } }[ShownKind];

/** The event of a completion; undefined for others'. */
const eventOf = (event: StoredEvent, id: string): Seen | undefined => {
  if (event.d['id'] !== id) return undefined;
  const kind = shownKinds.find((known) => known === event.k);
  if (kind === undefined) return undefined;
  // Journaled by this version of the schema, or refused as unreadable: there is no older one.
  const parsed = completionEvents[kind].safeParse(event.d);
  if (!parsed.success) throw coded('journal_unreadable', `An event ${kind} of a completion cannot be read.`, { cause: parsed.error });
  return { kind, payload: parsed.data } as Seen;
};

/** Where the events of a completion go. */
export interface ChatReader {
  /** A further model call begins. */
  step(): void;
  text(text: string): void;
  toolCall(call: ToolCall): void;
  toolResult(result: ToolResult): void;
  /** The call waits for a person. */
  approval(request: ApprovalRequest): void;
  /** Is told when the client has become slow, and when it takes again. */
  onPace(listener: (slow: boolean) => void): void;
  /** After each commit, with all of its events taken. */
  flush(): Promise<void>;
  finished(end: Finished): Promise<void>;
  failed(error: { readonly code: string; readonly message: string }): Promise<void>;
}
type ToolCall = z.output<typeof completionEvents.CompletionToolCall>;
type ToolResult = z.output<typeof completionEvents.CompletionToolResult>;
type ApprovalRequest = z.output<typeof completionEvents.CompletionApprovalRequested>;
type Finished = z.output<typeof completionEvents.CompletionFinished>;

const give = async (reader: ChatReader, { kind, payload }: Seen): Promise<void> => {
  switch (kind) {
    case 'CompletionStepStarted': return reader.step();
    case 'CompletionDelta': return reader.text(payload.text);
    case 'CompletionToolCall': return reader.toolCall(payload);
    case 'CompletionToolResult': return reader.toolResult(payload);
    case 'CompletionApprovalRequested': return reader.approval(payload);
    case 'CompletionFinished': return reader.finished(payload);
    case 'CompletionFailed': return reader.failed(payload);
  }
};

/** How a stream of events says what happens: each answers with the event-stream text of it. */
export interface ChatWriter {
  /** Of the answer besides its media type. */
  readonly headers: AnswerHeaders;
  text(text: string): string;
  toolCall(call: ToolCall): string;
  /** Those of tools that run here: a shape of which none do has none. */
  readonly step?: () => string;
  readonly toolResult?: (result: ToolResult) => string;
  readonly approval?: (request: ApprovalRequest) => string;
  finished(end: Finished): string;
  /** The last event. `begun` false: nothing was said yet; undefined: then the error has its status. */
  failed(error: { readonly code: string; readonly message: string }, begun: boolean): string | undefined;
}

/** Completions as events of the answer. */
export const streamed = (answer: StreamAnswer, writer: ChatWriter): ChatReader => {
  let waiting = '';
  const flush = async (): Promise<void> => {
    if (waiting === '') return;
    const text = waiting;
    waiting = '';
    if (!answer.begun) {
      await answer.begin(200, { 'content-type': `${sseType}; charset=utf-8`, 'cache-control': 'no-cache, no-transform', ...writer.headers });
      answer.fillSilence(sseComment, limits.sseKeepAliveMs);
    }
    await answer.write(text);
  };
  return {
    flush,
    onPace: (listener) => { answer.onPace(listener); },
    step: () => { waiting += writer.step?.() ?? ''; },
    text: (text) => { waiting += writer.text(text); },
    toolCall: (call) => { waiting += writer.toolCall(call); },
    toolResult: (result) => { waiting += writer.toolResult?.(result) ?? ''; },
    approval: (request) => { waiting += writer.approval?.(request) ?? ''; },
    finished: async (end) => {
      waiting += writer.finished(end);
      await flush();
      answer.end();
    },
    failed: async ({ code, message }) => {
      const last = writer.failed({ code, message }, answer.begun || waiting !== '');
      if (last === undefined) throw new CodedError(code, message);
      waiting += last;
      await flush();
      answer.end();
    },
  };
};

/** A completion as one JSON. */
export const collected = (answer: StreamAnswer, whole: (text: string, calls: readonly ToolCall[], end: Finished, results: readonly ToolResult[]) => object): ChatReader => {
  let said = '';
  const calls: ToolCall[] = [];
  const results: ToolResult[] = [];
  return {
    flush: async () => undefined,
    // Nothing is sent before the end: the client cannot be slow.
    onPace: () => undefined,
    step: () => undefined,
    text: (text) => { said += text; },
    toolCall: (call) => { calls.push(call); },
    toolResult: (result) => { results.push(result); },
    approval: () => undefined,
    finished: (end) => answer.whole(200, {}, JSON.stringify(whole(said, calls, end, results))),
    failed: async ({ code, message }) => { throw new CodedError(code, message); },
  };
};

const chunks = (head: AnswerHead, withUsage: boolean): ChatWriter => {
  const writer = new ChunkWriter(head, withUsage);
  return {
    headers: {},
    text: (text) => writer.text(text),
    toolCall: (call) => writer.toolCall(call),
    finished: (end) => writer.finished(end),
    failed: ({ code, message }, begun) => (begun ? sseData(chatError(errorEntry(code).http, { code, message })) : undefined),
  };
};

/** A chat request of any shape as it is carried out. */
export interface ChatAsked {
  /** Of the model that the payer's organization, or this installation, has by default. */
  readonly body: (defaultModel: string) => CompletionRequest;
  /** This installation's tools run too, and a person has decided on these calls of theirs. Absent = all tools are the client's. */
  readonly here?: { readonly approvals: readonly Approval[] };
  /** Where its answer goes. */
  readonly reader: (head: AnswerHead) => ChatReader;
}
/** Carries a chat request out; resolves when its answer has ended. */
export type RunChat = (request: Pick<PlatformHandlerRequest, 'context' | 'signal'> & { readonly caller: Caller }, asked: ChatAsked) => Promise<void>;

/** Refuses, pays and runs, in the order of this file's guarantees. */
export const createRunChat = (deps: ChatDeps): RunChat => {
  const { actors, allowances, manifest, models, log } = deps;
  const payerOf = createPayers(deps);
  const requireCredits = createRequireCredits(deps);

  /** The prompt where it fits in the journal, else a blob of it. */
  const stored = async (org: string, start: CompletionStart): Promise<CompletionStart> => {
    const { prompt, ...rest } = start;
    const bytes = Buffer.from(JSON.stringify(prompt));
    if (bytes.length <= limits.completionInlineMaxBytes) return start;
    return { ...rest, blob: (await deps.blobs.put(org, [bytes])).hash };
  };

  const cancel = async (address: ActorAddress, id: string): Promise<void> => {
    try {
      await actors.ask({ address, command: 'cancel', input: { id }, principal: { kind: 'system' }, id: randomUUID() });
    } catch (error) {
      // It goes on to its end, which the model's deadline bounds, and is metered.
      log.warn({ code: shown(error).code, completion: id }, 'a completion that nobody waits for could not be cancelled');
    }
  };

  /** Tells the actor whether the client is slow: the last word counts, one question at a time. */
  const pacing = (address: ActorAddress, id: string, isOver: () => boolean): ((slow: boolean) => void) => {
    let wanted = false;
    let told = false;
    let asking = false;
    const tell = async (): Promise<void> => {
      while (told !== wanted && !isOver()) {
        told = wanted;
        await actors.ask({ address, command: 'pace', input: { id, held: wanted }, principal: { kind: 'system' }, id: randomUUID() });
      }
    };
    return (slow) => {
      wanted = slow;
      if (asking) return;
      asking = true;
      tell()
        // Then it is as if nobody had asked: a hold ends by itself, and without one the journal takes what comes.
        .catch((error: unknown) => log.warn({ code: shown(error).code, completion: id }, 'a completion could not be told of its slow client'))
        .finally(() => { asking = false; });
    };
  };

  /** Starts it. A refusal says that nothing runs; any other error may have left one running. */
  const begin = async (address: ActorAddress, start: CompletionStart, signal: AbortSignal, onRefused: () => void): Promise<void> => {
    try {
      await actors.ask({ address, command: 'start', input: start, principal: { kind: 'system' }, id: start.id, signal });
    } catch (error) {
      if (error instanceof CodedError && error.entry.kind === 'refusal' && error.code !== 'aborted') onRefused();
      throw error;
    }
  };

  /** Gives the events of a completion to the reader until its end, or until the client has gone; then it is cancelled. */
  const follow = async (address: ActorAddress, start: CompletionStart, reader: ChatReader, signal: AbortSignal): Promise<void> => {
    const over = new AbortController();
    const tail = await openTail(deps.tails, address, AbortSignal.any([signal, over.signal]));
    let ended = false;
    reader.onPace(pacing(address, start.id, () => ended));
    try {
      await begin(address, start, signal, () => { ended = true; });
      for await (const commit of tail.commits()) {
        for (const event of commit.ev) {
          const seen = eventOf(event, start.id);
          if (seen === undefined) continue;
          ended = seen.kind === 'CompletionFinished' || seen.kind === 'CompletionFailed';
          await give(reader, seen);
          if (ended) return;
        }
        await reader.flush();
      }
    } finally {
      over.abort();
      if (!ended) await cancel(address, start.id);
    }
  };

  return async ({ caller, context, signal }, asked) => {
    const payer = await payerOf(caller, context);
    requirePolicy(caller, manifest);
    await allowances.take({ ...planAllowance(payer.org, payer.limits), signal });
    const body = asked.body(payer.defaultModel ?? models.default);
    if (!models.ids.includes(body.model)) throw coded('model_not_supported', undefined, { details: { field: 'model' } });
    await requireCredits(payer.org, payer.limits);

    const own = promptOf(body);
    // Of a name that both have, the client's counts.
    const offers = asked.here === undefined ? [] : offersOf(deps.tools).filter(({ name }) => !own.tools.some((offered) => offered.name === name));
    const prompt = { ...own, tools: [...own.tools, ...offers.map((offer) => ({ ...offer, parameters: { ...offer.parameters } }))] };
    const approvals = asked.here?.approvals ?? [];
    const id = `chatcmpl-${deps.newUlid()}`;
    const name = conversationName(context, prompt);
    const start = await stored(payer.org, {
      id, model: body.model, by: callerId(caller), prompt, prompt_chars: promptChars(prompt), ...(isGiven(body.metadata) ? { metadata: body.metadata } : {}),
      ...(offers.length === 0 ? {} : { tools: offers.map((offer) => offer.name) }), ...(approvals.length === 0 ? {} : { approvals: [...approvals] }),
    });
    const reader = asked.reader({ id, created: Math.floor(deps.now() / 1_000), model: body.model });
    const alone = (completion: string): ActorAddress => conversationAddress(payer.org, caller, 'alone', completion);
    try {
      await follow(conversationAddress(payer.org, caller, ...name), start, reader, signal);
    } catch (error) {
      if (!(error instanceof CodedError)) throw error;
      const asking = approvals.map(({ call_id: callId }) => completionOfCall(callId)).find((made) => made !== undefined);
      // The call that was decided on may wait in an actor of its own (below).
      if (error.code === 'approval_unknown' && asking !== undefined) await follow(alone(asking), start, reader, signal);
      // Many that merely begin alike are no conversation: this one goes to an actor of its own. A session that was named is kept together.
      else if (error.code === 'session_busy' && name[0] !== 'session' && approvals.length === 0) await follow(alone(id), start, reader, signal);
      else throw error;
    }
  };
};

export const chatHandlers = (run: RunChat): Readonly<Record<string, StreamHandler>> => ({
  [routes.completions.id]: (request, answer) => {
    const body = bodyOf(routes.completions, request);
    return run(request, {
      body: () => body,
      reader: (head) => (body.stream === true
        ? streamed(answer, chunks(head, body.stream_options?.include_usage === true))
        : collected(answer, (said, calls, end) => wholeAnswer(head, said, calls, end))),
    });
  },
});
