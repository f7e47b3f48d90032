/**
 * Cookies of a request (RFC 6265 section 5.4), read strictly.
 *
 * Guarantee: of a name that is given twice there is no value: which of the two this site set cannot be told.
 */
import { parseCookie } from 'cookie';
import { limits } from '../contracts/limits.ts';

const plain = /^[A-Za-z0-9._~+/=-]+$/;

/** The value of a cookie, undecoded; undefined if there is none, if it is there twice, is longer than a bearer may be, or has characters that we never set. */
export const cookieIn = (header: string, name: string): string | undefined => {
  if (header === '') return undefined;
  const value = parseCookie(header, { decode: (text) => text })[name];
  const times = header.split(';').filter((pair) => pair.split('=', 1)[0]?.trim() === name).length;
  return value !== undefined && times === 1 && value.length <= limits.bearerMaxBytes && plain.test(value) ? value : undefined;
};
