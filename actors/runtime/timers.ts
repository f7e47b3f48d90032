/** An actor's volatile timers (`turn.timer`): one per command, gone with the activation, and keeping it from idling. */
import type { Alarm } from './alarm.ts';
import { nameOf } from './name.ts';
import type { Site } from './site.ts';
import type { EffectOwner } from './effects.ts';
import type { TimerRequest } from './turn.ts';

export class Timers {
  readonly #site: Site;
  readonly #owner: Pick<EffectOwner, 'self' | 'call'>;
  readonly #alarms = new Map<string, Alarm>();

  constructor(site: Site, owner: Pick<EffectOwner, 'self' | 'call'>) {
    this.#site = site;
    this.#owner = owner;
  }

  get empty(): boolean {
    return this.#alarms.size === 0;
  }

  /** Sets what a turn asked for; a timer of the same command is replaced. */
  set(requests: readonly TimerRequest[]): void {
    const { alarms, clock, log } = this.#site;
    for (const { command, afterMs, input } of requests) {
      alarms.cancel(this.#alarms.get(command));
      this.#alarms.set(command, alarms.set(clock.monotonic() + afterMs, () => {
        this.#alarms.delete(command);
        this.#owner.call(command, input).catch((error: unknown) => {
          log.warn({ ...nameOf(this.#owner.self), command, err: error }, 'timer failed');
        });
      }));
    }
  }

  stop(): void {
    for (const alarm of this.#alarms.values()) this.#site.alarms.cancel(alarm);
    this.#alarms.clear();
  }
}
