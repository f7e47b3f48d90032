/**
 * What a client says on its stream, brought to the session actor: send, approve, cancel.
 *
 * Guarantees: checked again with the contract's schema, whatever the gateway checked; handled in the order it came, one at a time;
 * at most `limits.linkStreamCommandsMax` wait. Each has an id of its own, so that the router may safely repeat it over a hand-over.
 * A refusal that would be the same again changes nothing on the stream (the actor shows what it has to say as events); what did not
 * reach the actor ends the stream with 4004, so that the client comes back and says it again: nothing is lost in silence.
 */
import { randomUUID } from 'node:crypto';
import type { CloseName } from '../../contracts/close.ts';
import { CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { UserPrincipal } from '../../contracts/routes.ts';
import { wireOutbound, type WireOutbound } from '../../contracts/stream.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';
import type { Sender } from '../runtime/message.ts';
import type { Log } from './log.ts';

export interface CommandsOptions {
  readonly address: ActorAddress;
  readonly principal: UserPrincipal;
  readonly actors: Pick<Sender, 'ask'>;
  readonly log: Log;
  /** False: whoever says something must not. Default true. */
  readonly mayWrite?: () => boolean;
  /** The stream must end: a message was not understood or did not get through. */
  readonly onFail: (name: CloseName) => void;
}

export class ClientCommands {
  readonly #options: CommandsOptions;
  readonly #attachment = randomUUID();
  readonly #waiting: string[] = [];
  readonly #ended = new AbortController();
  #count = 0;
  #running = false;

  constructor(options: CommandsOptions) {
    this.#options = options;
  }

  take(text: string): void {
    if (this.#ended.signal.aborted) return;
    if (this.#waiting.length >= limits.linkStreamCommandsMax) {
      this.#fail('upstream_unavailable');
      return;
    }
    this.#waiting.push(text);
    if (this.#running) return;
    this.#run().catch((error: unknown) => {
      this.#options.log.error({ err: error }, 'a client message failed on our side');
      this.#fail('internal_error');
    });
  }

  /** The stream is gone: what still waits is forgotten, what runs goes on without it. */
  end(): void {
    this.#ended.abort();
    this.#waiting.length = 0;
  }

  async #run(): Promise<void> {
    this.#running = true;
    try {
      for (let text = this.#waiting.shift(); text !== undefined; text = this.#waiting.shift()) await this.#handle(text);
    } finally {
      this.#running = false;
    }
  }

  async #handle(text: string): Promise<void> {
    const { address, principal, actors, log } = this.#options;
    const message = parse(text);
    if (message === undefined) {
      this.#fail('invalid_payload');
      return;
    }
    const asked = askOf(message, principal.sub);
    // The gateway answers pings and closes itself; nothing is meant for the actor.
    if (asked === undefined) return;
    if (this.#options.mayWrite?.() === false) {
      this.#fail('token_expired');
      return;
    }
    this.#count += 1;
    try {
      await actors.ask({
        address, command: asked.command, input: asked.input, principal,
        id: `${this.#attachment}.${this.#count}`, deadlineAt: performance.now() + limits.askDeadlineMs,
      });
    } catch (error) {
      if (!(error instanceof CodedError) || error.entry.kind === 'bug') throw error;
      log.debug({ sid: address.key, command: asked.command, code: error.code }, 'a client message was refused');
      if (error.entry.kind === 'fault' || error.entry.retry !== 'never') this.#fail('upstream_unavailable');
    }
  }

  #fail(name: CloseName): void {
    if (this.#ended.signal.aborted) return;
    this.end();
    this.#options.onFail(name);
  }
}

const parse = (text: string): WireOutbound | undefined => {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  const parsed = wireOutbound.safeParse(value);
  return parsed.success ? parsed.data : undefined;
};

const askOf = (message: WireOutbound, userId: string): { readonly command: string; readonly input: unknown } | undefined => {
  switch (message.kind) {
    case 'send_message': {
      const { kind: _kind, ...rest } = message;
      return { command: 'send', input: { ...rest, user_id: userId } };
    }
    case 'approve_dispatch':
      return { command: 'approve', input: { user_id: userId, dispatch_id: message.dispatch_id } };
    case 'cancel_dispatch':
      return { command: 'cancel', input: { user_id: userId, dispatch_id: message.dispatch_id } };
    case 'ping':
    case 'close':
      return undefined;
  }
};
