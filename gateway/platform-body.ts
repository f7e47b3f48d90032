/**
 * Query and body of a platform request, checked with the route's schema.
 *
 * Guarantees: what goes on has only fields the schema names, and passed it; a field or query name given twice is refused, since either could
 * be meant (in JSON at any depth, but not in the larger bodies of chat: their clients write them by machine); whatever is wrong has the one
 * code `validation_error` (interface 7.1), its first place as `field` and `constraint`, all (up to eight) in `issues`. Values go on as they
 * came: the daemon reads them with the same schema. A raw body goes on unread, in base64.
 */
import { z } from 'zod';
import { coded, type CodedError } from '../contracts/errors.ts';
import { limits } from '../contracts/limits.ts';
import { isNoDeeper } from '../contracts/nesting.ts';
import type { EnvelopeRoute } from '../contracts/platform-routes.ts';
import { issuesOf } from '../contracts/validate.ts';
import { formType } from './platform-request.ts';
import { repeatedKey } from './repeated-key.ts';

const refusal = (issues: readonly { readonly field: string; readonly constraint: string }[]): CodedError =>
  coded('validation_error', undefined, { details: { ...issues[0], issues } });

/** `validation_error` for one place. */
const wrong = (field: string, constraint: string): CodedError => refusal([{ field, constraint }]);

/** The value as it came, without what the schema does not name. Throws `validation_error`. */
export const checkInput = (schema: z.ZodType, value: unknown): unknown => {
  const parsed = schema.safeParse(value);
  if (!parsed.success) {
    throw refusal(issuesOf(parsed.error).map(({ place, problem }) => ({ field: place, constraint: problem })));
  }
  if (!(schema instanceof z.ZodObject) || typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).filter(([name]) => Object.hasOwn(schema.shape, name)));
};

const fieldsOf = (text: string, what: 'query' | 'form'): Record<string, string> => {
  const params = new URLSearchParams(text);
  const fields = Object.fromEntries(params);
  if (Object.keys(fields).length === params.size) return fields;
  const seen = new Set<string>();
  const twice = [...params.keys()].find((name) => seen.size === seen.add(name).size) ?? '';
  throw wrong(twice, `given more than once in the ${what}`);
};

/** Undefined where the route has no query; what comes there is not read. */
export const readPlatformQuery = (route: EnvelopeRoute, query: string): unknown =>
  route.query === undefined ? undefined : checkInput(route.query, fieldsOf(query, 'query'));

export interface ReadBody {
  readonly body: unknown;
  /** A form's fields as they came, without `csrf`; empty for JSON. */
  readonly fields: Readonly<Record<string, string>>;
  /** The CSRF proof of a form; empty if none. */
  readonly csrf: string;
}

const utf8 = (bytes: Uint8Array): string => {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw wrong('', 'the body is not UTF-8');
  }
};

/** `strict`: a name given twice is refused, too. */
const parseJson = (text: string, strict: boolean): unknown => {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw wrong('', 'the body is not JSON');
  }
  if (!isNoDeeper(value, limits.bodyDepthMax)) throw wrong('', 'the body is nested too deeply');
  const twice = strict ? repeatedKey(text) : undefined;
  if (twice !== undefined) throw wrong(twice, 'given more than once in the body');
  return value;
};

/** The form's fields, `csrf` apart; a form is read before it is checked, so that a page can show it again. */
export const readForm = (bytes: Uint8Array): { readonly fields: Readonly<Record<string, string>>; readonly csrf: string } => {
  const { csrf = '', ...fields } = fieldsOf(utf8(bytes), 'form');
  return { fields, csrf };
};

/** `contentType` without parameters. Throws `validation_error`. A request without body and type has the empty object. */
export const readPlatformBody = (route: EnvelopeRoute, contentType: string, bytes: Uint8Array): ReadBody => {
  if (route.raw === true) return { body: Buffer.from(bytes).toString('base64'), fields: {}, csrf: '' };
  if (route.body === undefined) return { body: undefined, fields: {}, csrf: '' };
  if (contentType === formType && route.form === true) {
    const { fields, csrf } = readForm(bytes);
    return { body: checkInput(route.body, fields), fields, csrf };
  }
  if (contentType !== '' && contentType !== 'application/json') {
    throw wrong('content-type', `must be application/json${route.form === true ? ` or ${formType}` : ''}`);
  }
  const value = bytes.length === 0 && contentType === '' ? {} : parseJson(utf8(bytes), route.bodyMaxBytes <= limits.bodyMaxBytes);
  return { body: checkInput(route.body, value), fields: {}, csrf: '' };
};
