/**
 * Gathers small grants of credit: streams that owe less than a quarter of the window are granted together after
 * `creditDelayMs`, so that a fan-out of small texts costs no credit frame a text. One timer for all streams.
 */
import { limits } from '../contracts/limits.ts';
import type { Clock } from './clock.ts';

export interface Creditor {
  grant(): void;
}

export class Credits {
  readonly #clock: Clock;
  readonly #waiting = new Set<Creditor>();
  #stop: (() => void) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  soon(creditor: Creditor): void {
    this.#waiting.add(creditor);
    this.#stop ??= this.#clock.after(limits.creditDelayMs, () => this.#grantAll());
  }

  close(): void {
    this.#stop?.();
    this.#stop = undefined;
    this.#waiting.clear();
  }

  #grantAll(): void {
    this.#stop = undefined;
    const due = [...this.#waiting];
    this.#waiting.clear();
    for (const creditor of due) creditor.grant();
  }
}
