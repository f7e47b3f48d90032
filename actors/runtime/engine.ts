/**
 * The engine of one host: finds or makes the activation a message is for, keeps their number, age and deadlines bounded,
 * and starts and stops them with the partitions the host holds (message.ts `Engine`).
 *
 * Guarantees (design G1, G5, G8):
 * E1  Nothing is served for a partition that is not held, nor past the lease; past it nothing begins to be committed either.
 *     The journal's fence is what makes it safe, the lease only makes it rare.
 * E2  At most `activationsMax` activations: the least recently used idle one makes room, else `overloaded`.
 * E3  An actor that cannot be activated for a bug stays unavailable for a growing pause; nothing hammers its journal.
 * E4  After `drain` everything acknowledged is in the journal and nothing of this engine runs any more.
 * It knows no NATS and no domain; who owns what is the cluster part's business.
 */
import type { Principal } from '../../contracts/capability.ts';
import { coded, CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { addressTokens, partitionOfTokens, type ActorAddress } from '../../contracts/subjects.ts';
import { refusalOf } from '../../contracts/validate.ts';
import { Activation } from './activation.ts';
import { Alarms, systemArm, type Arm } from './alarm.ts';
import { compile, type Compiled } from './compile.ts';
import type { Access, ActorDefinition, ErasedCommand, ForkPoint } from './define.ts';
import { forgetActor } from './forget.ts';
import { forkBase } from './fork.ts';
import type { Log } from './log.ts';
import { overdue } from './mailbox.ts';
import type { Engine, EngineStats, Message, Sender } from './message.ts';
import { passivateCommand } from './passivate.ts';
import { ReminderIndex } from './reminders.ts';
import type { Counts, Parked, Resident, Site } from './site.ts';
import type { Clock, Journal, LastValue } from './store.ts';
import { Ulids } from './ulid.ts';

export interface EngineOptions {
  readonly definitions: readonly ActorDefinition[];
  /** Partitions of the cluster. */
  readonly partitions: number;
  readonly stores: { readonly journal: Journal; readonly snapshots: LastValue; readonly reminders: LastValue };
  readonly sender: Sender;
  readonly clock: Clock;
  readonly log: Log;
  /** The host's name, written into epoch records. */
  readonly host: string;
  /** The platform's timer. Default `setTimeout`, not keeping the process alive. */
  readonly arm?: Arm;
  /** Default `limits.activationsMax`. */
  readonly activationsMax?: number;
}

/** One type's activations, the least recently used first. */
interface TypeList {
  readonly compiled: Compiled;
  first: Resident | undefined;
  last: Resident | undefined;
}

interface Failure {
  readonly error: CodedError;
  readonly count: number;
  /** Monotonic milliseconds until which it is not tried again. */
  readonly until: number;
}

/** Idle candidates looked at per type when room is needed. */
const victimsMax = 64;

const admits = (access: Access, principal: Principal): boolean => {
  switch (principal.kind) {
    case 'user': case 'integrator': return access === 'public';
    case 'system': return access !== 'self';
    case 'self': return true;
  }
};

class LocalEngine implements Engine {
  readonly held = new Map<number, number>();
  readonly closed: Promise<void>;

  readonly #options: EngineOptions;
  readonly #types = new Map<string, TypeList>();
  readonly #activations = new Map<string, Activation>();
  readonly #failures = new Map<string, Failure>();
  /** Actors that are being forgotten. */
  readonly #forgetting = new Set<string>();
  /** Partitions that may commit: those held, and those whose hand-over is not finished. */
  readonly #owned = new Map<number, number>();
  readonly #waiting = new Set<Resident>();
  readonly #parked = new Set<Parked>();
  readonly #site: Site;
  readonly #counts: Counts = { turns: 0, commits: 0, effects: 0, appends: 0, waiting: 0 };
  readonly #clock: Clock;
  readonly #activationsMax: number;
  #kicked: Parked[] = [];
  /** Recoveries under way, and those that wait; at most one an activation. */
  #recovering = 0;
  readonly #recoveries: ((done: () => void) => void)[] = [];
  readonly #recovered = (): void => {
    this.#recovering -= 1;
    const next = this.#recoveries.shift();
    if (next !== undefined) this.#admit(next);
  };
  /** Until the first `leaseUntil` the host has no lease to lose (one host, tests). */
  #lease = Number.POSITIVE_INFINITY;
  #leaseAlarm: ReturnType<Alarms['set']> | undefined;
  #state: 'open' | 'draining' | 'closed' = 'open';
  #drained: Promise<void> | undefined;
  #closedNow: () => void = () => undefined;
  readonly #wall: Alarms;

  constructor(options: EngineOptions) {
    this.#options = options;
    this.#clock = options.clock;
    this.#activationsMax = options.activationsMax ?? limits.activationsMax;
    this.closed = new Promise((resolve) => { this.#closedNow = resolve; });
    for (const definition of options.definitions) {
      if (this.#types.has(definition.type)) throw new TypeError(`There are two actors of type ${definition.type}`);
      this.#types.set(definition.type, { compiled: compile(definition), first: undefined, last: undefined });
    }
    const { clock, log, stores } = options;
    const arm = options.arm ?? systemArm;
    this.#wall = new Alarms(() => clock.now(), arm);
    this.#site = {
      host: options.host,
      partitions: options.partitions,
      journal: stores.journal,
      snapshots: stores.snapshots,
      reminders: new ReminderIndex({
        store: stores.reminders, clock, log,
        alarms: this.#wall,
        wake: async (self) => { await this.#wake(self); },
        holds: (partition) => this.held.has(partition),
      }),
      sender: options.sender,
      clock,
      ulids: new Ulids(() => clock.now()),
      log,
      alarms: new Alarms(() => clock.monotonic(), arm),
      counts: this.#counts,
      snapshotTypes: { refused: new Set() },
      owns: (partition, epoch) => this.#state !== 'closed' && this.#owned.get(partition) === epoch && clock.monotonic() < this.#lease,
      kick: (activation) => { this.#kick(activation); },
      admit: (start) => { this.#admit(start); },
      park: (activation) => { this.#parked.add(activation); },
      unpark: () => { this.#unpark(); },
      touched: (activation) => { this.#touch(activation); },
      waits: (activation, some) => {
        if (some) this.#waiting.add(activation);
        else this.#waiting.delete(activation);
      },
      ended: (activation, failure) => { this.#ended(activation, failure); },
    };
    this.#sweepLater();
  }

  // --- messages ------------------------------------------------------------------------------------------------------

  deliver(message: Message): Promise<unknown> {
    try {
      if (this.#state !== 'open') throw coded('draining');
      const monotonic = this.#clock.monotonic();
      if (monotonic >= this.#lease) throw coded('not_owner');
      const late = overdue(message, monotonic);
      if (late !== undefined) throw late;
      const key = message.tokens ?? addressTokens(message.address);
      if (message.command === passivateCommand) return this.#putDown(message, key);
      const active = this.#activations.get(key);
      const type = active?.compiled ?? this.#type(message.address, key);
      const command = type.commands.get(message.command);
      if (command === undefined) throw coded('unknown_command');
      if (!admits(command.access, message.principal)) throw coded('forbidden');
      const parsed = command.input.safeParse(message.input);
      if (!parsed.success) throw refusalOf(parsed.error);
      if (command.fork !== undefined) return this.#fork(message, key, type, command, command.fork(parsed.data), parsed.data);
      return (active ?? this.#activate(message.address, key)).take(message, command, parsed.data);
    } catch (error) {
      return Promise.reject(error instanceof Error ? error : coded('internal_error'));
    }
  }

  async #putDown({ address, principal }: Message, key: string): Promise<{ readonly active: boolean }> {
    if (principal.kind !== 'system') throw coded('unknown_command');
    const active = this.#activations.get(key);
    if (active === undefined) this.#type(address, key);
    if (active === undefined || active.stopping) return { active: false };
    await active.stop(coded('no_owner', 'The actor is being put down: it begins anew in a moment.'));
    return { active: true };
  }

  /** Its origin's past cannot change, so it is read before the actor's turn. */
  async #fork(message: Message, key: string, compiled: Compiled, command: ErasedCommand, point: ForkPoint, input: unknown): Promise<unknown> {
    const base = await forkBase(this.#site, compiled, message.address, point);
    const active = this.#activations.get(key);
    if (active === undefined && this.#state !== 'open') throw coded('draining');
    return (active ?? this.#activate(message.address, key)).take(message, command, input, base);
  }

  /** The type of an actor without an activation; ownership comes first, because another host may run other code. */
  #type(address: ActorAddress, key: string): Compiled {
    if (!this.held.has(partitionOfTokens(key, this.#options.partitions))) throw coded('not_owner');
    const type = this.#types.get(address.type);
    if (type === undefined) throw coded('unknown_actor_type');
    return type.compiled;
  }

  async #wake(self: ActorAddress): Promise<void> {
    if (this.#state !== 'open') throw coded('draining');
    if (this.#clock.monotonic() >= this.#lease) throw coded('not_owner');
    const key = addressTokens(self);
    const activation = this.#activations.get(key) ?? (this.#type(self, key), this.#activate(self, key));
    await activation.wake();
  }

  #activate(address: ActorAddress, key: string): Activation {
    const partition = partitionOfTokens(key, this.#options.partitions);
    const epoch = this.held.get(partition);
    const list = this.#types.get(address.type);
    if (epoch === undefined || list === undefined) throw coded('not_owner');
    if (this.#forgetting.has(key)) throw coded('no_owner', 'The actor is being forgotten: it begins anew in a moment.');
    const failure = this.#failures.get(key);
    if (failure !== undefined && failure.until > this.#clock.monotonic()) throw failure.error;
    if (this.#activations.size >= this.#activationsMax && !this.#makeRoom()) throw coded('overloaded', 'The host has too many active actors.');
    const activation = new Activation(this.#site, list.compiled, address, key, partition, epoch);
    this.#activations.set(key, activation);
    this.#append(list, activation);
    activation.begin(failure !== undefined);
    return activation;
  }

  async forget(address: ActorAddress, seq: number): Promise<'forgotten' | 'busy' | 'moved'> {
    if (this.#state !== 'open') throw coded('draining');
    const key = addressTokens(address);
    const { spec } = this.#type(address, key);
    if (spec.forgetAfterMs === undefined) throw new TypeError(`actors of type ${spec.type} are not forgotten`);
    const partition = partitionOfTokens(key, this.#options.partitions);
    const epoch = this.held.get(partition);
    if (epoch === undefined) throw coded('not_owner');
    if (this.#activations.has(key) || this.#forgetting.has(key) || this.#site.reminders.known(key) !== undefined) return 'busy';
    this.#forgetting.add(key);
    try {
      return await forgetActor({ site: this.#site, actor: { self: address, key, partition, epoch }, seq }) ? 'forgotten' : 'moved';
    } finally {
      this.#forgetting.delete(key);
    }
  }

  // --- partitions ------------------------------------------------------------------------------------------------------

  hold(partition: number, epoch: number): void {
    if (this.#state !== 'open') return;
    const former = this.#owned.get(partition);
    if (former !== undefined && former !== epoch) {
      // Taken anew under another epoch: what runs under the old one ends here, the journal would refuse it anyway.
      for (const activation of this.#in(partition)) activation.discard(coded('not_owner'), undefined);
    }
    this.#owned.set(partition, epoch);
    this.held.set(partition, epoch);
    this.#site.reminders.load(partition);
  }

  async release(partition: number): Promise<void> {
    const epoch = this.held.get(partition);
    this.held.delete(partition);
    this.#site.reminders.unload(partition);
    await Promise.all(this.#in(partition).map(async (activation) => { await activation.stop(coded('not_owner')); }));
    // Unless it was taken again meanwhile.
    if (!this.held.has(partition) && this.#owned.get(partition) === epoch) this.#owned.delete(partition);
  }

  leaseUntil(monotonicMs: number): void {
    // It ran out before its alarm did (the process stood still): what began meanwhile was dropped, so nothing may go on as if it had not.
    if (this.#activations.size > 0 && this.#clock.monotonic() >= this.#lease) this.#expire();
    this.#lease = monotonicMs;
    this.#site.alarms.cancel(this.#leaseAlarm);
    this.#leaseAlarm = Number.isFinite(monotonicMs) ? this.#site.alarms.set(monotonicMs, () => { this.#expire(); }) : undefined;
  }

  #expire(): void {
    this.#options.log.warn({ activations: this.#activations.size }, 'lease expired: everything active ends');
    for (const activation of this.#activations.values()) activation.discard(coded('not_owner'), undefined);
  }

  #in(partition: number): Activation[] {
    return [...this.#activations.values()].filter((activation) => activation.partition === partition);
  }

  // --- the end ---------------------------------------------------------------------------------------------------------

  drain(): Promise<void> {
    this.#drained ??= this.#drain();
    return this.#drained;
  }

  async #drain(): Promise<void> {
    if (this.#state !== 'open') return;
    this.#state = 'draining';
    const { alarms } = this.#site;
    const stopped = Promise.all([...this.#activations.values()].map(async (activation) => { await activation.stop(coded('draining')); }));
    const given = new Promise<void>((resolve) => {
      alarms.set(this.#clock.monotonic() + limits.drainMs, () => {
        if (this.#state === 'draining') this.#options.log.warn({ activations: this.#activations.size }, 'drain took too long: the rest is left to the next owner');
        resolve();
      });
    });
    await Promise.race([stopped, given, this.closed]);
    this.close();
  }

  close(): void {
    if (this.#state === 'closed') return;
    this.#state = 'closed';
    this.held.clear();
    this.#owned.clear();
    // What has begun may yet be stored: an append cannot be called back.
    for (const activation of this.#activations.values()) activation.discard(coded('interrupted'), undefined);
    this.#site.reminders.close();
    this.#site.alarms.close();
    this.#wall.close();
    this.#closedNow();
  }

  stats(): EngineStats {
    return {
      activations: this.#activations.size,
      mailbox: this.#counts.waiting,
      turns: this.#counts.turns,
      commits: this.#counts.commits,
      effectsRunning: this.#counts.effects,
    };
  }

  // --- bookkeeping -----------------------------------------------------------------------------------------------------

  #kick(activation: Parked): void {
    if (activation.kicked) return;
    activation.kicked = true;
    // It is about to try again: a freed append must wake one that nobody else wakes.
    if (this.#parked.size > 0) this.#parked.delete(activation);
    this.#kicked.push(activation);
    if (this.#kicked.length > 1) return;
    queueMicrotask(() => {
      const kicked = this.#kicked;
      this.#kicked = [];
      for (const each of kicked) {
        each.kicked = false;
        each.pump();
      }
    });
  }

  #admit(start: (done: () => void) => void): void {
    if (this.#recovering >= limits.recoveriesMax) {
      this.#recoveries.push(start);
      return;
    }
    this.#recovering += 1;
    start(this.#recovered);
  }

  #unpark(): void {
    for (const activation of this.#parked) {
      this.#parked.delete(activation);
      this.#kick(activation);
      return;
    }
  }

  #ended(activation: Resident, failure: CodedError | undefined): void {
    if (this.#activations.get(activation.key) === activation) this.#activations.delete(activation.key);
    this.#parked.delete(activation);
    this.#waiting.delete(activation);
    const list = this.#types.get(activation.self.type);
    if (list !== undefined) this.#remove(list, activation);
    if (failure === undefined) {
      return;
    }
    const count = (this.#failures.get(activation.key)?.count ?? 0) + 1;
    const pauseMs = Math.min(limits.restartBaseMs * 2 ** (count - 1), limits.restartMaxMs);
    this.#failures.set(activation.key, { error: failure, count, until: this.#clock.monotonic() + pauseMs });
  }

  #touch(activation: Resident): void {
    const list = this.#types.get(activation.self.type);
    activation.usedAt = this.#clock.monotonic();
    if (list === undefined || list.last === activation || this.#activations.get(activation.key) !== activation) return;
    this.#remove(list, activation);
    this.#append(list, activation);
  }

  #append(list: TypeList, activation: Resident): void {
    activation.usedAt = this.#clock.monotonic();
    activation.previous = list.last;
    activation.next = undefined;
    if (list.last === undefined) list.first = activation;
    else list.last.next = activation;
    list.last = activation;
  }

  #remove(list: TypeList, activation: Resident): void {
    if (list.first !== activation && activation.previous === undefined) return;
    if (activation.previous === undefined) list.first = activation.next;
    else activation.previous.next = activation.next;
    if (activation.next === undefined) list.last = activation.previous;
    else activation.next.previous = activation.previous;
    activation.previous = undefined;
    activation.next = undefined;
  }

  /** Passivates the least recently used idle activation; it may still be saying goodbye while the new one begins. */
  #makeRoom(): boolean {
    const oldest: Resident[] = [];
    for (const list of this.#types.values()) {
      let looked = 0;
      for (let a = list.first; a !== undefined && looked < victimsMax; a = a.next, looked++) {
        if (!a.quiet) continue;
        oldest.push(a);
        break;
      }
    }
    oldest.sort((a, b) => a.usedAt - b.usedAt);
    return oldest[0]?.passivate() ?? false;
  }

  #sweepLater(): void {
    this.#site.alarms.set(this.#clock.monotonic() + limits.sweepMs, () => {
      this.#sweep();
      this.#sweepLater();
    });
  }

  #sweep(): void {
    const now = this.#clock.monotonic();
    for (const activation of this.#waiting) activation.sweep(now);
    let left: number = limits.passivationsMax;
    for (const list of this.#types.values()) {
      const idle: Resident[] = [];
      for (let a = list.first; a !== undefined && left > 0 && a.usedAt + list.compiled.spec.idleMs <= now; a = a.next) {
        if (!a.quiet) continue;
        idle.push(a);
        left -= 1;
      }
      for (const activation of idle) activation.passivate();
    }
    for (const [key, failure] of this.#failures) {
      if (failure.until + limits.wakeRetryMaxMs <= now) this.#failures.delete(key);
    }
  }
}

/** Makes an engine. Throws a TypeError for a definition that cannot work: two of one type, an event that JSON cannot hold. */
export const createEngine = (options: EngineOptions): Engine => new LocalEngine(options);
