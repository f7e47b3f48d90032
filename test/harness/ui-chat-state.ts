/**
 * AI SDK v6's chat with the state that its React hook keeps, without React: `useChat` is this class with a state that renders. Runs in Node and
 * in browsers.
 */
import { AbstractChat, type ChatInit, type ChatState, type UIMessage } from 'ai';

class PlainState implements ChatState<UIMessage> {
  readonly #onChange: () => void;
  #status: ChatState<UIMessage>['status'] = 'ready';
  #error: Error | undefined = undefined;
  #messages: UIMessage[] = [];

  constructor(onChange: () => void) {
    this.#onChange = onChange;
  }

  get status(): ChatState<UIMessage>['status'] { return this.#status; }
  set status(status) {
    this.#status = status;
    this.#onChange();
  }

  get error(): Error | undefined { return this.#error; }
  set error(error) {
    this.#error = error;
    this.#onChange();
  }

  get messages(): UIMessage[] { return this.#messages; }
  set messages(messages) {
    this.#messages = messages;
    this.#onChange();
  }

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
  /** `onChange`: messages, status or error have changed. */
  constructor(init: ChatInit<UIMessage>, onChange: () => void = () => undefined) {
    super({ ...init, state: new PlainState(onChange) });
  }
}
