/**
 * The receiving end of durable tells: one pull consumer per held partition on the stream INBOX, delivered into the engine.
 *
 * Guarantees (design G4)
 * I1  A tell is acknowledged only after the engine answered, that is, after its turn was committed; its id makes a second
 *     delivery change nothing.
 * I2  What certainly did nothing (`not_owner`, `draining`) is given back, with growing waits, and is not counted by this host.
 *     A fault is tried again
 *     with growing waits, `limits.tellDeliveriesMax` times; one that says nothing about the message (load, a silent journal)
 *     until the server counts `limits.tellRedeliveriesMax` deliveries, which also ends a message that kills its host. A
 *     refusal, a bug, or a message that cannot be read goes to the stream DEADLETTER at once, with the reason; only when
 *     that is stored, the message leaves the inbox.
 * I3  At most `limits.inboxInFlightMax` tells of a partition are handled at once. The pull exists only while the partition
 *     is held; the durable consumer, which keeps the server's count of deliveries, outlives a hand-over.
 * I4  A tell that takes long is prolonged; one whose host is lost comes again after `limits.tellAckMs`.
 * Tells of one actor are handled in the order they were stored unless one of them fails.
 */
import { createInbox, headers, type Msg, type NatsConnection, type Subscription } from 'nats';
import { coded, CodedError, shown } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { deadLetterSubject, parseInboxSubject, streams, wildcards, type ParsedCommand } from '../../../contracts/subjects.ts';
import type { Log } from '../log.ts';
import type { Engine } from '../message.ts';
import type { Lean } from '../nats/lean.ts';
import { deadLetterHeaders } from './deadletter.ts';
import { decodeTell, type Tell } from './tell.ts';

export interface InboxOptions {
  readonly nc: NatsConnection;
  readonly lean: Lean;
  readonly engine: Engine;
  readonly log: Log;
  readonly replicas: number;
}

export interface InboxReader {
  /** Begins to deliver the partition's tells. */
  start(n: number): void;
  /** Stops delivering; what is not being handled yet is given back at once. What is being handled ends on its own. */
  stop(n: number): void;
  /** Pulls anew everywhere: after a reconnection. */
  wake(): void;
  /** Stops everything. */
  close(): void;
}

interface ApiReply { readonly error?: { readonly code?: number; readonly err_code?: number; readonly description?: string } }

/** Faults that say nothing about the message: load, a lost host, a journal that does not answer. */
const worldly: ReadonlySet<string> = new Set(['overloaded', 'mailbox_full', 'journal_unavailable', 'fenced', 'interrupted']);

const nanos = (ms: number): number => ms * 1_000_000;
const durable = (n: number): string => `partition-${n}`;

/** Stream sequence and the server's count of deliveries, from the acknowledgement subject (9 tokens, or 11 and more with a domain). */
export const deliveryOf = (reply: string): { readonly seq: number; readonly deliveries: number } => {
  const tokens = reply.split('.');
  const at = tokens.length === 9 ? 4 : 6;
  return { deliveries: Number(tokens[at]), seq: Number(tokens[at + 1]) };
};

/** What a header line may hold. The body keeps the whole. */
// oxlint-disable-next-line no-control-regex
const oneLine = (text: string): string => text.replace(/[\u0000-\u001f\u007f]+/g, ' ');

const backoffMs = (faults: number): number => Math.min(limits.tellRetryMaxMs, limits.tellRetryBaseMs * 2 ** Math.min(faults, 20));

/** Reads one partition. */
class PartitionInbox {
  readonly #n: number;
  readonly #options: InboxOptions;
  #state: 'opening' | 'pulling' | 'stopped' = 'opening';
  #creating = false;
  #subscription: Subscription | undefined;
  /** Messages the open pull may still bring; 0 = no pull is open. */
  #expected = 0;
  #heardMs = 0;
  #timer: NodeJS.Timeout | undefined;
  /** Being handled: acknowledgement subject → true. */
  readonly #handling = new Set<string>();
  /** Stream sequence → faults met here. Bounded by what the consumer lets wait. */
  readonly #faults = new Map<number, number>();
  /** Stream sequence → times it was given back untried: the server counts those deliveries, but they say nothing. Bounded as `#faults`. */
  readonly #givenBack = new Map<number, number>();

  constructor(n: number, options: InboxOptions) {
    this.#n = n;
    this.#options = options;
    void this.#open();
  }

  #schedule(ms: number, act: () => void): void {
    clearTimeout(this.#timer);
    if (this.#state !== 'stopped') this.#timer = setTimeout(act, ms);
  }

  /** Makes sure that the consumer exists and pulls; tries again until it does. One at a time. */
  async #open(): Promise<void> {
    if (this.#creating) return;
    this.#state = 'opening';
    this.#expected = 0;
    this.#creating = true;
    try {
      await this.#createConsumer();
    } catch (error) {
      if (this.#stopped()) return;
      this.#options.log.warn({ err: error, partition: this.#n }, 'the inbox consumer could not be made; trying again');
      this.#schedule(limits.inboxRetryMs, () => void this.#open());
      return;
    } finally {
      this.#creating = false;
    }
    if (this.#stopped()) return;
    this.#state = 'pulling';
    if (this.#subscription === undefined || this.#subscription.isClosed()) {
      this.#subscription = this.#options.nc.subscribe(createInbox(), { callback: (error, msg) => this.#onMessage(error, msg) });
    }
    this.#pull();
    this.#watch();
  }

  #stopped(): boolean {
    return this.#state === 'stopped';
  }

  async #createConsumer(): Promise<void> {
    const name = durable(this.#n);
    const config = {
      durable_name: name, name,
      filter_subject: wildcards.inbox(this.#n),
      ack_policy: 'explicit', ack_wait: nanos(limits.tellAckMs), max_deliver: -1,
      max_ack_pending: limits.inboxInFlightMax * 16, deliver_policy: 'all', replay_policy: 'instant',
      inactive_threshold: nanos(limits.inboxConsumerIdleMs), num_replicas: this.#options.replicas,
    };
    const body = JSON.stringify({ stream_name: streams.inbox, config });
    const reply = await this.#options.lean.request(`$JS.API.CONSUMER.CREATE.${streams.inbox}.${name}.${wildcards.inbox(this.#n)}`, body, { timeoutMs: limits.appendAckMs });
    const { error } = reply.json<ApiReply>();
    if (error !== undefined) throw coded('journal_unavailable', 'The inbox consumer was refused.', { cause: error });
  }

  #pull(): void {
    if (this.#state !== 'pulling' || this.#expected > 0 || this.#subscription === undefined) return;
    const room = limits.inboxInFlightMax - this.#handling.size;
    if (room <= 0) return;
    const request = { batch: room, expires: nanos(limits.inboxPullMs), idle_heartbeat: nanos(limits.inboxHeartbeatMs) };
    const sent = this.#options.lean.publish(`$JS.API.CONSUMER.MSG.NEXT.${streams.inbox}.${durable(this.#n)}`, JSON.stringify(request), {
      reply: this.#subscription.getSubject(),
    });
    // Not connected: `wake` pulls when the connection is there again.
    if (sent) this.#expected = room;
    this.#heardMs = performance.now();
  }

  /** Prolongs what is being handled, and pulls anew when the server fell silent. */
  #watch(): void {
    this.#schedule(limits.tellAckMs / 3, () => {
      for (const reply of this.#handling) this.#options.lean.publish(reply, '+WPI');
      if (performance.now() - this.#heardMs > 2 * limits.inboxHeartbeatMs + limits.tellAckMs) void this.#open();
      else {
        this.#pull();
        this.#watch();
      }
    });
  }

  #onMessage(error: Error | null, msg: Msg): void {
    if (error !== null) {
      this.#options.log.error({ err: error, partition: this.#n }, 'the inbox subscription was refused');
      return;
    }
    this.#heardMs = performance.now();
    const status = msg.reply === undefined || !msg.reply.startsWith('$JS.ACK.') ? msg.headers?.code ?? 0 : 0;
    switch (status) {
      case 0: break;
      case 100: return;
      case 404: case 408: {
        // The pull ended: its time is over, or nothing was there.
        this.#expected = 0;
        this.#pull();
        return;
      }
      default: {
        // The consumer is gone, its leader moved, or JetStream does not answer: make sure that it exists, after a moment.
        if (this.#stopped()) return;
        this.#expected = 0;
        this.#schedule(limits.inboxRetryMs, () => void this.#open());
        return;
      }
    }
    if (this.#expected > 0) this.#expected--;
    if (this.#stopped()) {
      this.#settle(msg, '-NAK');
      return;
    }
    void this.#handle(msg);
  }

  #settle(msg: Msg, verdict: string): void {
    // Lost with the connection, it comes again after the ack wait and its id makes it harmless.
    if (msg.reply !== undefined) this.#options.lean.publish(msg.reply, verdict);
  }

  async #handle(msg: Msg): Promise<void> {
    const reply = msg.reply ?? '';
    const { seq, deliveries } = deliveryOf(reply);
    // The receive buffer is reused; what must outlive this turn is copied out now.
    const text = msg.string();
    const subject = msg.subject;
    this.#handling.add(reply);
    let verdict: string;
    try {
      verdict = await this.#deliver(subject, text, seq, deliveries);
    } finally {
      this.#handling.delete(reply);
    }
    this.#settle(msg, verdict);
    if (verdict === '+ACK' || verdict === '+TERM') {
      this.#faults.delete(seq);
      this.#givenBack.delete(seq);
    }
    this.#pull();
  }

  /** Delivers one tell and gives the acknowledgement. Never rejects. */
  async #deliver(subject: string, text: string, seq: number, deliveries: number): Promise<string> {
    let target: ParsedCommand | undefined;
    let tell: Tell | undefined;
    const givenBack = this.#givenBack.get(seq) ?? 0;
    const crashed = deliveries - givenBack > limits.tellRedeliveriesMax;
    try {
      target = parseInboxSubject(subject);
      tell = decodeTell(text);
      if (crashed) throw coded('deadline_exceeded', 'The message was delivered too often without an end.');
      const { org, type, key, command } = target;
      await this.#options.engine.deliver({ address: { org, type, key }, command, input: tell.input, principal: { kind: 'system' }, id: tell.id });
      return '+ACK';
    } catch (error) {
      const { kind, retry } = error instanceof CodedError ? error.entry : { kind: 'bug' as const, retry: 'never' as const };
      if (!crashed && retry === 'safe') {
        this.#givenBack.set(seq, givenBack + 1);
        return nak(backoffMs(givenBack));
      }
      if (!crashed && kind !== 'bug' && retry === 'later') {
        const faults = (this.#faults.get(seq) ?? 0) + 1;
        this.#faults.set(seq, faults);
        if (faults < limits.tellDeliveriesMax || worldly.has(error instanceof CodedError ? error.code : '')) return nak(backoffMs(faults));
      }
      return this.#bury(subject, text, seq, deliveries, target, tell, error);
    }
  }

  async #bury(subject: string, text: string, seq: number, deliveries: number, target: ParsedCommand | undefined, tell: Tell | undefined, error: unknown): Promise<string> {
    const { code, message } = shown(error);
    try {
      const head = headers();
      head.set('Nats-Msg-Id', `${streams.inbox}-${seq}`);
      head.set(deadLetterHeaders.code, code);
      head.set(deadLetterHeaders.message, oneLine(message));
      head.set(deadLetterHeaders.subject, subject);
      head.set(deadLetterHeaders.deliveries, String(deliveries));
      if (tell !== undefined) head.set(deadLetterHeaders.id, oneLine(tell.id));
      const address = target ?? { org: '', type: '', key: '', command: '' };
      const reply = await this.#options.lean.request(deadLetterSubject(address, address.command), text, { headers: head, timeoutMs: limits.appendAckMs });
      const ack = reply.json<ApiReply>();
      if (ack.error !== undefined) throw coded('journal_unavailable', 'The dead letter was not stored.', { cause: ack.error });
      this.#options.log.error({ err: error, subject, id: tell?.id, deliveries, code }, 'a durable message went to the dead letters');
      return '+TERM';
    } catch (fault) {
      this.#options.log.warn({ err: fault, subject }, 'a dead letter could not be stored; the message is kept');
      return nak(limits.tellRetryMaxMs);
    }
  }

  wake(): void {
    if (this.#stopped()) return;
    // Messages on the way were lost with the connection; the open pull too.
    clearTimeout(this.#timer);
    void this.#open();
  }

  stop(): void {
    if (this.#stopped()) return;
    this.#state = 'stopped';
    clearTimeout(this.#timer);
    const subscription = this.#subscription;
    if (subscription === undefined || subscription.isClosed()) return;
    // Draining hands us what is on the way, which is given back (#onMessage), instead of leaving it to the ack wait.
    subscription.drain().catch((error: unknown) => this.#options.log.debug({ err: error }, 'an inbox subscription ended with its connection'));
  }
}

const nak = (ms: number): string => `-NAK ${JSON.stringify({ delay: nanos(ms) })}`;

export const createInboxReader = (options: InboxOptions): InboxReader => {
  const partitions = new Map<number, PartitionInbox>();
  const stop = (n: number): void => {
    partitions.get(n)?.stop();
    partitions.delete(n);
  };
  return {
    start(n) {
      stop(n);
      partitions.set(n, new PartitionInbox(n, options));
    },
    stop,
    wake() { for (const partition of partitions.values()) partition.wake(); },
    close() { for (const partition of partitions.values()) partition.stop(); partitions.clear(); },
  };
};
