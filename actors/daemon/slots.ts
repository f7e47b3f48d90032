/** A bound on how much runs at once: `run` waits for a free place, in order. The wait itself is bounded by whoever calls. */
export class Slots {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(count: number) {
    this.#free = count;
  }

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free -= 1;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      // The place passes on, so that nobody who comes between takes it.
      if (next === undefined) this.#free += 1;
      else next();
    }
  }
}
