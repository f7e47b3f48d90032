/**
 * What a benchmark is: a figure, its floor, and how the two are measured together.
 *
 * Guarantee: figure and floor are sampled in turns in the same run, so that what else the machine does reaches both; which
 * of the two goes first alternates. The ratio is the median of the pairs' ratios, the value the median of the samples.
 * It asserts nothing: a figure below its aim is printed as such.
 */

/** `rate`: more is better, the ratio is figure / floor. `cost`: less is better (milliseconds, bytes), the ratio is figure / floor too. */
export type Kind = 'rate' | 'cost';

export interface Aim {
  /** At least this (a rate), or at most this (a cost), of the value or of the ratio. */
  readonly of: 'value' | 'ratio';
  readonly bound: number;
}

export interface Row {
  readonly figure: string;
  readonly unit: string;
  readonly kind: Kind;
  readonly aim?: Aim;
  readonly value: number;
  /** All samples, in the order they were taken. */
  readonly samples: readonly number[];
  /** What the floor is, in words; absent = there is none. */
  readonly floorIs?: string;
  readonly floor?: number;
  readonly floorSamples?: readonly number[];
  readonly ratio?: number;
  /** `acknowledged = written`, `acknowledged = synced`, or `-` where nothing is journaled. */
  readonly durability: string;
  /** What the reader must know to read the figure: who used the processors, what bounds it. */
  readonly notes: readonly string[];
}

export interface Measured {
  readonly figure: string;
  readonly unit: string;
  readonly kind: Kind;
  readonly aim?: Aim;
  readonly floorIs: string;
  readonly durability: string;
  /** One sample of each, in `unit`. */
  readonly sample: () => Promise<number>;
  readonly sampleFloor: () => Promise<number>;
  readonly notes?: () => readonly string[];
}

export interface Settings {
  /** Samples of each figure and of its floor. */
  readonly runs: number;
  /** Milliseconds of one sample, where it is a rate over a time. */
  readonly sampleMs: number;
  /** Whether nats-server syncs each message before it acknowledges. */
  readonly sync: boolean;
  /** Folder for CPU profiles of every process under measurement; absent = none. */
  readonly profiles: string | undefined;
  readonly say: (line: string) => void;
}

/** One group of figures that share their processes. Ends all of them before it resolves. */
export type Benchmark = (settings: Settings, add: (row: Row) => void) => Promise<void>;

export const durabilityOf = ({ sync }: Settings): string => (sync ? 'acknowledged = synced' : 'acknowledged = written');

export const median = (values: readonly number[]): number => {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? Number.NaN) + upper) / 2;
};

/** Pairs that do not count: code is compiled and caches fill during them. */
const warmups = 3;

/** Samples a figure and its floor in turns. */
export const measure = async (settings: Settings, what: Measured): Promise<Row> => {
  const samples: number[] = [];
  const floorSamples: number[] = [];
  for (let run = 0; run < warmups; run++) {
    await what.sampleFloor();
    await what.sample();
  }
  for (let run = 0; run < settings.runs; run++) {
    const first = run % 2 === 0;
    if (first) floorSamples.push(await what.sampleFloor());
    samples.push(await what.sample());
    if (!first) floorSamples.push(await what.sampleFloor());
  }
  const { figure, unit, kind, aim, floorIs, durability } = what;
  const row: Row = {
    figure, unit, kind, floorIs, durability, samples, floorSamples,
    value: median(samples), floor: median(floorSamples),
    ratio: median(samples.map((sample, i) => sample / (floorSamples[i] ?? Number.NaN))),
    notes: what.notes?.() ?? [],
    ...(aim === undefined ? {} : { aim }),
  };
  settings.say(`${row.figure}: ${shortNumber(row.value)} ${row.unit}, floor ${shortNumber(row.floor ?? Number.NaN)}, ratio ${(row.ratio ?? Number.NaN).toFixed(2)}`);
  return row;
};

/** True if the aim is reached; undefined where there is none. */
export const reached = ({ aim, kind, value, ratio }: Row): boolean | undefined => {
  if (aim === undefined) return undefined;
  const measured = aim.of === 'value' ? value : ratio ?? Number.NaN;
  return kind === 'rate' ? measured >= aim.bound : measured <= aim.bound;
};

/** Three significant digits, thousands apart. */
export const shortNumber = (value: number): string => {
  if (!Number.isFinite(value)) return '-';
  if (Math.abs(value) >= 1_000) return Math.round(Number(value.toPrecision(3))).toLocaleString('en-US');
  return String(Number(value.toPrecision(3)));
};
