/**
 * A copy of a JSON value, equal to what a JSON round trip would give, without the text.
 *
 * Why: an ask on the same host passes no wire. Without a copy, caller and actor would share objects, and a later change by
 * one would show in the other's state; with it, a local ask and a remote one mean the same. Plain objects, arrays and
 * primitives are copied by hand (fast); anything else (a Date, a Map, a class with `toJSON`) takes the round trip.
 */
import { coded } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';

const roundTrip = (value: unknown): unknown => {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (cause) {
    throw coded('bad_request', 'The value is not JSON.', { cause });
  }
  return text === undefined ? undefined : JSON.parse(text);
};

const copyAt = (value: unknown, depth: number): unknown => {
  switch (typeof value) {
    case 'string': case 'boolean': case 'undefined': return value;
    // JSON has no negative zero, and -0 + 0 is 0.
    case 'number': return Number.isFinite(value) ? value + 0 : null;
    case 'object': break;
    default: return roundTrip(value);
  }
  if (value === null) return null;
  if (depth > limits.valueDepthMax) throw coded('bad_request', 'The value is nested too deeply.');
  if (Array.isArray(value)) return value.map((item) => copyAt(item, depth + 1) ?? null);
  const prototype: unknown = Object.getPrototypeOf(value);
  if ((prototype !== Object.prototype && prototype !== null) || 'toJSON' in value) return roundTrip(value);
  const copy: Record<string, unknown> = {};
  for (const [key, item] of Object.entries(value)) {
    const copied = copyAt(item, depth + 1);
    if (copied === undefined) continue;
    // Assigned, this key would set the prototype instead of a property.
    if (key === '__proto__') Object.defineProperty(copy, key, { value: copied, enumerable: true, configurable: true, writable: true });
    else copy[key] = copied;
  }
  return copy;
};

/** Throws `bad_request` for a value that is not JSON (a cycle, a bigint) or nested deeper than `limits.valueDepthMax`. */
export const copyJson = (value: unknown): unknown => copyAt(value, 0);
