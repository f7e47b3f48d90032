/**
 * What moves between the parts of the runtime: the message an actor handles, what a host's engine offers to the cluster part
 * (placement, NATS) and what it needs back from it (a way to reach other actors).
 */
import type { Principal } from '../../contracts/capability.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';

/** One message to one actor. `input` is decoded JSON, not yet validated. */
export interface Message {
  readonly address: ActorAddress;
  /** `addressTokens(address)`, from a sender that has made or parsed them already. */
  readonly tokens?: string;
  readonly command: string;
  readonly input: unknown;
  readonly principal: Principal;
  /** Dedup id: of an inbox message (its message id) or of an ask (its idempotency key). */
  readonly id?: string;
  /** Monotonic milliseconds after which nobody waits for the answer: the message is dropped with `deadline_exceeded` if its turn has not begun. */
  readonly deadlineAt?: number;
  readonly signal?: AbortSignal;
}

/** The engine of one host: runs the actors of the partitions the host holds. */
export interface Engine {
  /** Takes a partition under an epoch: messages to its actors are served from now on, and its due reminders are loaded. */
  hold(partition: number, epoch: number): void;
  /** Hand-over: refuses new messages with `not_owner`, lets running turns commit, aborts effects (the next owner resumes them), snapshots, passivates. Resolves when nothing of the partition can commit any more. */
  release(partition: number): Promise<void>;
  /** Partition → epoch. */
  readonly held: ReadonlyMap<number, number>;
  /** Monotonic milliseconds until which the host's lease is good. Past it, nothing is served or committed (`not_owner`), effects are aborted. */
  leaseUntil(monotonicMs: number): void;
  /** Runs one message and gives its output. Throws coded errors: `not_owner`, `unknown_actor_type`, `unknown_command`, `validation_error`, `forbidden` (access), `mailbox_full`, `overloaded`, `deadline_exceeded`, `draining`, `fenced`, `journal_unavailable`, the actor's refusals. */
  deliver(message: Message): Promise<unknown>;
  /**
   * Forgets an actor to which nothing has happened since the commit with that stream sequence (forget.ts). `busy`: it is active here or has a
   * reminder; `moved`: something has happened since. Throws `not_owner`, `draining`, `journal_unavailable`; a TypeError for a type that is not to be forgotten.
   */
  forget(address: ActorAddress, seq: number): Promise<'forgotten' | 'busy' | 'moved'>;
  /** Finishes turns, aborts effects (left for the next owner), snapshots, passivates everything; then `closed` resolves. */
  drain(): Promise<void>;
  /** Stops at once: nothing more is committed or answered. */
  close(): void;
  /** Resolves when a drain has finished or after `close`. */
  readonly closed: Promise<void>;
  stats(): EngineStats;
}

export interface EngineStats {
  readonly activations: number;
  readonly mailbox: number;
  readonly turns: number;
  readonly commits: number;
  readonly effectsRunning: number;
}

/** How an engine reaches actors anywhere in the cluster. */
export interface Sender {
  ask(message: Message): Promise<unknown>;
  /** Durable; resolves when stored. */
  tell(address: ActorAddress, command: string, input: unknown, id: string): Promise<void>;
}
