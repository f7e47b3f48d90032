/**
 * What the listener knows of a route: where it is served, how much body it takes, and the exchange that one request begins.
 *
 * The listener (server.ts) drives an exchange: `admit` at once while the head can be read, then the body, then `serve`; whatever is thrown on
 * the way goes to `refuse`. The three surfaces differ only behind this interface.
 */
import type { Surface } from '../contracts/config.ts';
import type { Answer } from './answer.ts';
import type { HeldBody } from './bodies.ts';
import type { BodySource } from './body-source.ts';

export interface RequestHead {
  /** Lower case, as uWebSockets.js gives it. */
  readonly method: string;
  /** Without query. */
  readonly path: string;
  /** Without question mark; empty if none. */
  readonly query: string;
  /** Values of the pattern's `:name` parts. */
  readonly params: readonly string[];
  /** Remote address after trusted proxies. */
  readonly address: string;
  /** All lines of a header joined by commas (cookies: by semicolons); empty if none. Only until `begin` and `admit` have returned. */
  header(name: string): string;
}

export interface Exchange {
  /** Throws or rejects with what the request is refused with. */
  admit(held: HeldBody): void | Promise<void>;
  /** Rejects with what the request is refused with. */
  serve(body: Uint8Array, signal: AbortSignal): Promise<Answer>;
  /** In place of `serve` where the endpoint streams the body. Rejects with what the request is refused with. */
  upload?(body: BodySource, signal: AbortSignal): Promise<Answer>;
  /** The answer to what was thrown; counts it. Never throws or rejects. */
  refuse(error: unknown, signal: AbortSignal): Answer | Promise<Answer>;
}

export interface Endpoint {
  readonly surface: Surface;
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  /** As uWebSockets.js matches it. */
  readonly path: string;
  /** False = a body is not read. */
  readonly takesBody: boolean;
  /** True = the body goes to the exchange's `upload` as it comes. */
  readonly streamsBody?: boolean;
  readonly bodyMaxBytes: number;
  begin(head: RequestHead): Exchange;
}
