/**
 * ULIDs (github.com/ulid/spec) for events, effects and messages, made on the hot path.
 *
 * Guarantees: ids of one `Ulids` ascend strictly, also when the clock stands or goes back; `after(floor)` gives an id above
 * `floor` too, so that an actor's ids ascend across hosts whose clocks differ. 40 random bits per millisecond and process
 * are drawn from the system's generator, 40 more count up from a random start: ids are unique, not secret.
 */
import { randomBytes } from 'node:crypto';

const alphabet = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
/** Two characters for each 10 bits. */
const pairs: readonly string[] = Array.from({ length: 1024 }, (_, i) => alphabet.charAt(i >> 5) + alphabet.charAt(i & 31));
const pair = (bits: number): string => pairs[bits & 1023] ?? '';

const encode40 = (value: number): string => {
  const high = Math.floor(value / 0x100000);
  const low = value % 0x100000;
  return pair(high >> 10) + pair(high) + pair(low >> 10) + pair(low);
};
const encodeTime = (ms: number): string => encode40(Math.floor(ms / 1024)) + pair(ms % 1024);

const counterLimit = 2 ** 40;

/** The id that follows `id` directly: its last characters counted up by one. */
const increment = (id: string): string => {
  let i = id.length - 1;
  while (i >= 0 && id.charAt(i) === 'Z') i--;
  if (i < 0) throw new RangeError('There is no ULID above this one.');
  const next = alphabet.charAt(alphabet.indexOf(id.charAt(i)) + 1);
  return id.slice(0, i) + next + '0'.repeat(id.length - 1 - i);
};

export class Ulids {
  readonly #now: () => number;
  #ms = -1;
  #prefix = '';
  #counter = 0;

  constructor(now: () => number) {
    this.#now = now;
  }

  next(): string {
    const now = this.#now();
    if (now > this.#ms || this.#counter >= counterLimit) {
      this.#ms = now > this.#ms ? now : this.#ms + 1;
      const random = randomBytes(10);
      this.#prefix = encodeTime(this.#ms) + encode40(random.readUIntBE(0, 5));
      // Half the range is left to count up in.
      this.#counter = Math.floor(random.readUIntBE(5, 5) / 2);
    }
    return this.#prefix + encode40(this.#counter++);
  }

  /** An id above `floor` ('' = none). */
  after(floor: string): string {
    const id = this.next();
    return id > floor ? id : increment(floor);
  }
}
