/** A wait that can be ended early; an end that comes before the wait ends the next one, so that none is missed. */
export class Pause {
  #rung = false;
  readonly #ends = new Set<() => void>();

  /** Resolves after the time, or at the next `end`. */
  wait(ms: number): Promise<void> {
    if (this.#rung) {
      this.#rung = false;
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        this.#ends.delete(done);
        resolve();
      };
      const timer = setTimeout(done, ms);
      this.#ends.add(done);
    });
  }

  end(): void {
    if (this.#ends.size === 0) this.#rung = true;
    for (const done of this.#ends) done();
  }
}
