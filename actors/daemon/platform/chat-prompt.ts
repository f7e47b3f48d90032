/** A chat request as what the model is asked: plain texts, tool results with their tool's name, options without their vendor's spelling. */
import type { ChatMessage, CompletionRequest } from '../../../contracts/chat.ts';
import type { CompletionPrompt } from '../../../contracts/completion.ts';
import { argumentsOf } from '../../completion/state.ts';

type Content = Exclude<ChatMessage['content'], null | undefined>;
type Message = CompletionPrompt['messages'][number];

/** Clients send null for what they leave out. */
export const isGiven = <T>(value: T | null | undefined): value is T => value !== null && value !== undefined;

const textOf = (content: Content | null | undefined): string =>
  (typeof content === 'string' ? content : (content ?? []).map((part) => part.text).join(''));

const messageOf = (message: ChatMessage, toolNames: Map<string, string>): Message => {
  switch (message.role) {
    case 'system':
    case 'developer':
      return { role: 'system', text: textOf(message.content) };
    case 'user':
      return { role: 'user', text: textOf(message.content), ...(message.name === undefined ? {} : { name: message.name }) };
    case 'tool':
      return { role: 'tool', call_id: message.tool_call_id, name: toolNames.get(message.tool_call_id) ?? '', text: textOf(message.content), is_error: false };
    case 'assistant': {
      const calls = message.tool_calls ?? [];
      for (const call of calls) toolNames.set(call.id, call.function.name);
      return {
        role: 'assistant', text: textOf(message.content),
        calls: calls.map((call) => ({ call_id: call.id, name: call.function.name, arguments: argumentsOf(call.function.arguments) })),
      };
    }
  }
};

const optionsOf = (request: CompletionRequest): CompletionPrompt['options'] => {
  const { temperature, top_p: topP, stop, user, tool_choice: choice } = request;
  return {
    ...(isGiven(temperature) ? { temperature } : {}), ...(isGiven(topP) ? { topP } : {}), ...(isGiven(user) ? { user } : {}),
    ...(isGiven(stop) ? { stop: typeof stop === 'string' ? [stop] : stop } : {}),
    ...(isGiven(choice) ? { toolChoice: typeof choice === 'string' ? choice : { name: choice.function.name } } : {}),
  };
};

export const promptOf = (request: CompletionRequest): CompletionPrompt => {
  const toolNames = new Map<string, string>();
  const bound = request.max_completion_tokens ?? request.max_tokens;
  return {
    messages: request.messages.map((message) => messageOf(message, toolNames)),
    tools: (request.tools ?? []).map(({ function: offered }) => ({
      name: offered.name, description: offered.description ?? '', parameters: offered.parameters ?? { type: 'object', properties: {} },
      ...(offered.strict === true ? { strict: true } : {}),
    })),
    options: optionsOf(request),
    ...(isGiven(bound) ? { maxOutputTokens: bound } : {}),
  };
};

/** Characters of what the model reads. */
export const promptChars = ({ messages, tools }: CompletionPrompt): number =>
  messages.reduce((sum, message) => sum + message.text.length + (message.role === 'assistant' ? JSON.stringify(message.calls).length - 2 : 0), 0)
  + (tools.length === 0 ? 0 : JSON.stringify(tools).length);

/**
 * What stays the same while a conversation goes on: all up to its first user message. Two conversations that begin alike share an actor,
 * which costs nothing: a request brings its own history.
 */
export const conversationOf = ({ messages }: CompletionPrompt): string => {
  const first = messages.findIndex((message) => message.role === 'user');
  return JSON.stringify(messages.slice(0, first < 0 ? 1 : first + 1));
};
