/**
 * Effects: what a turn asked of the world, run after its commit and outside turns (define.ts A3, A5).
 *
 * Guarantees:
 * F1  An effect starts only while its activation serves and the host's lease is good: a zombie's effects do not run.
 * F2  Its outcome is one message to the same actor; the `done` turn's events and the effect's end are one commit. At the
 *     deadline and on `turn.abort` the outcome is decided at once; what the function still does is ignored, its calls are refused.
 * F3  A new activation resumes each effect without an end: at-least runs again, at-most ends as `interrupted`, lookup asks
 *     what became of it first, and as long as that cannot be answered it neither runs nor ends.
 * F4  At most `limits.effectsPerActorMax` run at once; the rest wait in the order of their intents.
 * Restarting an activation on the same host (a bug in a handler) does not disturb running effects. Two effects of one actor
 * may overtake each other, tells included.
 */
import { z } from 'zod';
import { CodedError, coded, shown } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';
import type { Compiled } from './compile.ts';
import type { EffectContext, ErasedEffect, Outcome } from './define.ts';
import type { Intent } from './fold.ts';
import { nameOf } from './name.ts';
import type { Site } from './site.ts';
import { tellEffect } from './turn.ts';

/** The activation, as its effects see it. */
export interface EffectOwner {
  readonly self: ActorAddress;
  readonly compiled: Compiled;
  /** The actor's state as committed. */
  readonly committed: unknown;
  intent(id: string): Intent | undefined;
  /** Whether effects may start now. */
  serves(): boolean;
  call(command: string, input: unknown): Promise<unknown>;
  /** Takes an outcome as a message. */
  outcome(id: string, outcome: Outcome<unknown>): void;
}

interface Run {
  readonly controller: AbortController;
  decided: boolean;
}

const failed = (code: string, message?: string): Outcome<never> => {
  const error = new CodedError(code, message);
  return { ok: false, code, message: error.message };
};

const tellInput = z.object({
  target: z.object({ org: z.string(), type: z.string(), key: z.string() }),
  command: z.string(),
  input: z.unknown().optional(),
});

export class EffectRunner {
  readonly #site: Site;
  readonly #owner: EffectOwner;
  readonly #runs = new Map<string, Run>();
  readonly #waiting: { readonly id: string; readonly resumed: boolean }[] = [];
  #stopped = false;

  constructor(site: Site, owner: EffectOwner) {
    this.#site = site;
    this.#owner = owner;
  }

  /** Starts a committed intent. `resumed`: a former activation may have begun it. */
  start(id: string, resumed: boolean): void {
    if (this.#stopped || this.#runs.has(id) || this.#waiting.some((w) => w.id === id)) return;
    if (this.#runs.size >= limits.effectsPerActorMax) this.#waiting.push({ id, resumed });
    else this.#begin(id, resumed);
  }

  /** `turn.abort`, committed. */
  abort(id: string): void {
    const at = this.#waiting.findIndex((w) => w.id === id);
    if (at >= 0) {
      this.#waiting.splice(at, 1);
      this.#owner.outcome(id, failed('aborted', 'The effect was aborted.'));
      return;
    }
    const run = this.#runs.get(id);
    if (run !== undefined) this.#decide(id, run, failed('aborted', 'The effect was aborted.'), coded('aborted', 'The effect was aborted.'));
  }

  /** The activation ends: everything is aborted, nothing has an outcome here any more. */
  stop(reason: CodedError): void {
    this.#stopped = true;
    this.#waiting.length = 0;
    for (const run of this.#runs.values()) {
      run.decided = true;
      this.#site.counts.effects -= 1;
      run.controller.abort(reason);
    }
    this.#runs.clear();
  }

  #begin(id: string, resumed: boolean): void {
    const intent = this.#owner.intent(id);
    if (intent === undefined || !this.#owner.serves()) return;
    if (intent.aborted) {
      this.#owner.outcome(id, failed('aborted', 'The effect was aborted.'));
      return;
    }
    const spec = this.#owner.compiled.effects.get(intent.name);
    if (intent.name !== tellEffect && spec === undefined) {
      this.#site.log.error({ ...nameOf(this.#owner.self), effect: intent.name, id }, 'effect given up: the code does not know it');
      this.#owner.outcome(id, failed('interrupted'));
      return;
    }
    if (resumed && spec?.once === 'at-most') {
      this.#owner.outcome(id, failed('interrupted'));
      return;
    }
    const run: Run = { controller: new AbortController(), decided: false };
    this.#runs.set(id, run);
    this.#site.counts.effects += 1;
    const work = spec === undefined ? this.#tell(id, intent, run) : this.#run(id, intent, spec, run, resumed);
    work.then(
      (outcome) => { this.#decide(id, run, outcome, undefined); },
      (error: unknown) => { this.#decide(id, run, this.#failure(id, intent, run, error), undefined); },
    );
  }

  #failure(id: string, intent: Intent, run: Run, error: unknown): Outcome<never> {
    if (!(error instanceof CodedError) && !run.decided) {
      this.#site.log.error({ ...nameOf(this.#owner.self), effect: intent.name, id, err: error }, 'effect failed without a code');
    }
    const { code, message } = shown(error);
    return { ok: false, code, message };
  }

  #decide(id: string, run: Run, outcome: Outcome<unknown>, abort: CodedError | undefined): void {
    if (run.decided) return;
    run.decided = true;
    this.#runs.delete(id);
    this.#site.counts.effects -= 1;
    this.#owner.outcome(id, outcome);
    if (abort !== undefined) run.controller.abort(abort);
    const next = this.#waiting.shift();
    if (next !== undefined) this.#begin(next.id, next.resumed);
  }

  async #run(id: string, intent: Intent, spec: ErasedEffect, run: Run, resumed: boolean): Promise<Outcome<unknown>> {
    const input = spec.input.parse(intent.input);
    const context = this.#context(id, intent, run);
    if (resumed && spec.once === 'lookup' && spec.lookup !== undefined) {
      const became = await this.#lookUp(id, intent, spec.lookup, context, input, run);
      if (became !== undefined) return became.ok ? { ok: true, output: spec.output.parse(became.output) } : became;
      // The lookup took its time: the lease may be gone.
      if (run.decided || !this.#owner.serves()) return failed('fenced');
    }
    const deadlineMs = spec.deadlineMs ?? limits.effectDeadlineMs;
    const alarm = this.#site.alarms.set(this.#site.clock.monotonic() + deadlineMs, () => {
      this.#decide(id, run, failed('deadline_exceeded'), coded('deadline_exceeded'));
    });
    try {
      return { ok: true, output: spec.output.parse(await spec.run(context, input)) };
    } finally {
      this.#site.alarms.cancel(alarm);
    }
  }

  /** Asks until there is an answer: neither running nor failing an effect whose fate is unknown would be right. */
  async #lookUp(
    id: string, intent: Intent, lookup: NonNullable<ErasedEffect['lookup']>, context: EffectContext<unknown>, input: unknown, run: Run,
  ): Promise<Outcome<unknown> | undefined> {
    for (let waitMs: number = limits.restartBaseMs; ; waitMs = Math.min(waitMs * 2, limits.restartMaxMs)) {
      try {
        return await lookup(context, input);
      } catch (error) {
        if (run.decided) throw error;
        this.#site.log.warn({ ...nameOf(this.#owner.self), effect: intent.name, id, err: error }, 'effect cannot be looked up, trying again');
      }
      await this.#pause(waitMs, run.controller.signal);
    }
  }

  /** The runtime's own effect: a durable tell, until it is stored. */
  async #tell(id: string, intent: Intent, run: Run): Promise<Outcome<unknown>> {
    const { target, command, input } = tellInput.parse(intent.input);
    for (let waitMs: number = limits.restartBaseMs; ; waitMs = Math.min(waitMs * 2, limits.restartMaxMs)) {
      try {
        await this.#site.sender.tell(target, command, input, id);
        return { ok: true, output: undefined };
      } catch (error) {
        if (run.decided) throw error;
        const lost = error instanceof CodedError && error.entry.kind === 'refusal';
        this.#site.log[lost ? 'error' : 'warn']({ ...nameOf(this.#owner.self), target: nameOf(target), command, id, err: error }, lost ? 'tell refused, given up' : 'tell failed, trying again');
        if (lost) throw error;
      }
      await this.#pause(waitMs, run.controller.signal);
    }
  }

  #pause(ms: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) {
        reject(coded('aborted'));
        return;
      }
      const give = (): void => {
        this.#site.alarms.cancel(alarm);
        reject(coded('aborted'));
      };
      const alarm = this.#site.alarms.set(this.#site.clock.monotonic() + ms, () => {
        signal.removeEventListener('abort', give);
        resolve();
      });
      signal.addEventListener('abort', give, { once: true });
    });
  }

  #context(id: string, intent: Intent, run: Run): EffectContext<unknown> {
    const owner = this.#owner;
    const site = this.#site;
    const gate = (): void => {
      if (!run.decided) return;
      const { reason } = run.controller.signal;
      throw this.#stopped ? coded('fenced') : reason instanceof CodedError ? reason : coded('aborted');
    };
    return {
      self: owner.self,
      id,
      attempt: intent.attempt,
      signal: run.controller.signal,
      state: () => owner.committed,
      call: async (command, input) => {
        gate();
        try {
          return await owner.call(command, input);
        } catch (error) {
          if (this.#stopped) throw coded('fenced', undefined, { cause: error });
          throw error;
        }
      },
      ask: async (target, command, input, step) => {
        gate();
        return await site.sender.ask({
          address: target,
          command,
          input,
          principal: { kind: 'system' },
          // The command is part of the key, so that two different asks of one effect are never taken for each other.
          id: `${id}/${command}/${step ?? ''}`,
          deadlineAt: site.clock.monotonic() + limits.askDeadlineMs,
          signal: run.controller.signal,
        });
      },
    };
  }
}
