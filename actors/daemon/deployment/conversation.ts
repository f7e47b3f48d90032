/** What a `/v1/chat` request says: its model, its instructions, what was said before, and what is new. Pure. */
import { coded } from '../../../contracts/errors.ts';
import type { CompletionPrompt } from '../../../contracts/completion.ts';
import { lastEventHeader, streamFormat, eventCursor, type RuntimeChatBody, type StreamFormat } from '../../../contracts/runtime-routes.ts';
import type { ImportedMessage } from '../../../contracts/session.ts';
import { completionOf, uiChatRequest } from '../../../contracts/ui-chat.ts';
import type { RegisteredModel, Registry } from '../../providers/registry.ts';
import { promptOf } from '../platform/chat-prompt.ts';

const invalid = (field: string, constraint: string): Error => coded('invalid_argument', undefined, { details: { field, constraint } });

/** The model named, of the provider named; else the configured one, or the provider's first. Throws `invalid_argument`. */
export const modelOf = (registry: Registry, { provider, model: named }: Pick<RuntimeChatBody, 'provider' | 'model'>): RegisteredModel => {
  const isOf = (model: RegisteredModel): boolean => provider === undefined || provider === null || model.vendor === provider;
  if (named !== undefined && named !== null) {
    const model = registry.get(named);
    if (model === undefined) throw invalid('model', 'is not a model of this installation');
    if (!isOf(model)) throw invalid('model', `is not a model of provider ${provider}`);
    return model;
  }
  const found = [registry.defaultModel, ...registry.ids].map((id) => registry.get(id)).find((model) => model !== undefined && isOf(model));
  if (found === undefined) throw invalid('provider', 'no model of this provider is configured');
  return found;
};

const vendorType = /^application\/vnd\.troupe\.([a-z_]+)\+event-stream$/;

/** What the media types ask for, the best first (RFC 9110, 12.5.1); undefined = none of ours. */
const acceptedFormat = (accept: string): string | undefined => accept.split(',').map((entry, nth) => {
  const [type = '', ...params] = entry.split(';').map((text) => text.trim().toLowerCase());
  const weight = params.find((param) => param.startsWith('q='))?.slice(2);
  return { format: vendorType.exec(type)?.[1], q: weight === undefined ? 1 : Number(weight), nth };
}).filter(({ format, q }) => format !== undefined && q > 0).toSorted((a, b) => b.q - a.q || a.nth - b.nth)[0]?.format;

/** The query goes before the header. Throws `invalid_argument` for a format that there is not. */
export const formatOf = (query: StreamFormat | undefined, accept: string): StreamFormat => {
  if (query !== undefined) return query;
  const format = streamFormat.safeParse(acceptedFormat(accept) ?? 'native');
  if (!format.success) throw invalid('accept', 'names no format of this stream');
  return format.data;
};

/** The last event that the client has; undefined = it says nothing of one. Throws `invalid_argument`. */
export const lastEventOf = (headers: Readonly<Record<string, string>> | undefined): string | undefined => {
  const given = headers?.[lastEventHeader]?.trim() ?? '';
  if (given === '') return undefined;
  const id = eventCursor.safeParse(given);
  if (!id.success) throw invalid(lastEventHeader, 'must be the id of an event (a ULID)');
  return id.data;
};

export interface Conversation {
  /** Of before this request. */
  readonly earlier: readonly ImportedMessage[];
  /** What the user says now. */
  readonly content: string;
  readonly system: string | undefined;
}

type Message = CompletionPrompt['messages'][number];
const isImported = (message: Message): message is Exclude<Message, { role: 'system' }> => message.role !== 'system';
const imported = (message: Exclude<Message, { role: 'system' }>): ImportedMessage => (message.role === 'user' ? { role: 'user', text: message.text } : message);

export const conversationOf = ({ messages: given }: RuntimeChatBody): Conversation => {
  const { messages } = promptOf(completionOf(uiChatRequest.parse({ model: 'any', messages: given }), 'any'));
  const said = messages.filter(isImported);
  const systems = messages.flatMap((message) => (message.role === 'system' ? [message.text] : []));
  const answered = said.findLastIndex(({ role }) => role !== 'user');
  return {
    earlier: said.slice(0, answered + 1).map(imported), content: said.slice(answered + 1).map(({ text }) => text).join('\n\n'),
    system: systems.length === 0 ? undefined : systems.join('\n\n'),
  };
};
