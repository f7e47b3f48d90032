/**
 * Turns a body from outside into a typed value or one coded refusal.
 *
 * Rule (decisions, Edge gateway): text that is not JSON is `bad_request` (400); an unknown, missing or ill-typed field is
 * `validation_error` (422) with the paths in `details.issues`; a value of the right type that breaks a rule carries the
 * code given with `rule()`, else `bad_request` (400).
 */
import { z } from 'zod';
import { coded, type CodedError, type ErrorCode } from './errors.ts';
import { limits } from './limits.ts';
import { isNoDeeper } from './nesting.ts';

const structural: ReadonlySet<string> = new Set(['invalid_type', 'unrecognized_keys', 'invalid_union', 'invalid_key', 'invalid_element']);

/** A check with a code of its own: `z.string().refine(...rule(isId, 'bad_user_id'))`. */
export const rule = <T>(test: (value: T) => boolean, code: ErrorCode): [(value: T) => boolean, { params: { code: ErrorCode } }] =>
  [test, { params: { code } }];

// oxlint-disable-next-line no-control-regex
const control = /[\u0000-\u001f\u007f-\u009f]/;
/** 1-128 characters (code points), none of them a control character or half of one (a lone surrogate has no UTF-8). */
export const isId = (text: string): boolean => {
  const chars = [...text].length;
  return chars >= 1 && chars <= limits.idMaxChars && !control.test(text) && text.isWellFormed();
};

export const userId = z.string().refine(...rule(isId, 'bad_user_id'));
export const plainId = z.string().refine(...rule(isId, 'bad_request'));

/** The first places of a bad value and what is wrong there, each of a bounded length (`limits.issuesMax`, `limits.issueMaxChars`). */
export const issuesOf = ({ issues }: z.ZodError): readonly { readonly place: string; readonly problem: string }[] => issues.slice(0, limits.issuesMax).map(({ path, message }) => ({
  place: path.map(String).join('.').slice(0, limits.issueMaxChars), problem: message.slice(0, limits.issueMaxChars),
}));

export const refusalOf = (error: z.ZodError): CodedError => {
  const issues = issuesOf(error).map(({ place: path, problem }) => ({ path, problem }));
  if (error.issues.some((issue) => structural.has(issue.code))) return coded('validation_error', undefined, { details: { issues } });
  for (const issue of error.issues) {
    if (issue.code !== 'custom') continue;
    const code: unknown = issue.params?.['code'];
    if (code === 'bad_user_id') return coded(code, undefined, { details: { issues } });
  }
  return coded('bad_request', 'A field has a value that is not allowed.', { details: { issues } });
};

export const parseValue = <S extends z.ZodType>(schema: S, value: unknown): z.output<S> => {
  const parsed = schema.safeParse(value);
  if (!parsed.success) throw refusalOf(parsed.error);
  return parsed.data;
};

/** Throws `bad_request` for what is no JSON, or is nested deeper than `limits.bodyDepthMax`. */
export const parseJson = (text: string): unknown => {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw coded('bad_request', 'The body is not JSON.');
  }
  if (!isNoDeeper(value, limits.bodyDepthMax)) throw coded('bad_request', 'The body is nested too deeply.');
  return value;
};
