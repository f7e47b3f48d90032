/**
 * A request's query and body with their route's types. serve.ts has parsed them; they are parsed again here, which for these schemas
 * changes nothing, because a handler holds them as unknown values.
 */
import type { z } from 'zod';

const typed = <T>(schema: z.ZodType<T> | undefined, value: unknown, what: string): T => {
  if (schema === undefined) throw new TypeError(`the route has no ${what}`);
  return schema.parse(value);
};

/** Throws (a bug) for a route without a body. */
export const bodyOf = <Body>(route: { readonly body?: z.ZodType<Body> }, request: { readonly body: unknown }): Body =>
  typed(route.body, request.body, 'body');

/** Throws (a bug) for a route without a query. */
export const queryOf = <Query>(route: { readonly query?: z.ZodType<Query> }, request: { readonly query: unknown }): Query =>
  typed(route.query, request.query, 'query');
