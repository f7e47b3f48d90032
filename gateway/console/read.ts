/**
 * Readers of the platform's answers: small enough for a page, strict enough that a wrong answer is an error and never `undefined` on
 * the screen. The schemas of the contract would bring 90 kB; these are tied to their types instead.
 */
import { coded } from '../../contracts/errors.ts';

/** Gives the value in its type or throws `upstream_error` naming the place. */
export type Read<T> = (value: unknown, at: string) => T;

const wrong = (at: string): never => {
  throw coded('upstream_error', `The answer is not what this page expects (${at}).`);
};

export const text: Read<string> = (value, at) => (typeof value === 'string' ? value : wrong(at));
export const number: Read<number> = (value, at) => (typeof value === 'number' && Number.isFinite(value) ? value : wrong(at));
export const flag: Read<boolean> = (value, at) => (typeof value === 'boolean' ? value : wrong(at));
export const orNull = <T>(read: Read<T>): Read<T | null> => (value, at) => (value === null ? null : read(value, at));
export const list = <T>(read: Read<T>): Read<T[]> => (value, at) => (Array.isArray(value) ? value.map((entry, index) => read(entry, `${at}[${index}]`)) : wrong(at));
export const oneOf = <const T extends string>(words: readonly T[]): Read<T> => (value, at) => words.find((word) => word === value) ?? wrong(at);

const isFields = (value: unknown): value is Readonly<Record<string, unknown>> => typeof value === 'object' && value !== null && !Array.isArray(value);

/** Fields it does not name are ignored: a newer server may have more. */
export const fields = <T extends object>(reads: { readonly [K in keyof T]: Read<T[K]> }): Read<T> => (value, at) => {
  if (!isFields(value)) return wrong(at);
  const names = Object.keys(reads) as (keyof T & string)[];
  return Object.fromEntries(names.map((name) => [name, reads[name](value[name], `${at}.${name}`)])) as T;
};
/** An object of whatever the server put there, shown as it is. */
export const anyFields: Read<Readonly<Record<string, unknown>>> = (value, at) => (isFields(value) ? value : wrong(at));
/** An answer without anything to read. */
export const nothing: Read<undefined> = () => undefined;
