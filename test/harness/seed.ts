/**
 * Randomness with one printed seed: `TROUPE_SEED` repeats a run's drawn scripts and schedule (not the machine's own timing).
 */

export interface Draw {
  readonly seed: number;
  /** 0 (included) to 1 (excluded). */
  readonly next: () => number;
  /** A whole number, both ends included. */
  readonly int: (from: number, to: number) => number;
  readonly pick: <T>(items: readonly T[]) => T;
  /** A stream of its own for a part of the run: what one part draws does not depend on how far another has come. */
  readonly fork: (name: string) => Draw;
}

/** Numbers from 0 (included) to 1 (excluded): mulberry32. */
export const seeded = (seed: number): (() => number) => {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
};

const hash = (text: string): number => {
  let value = 0x811c9dc5;
  for (const char of text) value = Math.imul(value ^ char.charCodeAt(0), 0x01000193);
  return value >>> 0;
};

export const draw = (seed: number): Draw => {
  const next = seeded(seed);
  return {
    seed, next,
    int: (from, to) => from + Math.floor(next() * (to - from + 1)),
    pick: (items) => {
      const item = items[Math.floor(next() * items.length)];
      if (item === undefined) throw new TypeError('nothing to pick from');
      return item;
    },
    fork: (name) => draw((seed ^ hash(name)) >>> 0),
  };
};

/** `TROUPE_SEED`, or one drawn now. */
export const runSeed = (): number => Number(process.env['TROUPE_SEED'] ?? Math.floor(Math.random() * 1_000_000));
