/**
 * Canonical JSON (RFC 8785): what an event's checksum is computed over (decisions, Deployment services).
 *
 * Guarantee: equal values give equal bytes, whatever the order of their members: names sorted by UTF-16 code units, no white space, numbers and
 * strings as ECMAScript writes them. Throws `invalid_argument` for what I-JSON cannot hold (a lone surrogate, a number that is not finite, a value that is no JSON).
 */
import { coded } from './errors.ts';

const text = (value: string): string => {
  if (!value.isWellFormed()) throw coded('invalid_argument', 'A text is not well-formed Unicode.');
  return JSON.stringify(value);
};

export const canonicalJson = (value: unknown): string => {
  switch (typeof value) {
    case 'string': return text(value);
    case 'boolean': return value ? 'true' : 'false';
    case 'number':
      if (!Number.isFinite(value)) throw coded('invalid_argument', 'A number is not finite.');
      return JSON.stringify(value);
    case 'object':
      if (value === null) return 'null';
      if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
      return `{${Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)).map(([name, member]) => `${text(name)}:${canonicalJson(member)}`).join(',')}}`;
    default: throw coded('invalid_argument', 'A value is not JSON.');
  }
};
