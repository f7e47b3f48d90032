/**
 * AI SDK v6's own client for tests: its default transport over the stack's TLS, and its chat object with the state that its React hook keeps,
 * without React: `useChat` is this class with a state that renders.
 */
import { AbstractChat, DefaultChatTransport, type ChatInit, type ChatState, type UIMessage } from 'ai';
import { Agent, fetch as undiciFetch } from 'undici';
import type { TestPlatform } from './platform.ts';

class PlainState implements ChatState<UIMessage> {
  status: ChatState<UIMessage>['status'] = 'ready';
  error: Error | undefined = undefined;
  messages: UIMessage[] = [];

  pushMessage(message: UIMessage): void {
    this.messages = [...this.messages, message];
  }

  popMessage(): void {
    this.messages = this.messages.slice(0, -1);
  }

  replaceMessage(index: number, message: UIMessage): void {
    this.messages = this.messages.with(index, structuredClone(message));
  }

  snapshot<T>(thing: T): T {
    return structuredClone(thing);
  }
}

export class TestChat extends AbstractChat<UIMessage> {
  constructor(init: ChatInit<UIMessage>) {
    super({ ...init, state: new PlainState() });
  }
}

export interface UiClient {
  /** The library's default transport, unmodified but for the test's certificate authority. `body`: further fields of each request. */
  transport(token: string, body?: object): DefaultChatTransport<UIMessage>;
  stop(): Promise<void>;
}

export const uiClient = (platform: TestPlatform): UiClient => {
  const dispatcher = new Agent({ connect: { ca: platform.ca } });
  // The library's own type of fetch is the browser's; undici's is the same thing.
  const fetchThere = ((url: string, init: object) => undiciFetch(url, { ...init, dispatcher })) as unknown as typeof globalThis.fetch;
  const [at] = platform.gateways;
  return {
    transport: (token, body) => new DefaultChatTransport({
      api: `${at?.url ?? ''}/api/chat`, fetch: fetchThere, headers: { authorization: `Bearer ${token}` }, ...(body === undefined ? {} : { body }),
    }),
    stop: () => dispatcher.destroy(),
  };
};
