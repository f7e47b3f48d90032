/**
 * Exact arithmetic on decimal text: a small recursive-descent parser over fractions of big integers. No eval, no floats.
 *
 *   sum     = product { (+|-) product }         product = signed { (*|/|%) signed }
 *   signed  = { + | - } power                   power   = atom [ (^|**) signed ]      atom = number | ( sum )
 *
 * Errors: refusal `bad_expression` with what is wrong and where, also for a division by zero. Bounded: the text, the depth of
 * brackets, and the digits of every intermediate value (limits.calculation*), so no input takes long.
 */
import { refuse } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';

/** numerator / denominator, lowest terms, denominator > 0. */
export interface Fraction {
  readonly n: bigint;
  readonly d: bigint;
}

const gcd = (a: bigint, b: bigint): bigint => {
  let [x, y] = [a < 0n ? -a : a, b];
  while (y !== 0n) [x, y] = [y, x % y];
  return x;
};
const bad = (problem: string): Error => refuse('bad_expression', problem);
const bitsMax = Math.floor(limits.calculationDigitsMax * Math.log2(10));
const bits = (value: bigint): number => (value < 0n ? -value : value).toString(16).length * 4;

const fraction = (n: bigint, d: bigint): Fraction => {
  if (d === 0n) throw bad('division by zero');
  const by = gcd(n, d < 0n ? -d : d) || 1n;
  const made = d < 0n ? { n: -n / by, d: -d / by } : { n: n / by, d: d / by };
  if (bits(made.n) > bitsMax || bits(made.d) > bitsMax) throw bad(`a value has more than ${limits.calculationDigitsMax} digits`);
  return made;
};

const power = (base: Fraction, exponent: Fraction): Fraction => {
  if (exponent.d !== 1n) throw bad('only whole exponents are supported');
  const e = exponent.n < 0n ? -exponent.n : exponent.n;
  const size = Math.max(bits(base.n), bits(base.d));
  const trivial = base.d === 1n && (base.n === 0n || base.n === 1n || base.n === -1n);
  if (!trivial && e * BigInt(size) > BigInt(bitsMax) + BigInt(size)) throw bad(`a value has more than ${limits.calculationDigitsMax} digits`);
  const small = trivial ? e % 2n + (e > 0n ? 2n : 0n) : e;
  const raised = { n: base.n ** small, d: base.d ** small };
  return exponent.n < 0n ? fraction(raised.d, raised.n) : fraction(raised.n, raised.d);
};

const numberAt = /(?:\d+(?:_\d+)*)?(?:\.\d+)?(?:[eE][+-]?\d{1,4})?/y;

/** Value of an expression such as `0.1 + 0.2 * (3 - 1) ^ 2`. */
export const evaluate = (text: string): Fraction => {
  if (text.length > limits.calculationMaxChars) throw bad(`the expression has more than ${limits.calculationMaxChars} characters`);
  let at = 0;
  let depth = 0;
  const blank = (): void => {
    while (/\s/.test(text[at] ?? '')) at++;
  };
  /** The next of these operators, taken, or ''. */
  const take = (...operators: string[]): string => {
    blank();
    const found = operators.find((o) => text.startsWith(o, at)) ?? '';
    at += found.length;
    return found;
  };
  const number = (): Fraction => {
    blank();
    numberAt.lastIndex = at;
    const found = numberAt.exec(text)?.[0] ?? '';
    if (!/^[\d.]/.test(found)) throw bad(at >= text.length ? 'the expression ends too early' : `unexpected "${text.charAt(at)}" at ${at + 1}`);
    at += found.length;
    const [mantissa = '', exponent = '0'] = found.replaceAll('_', '').toLowerCase().split('e');
    const [whole = '', decimals = ''] = mantissa.split('.');
    const shift = Number(exponent) - decimals.length;
    if (Math.abs(shift) > limits.calculationDigitsMax) throw bad(`a value has more than ${limits.calculationDigitsMax} digits`);
    const digits = BigInt(whole + decimals);
    return shift >= 0 ? fraction(digits * 10n ** BigInt(shift), 1n) : fraction(digits, 10n ** BigInt(-shift));
  };
  const deeper = <T>(parse: () => T): T => {
    if (++depth > limits.calculationDepthMax) throw bad(`more than ${limits.calculationDepthMax} levels of brackets or signs`);
    const value = parse();
    depth--;
    return value;
  };
  const atom = (): Fraction => {
    if (take('(') === '') return number();
    const value = deeper(sum);
    if (take(')') === '') throw bad(`a closing bracket is missing at ${at + 1}`);
    return value;
  };
  const raised = (): Fraction => {
    const base = atom();
    return take('**', '^') === '' ? base : power(base, deeper(signed));
  };
  const signed = (): Fraction => {
    const sign = take('+', '-');
    if (sign === '') return raised();
    const value = deeper(signed);
    return sign === '-' ? { n: -value.n, d: value.d } : value;
  };
  const product = (): Fraction => {
    let left = signed();
    for (;;) {
      // `**` belongs to power, which has taken it already.
      const operator = take('*', '/', '%');
      if (operator === '') return left;
      const right = signed();
      if (operator === '*') left = fraction(left.n * right.n, left.d * right.d);
      else if (operator === '/') left = fraction(left.n * right.d, left.d * right.n);
      else {
        if (right.n === 0n) throw bad('division by zero');
        left = fraction((left.n * right.d) % (right.n * left.d), left.d * right.d);
      }
    }
  };
  const sum = (): Fraction => {
    let left = product();
    for (;;) {
      const operator = take('+', '-');
      if (operator === '') return left;
      const right = product();
      const n = right.n * left.d;
      left = fraction(operator === '+' ? left.n * right.d + n : left.n * right.d - n, left.d * right.d);
    }
  };
  const value = sum();
  blank();
  if (at < text.length) throw bad(`unexpected "${text.charAt(at)}" at ${at + 1}`);
  return value;
};

/** Decimals given where a value has no finite decimal form. */
const decimalsMax = 30;

/** Decimal text of a value, and whether that is exact (else cut, rounded half away from zero, after 30 decimals). */
export const decimal = (value: Fraction): { text: string; exact: boolean } => {
  const sign = value.n < 0n ? '-' : '';
  const n = value.n < 0n ? -value.n : value.n;
  let rest = value.d;
  let twos = 0;
  let fives = 0;
  for (; rest % 2n === 0n; rest /= 2n) twos++;
  for (; rest % 5n === 0n; rest /= 5n) fives++;
  const exact = rest === 1n;
  const places = exact ? Math.max(twos, fives) : decimalsMax;
  const scale = 10n ** BigInt(places);
  const digits = exact ? n * scale / value.d : (2n * n * scale + value.d) / (2n * value.d);
  const whole = digits / scale;
  const part = places === 0 ? '' : (digits % scale).toString().padStart(places, '0').replace(/0+$/, '');
  const text = part === '' ? whole.toString() : `${whole}.${part}`;
  return { text: text === '0' ? '0' : sign + text, exact };
};
