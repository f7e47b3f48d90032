/**
 * The query of an address, checked with a route's schema. Values stay text: the daemon reads them with the same schema, so what
 * goes over the link is what came. A name given twice is refused, since either value could be the meant one.
 */
import type { z } from 'zod';
import { coded } from '../contracts/errors.ts';

/** The query's fields as text. Throws `bad_request` for a field that is unknown, missing, ill-formed or given twice. */
export const readQuery = (schema: z.ZodType, query: string): Readonly<Record<string, string>> => {
  const params = new URLSearchParams(query);
  const fields = Object.fromEntries(params);
  const parsed = schema.safeParse(fields);
  const twice = Object.keys(fields).length !== params.size;
  if (parsed.success && !twice) return fields;
  const names = twice || parsed.success ? [] : parsed.error.issues.map((issue) => issue.path.map(String).join('.')).filter((name) => name !== '');
  throw coded('bad_request', names.length === 0 ? 'The query has an unknown, missing or repeated field.' : `The query is wrong in: ${names.join(', ')}.`);
};
