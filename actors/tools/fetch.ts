/**
 * The fetch tool: reads one page of an allow-listed host (allow.ts) as text.
 *
 * The name is resolved once and the connection goes to exactly the address that was checked (no second look-up that could give
 * another one). Redirects are shown, not followed. Bounded: `fetchMaxBytes` read, the loop's tool deadline for time. GET only,
 * no cookies, no credentials, text types only.
 */
import { lookup } from 'node:dns/promises';
import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import { z } from 'zod';
import { coded, CodedError, refuse } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { allowedBy, isSpecialAddress, type AllowEntry } from './allow.ts';
import { cutBytes, defineTool, type Tool } from './tool.ts';

export interface Address {
  readonly address: string;
  readonly family: number;
}
/** Every address of a host name. */
export type Resolve = (host: string) => Promise<readonly Address[]>;
const systemResolve: Resolve = async (host) => lookup(host, { all: true, verbatim: true });

const textual = /^(?:text\/[\w.+-]+|application\/(?:[\w.-]+\+)?(?:json|xml|javascript|yaml))\s*(?:;|$)/i;

/** The one address to connect to. Refusals: `host_unknown`, `host_not_allowed` (any of its addresses is special). */
const pin = async (host: string, entry: AllowEntry, resolve: Resolve): Promise<Address> => {
  const family = isIP(host);
  if (family !== 0) return { address: host, family };
  let addresses: readonly Address[];
  try {
    addresses = await resolve(host);
  } catch {
    throw refuse('host_unknown', 'The host name has no address.');
  }
  const [first] = addresses;
  if (first === undefined) throw refuse('host_unknown', 'The host name has no address.');
  if (!entry.special && addresses.some((a) => isSpecialAddress(a.address))) throw refuse('host_not_allowed', 'The host leads to a private address.');
  return first;
};

const request = async (url: URL, to: Address, signal: AbortSignal): Promise<IncomingMessage> => new Promise((resolve, reject) => {
  const pinned: LookupFunction = (_host, options, callback) => {
    if (options.all === true) callback(null, [{ address: to.address, family: to.family }]);
    else callback(null, to.address, to.family);
  };
  const { get } = url.protocol === 'http:' ? http : https;
  get(url, {
    lookup: pinned, signal, agent: false, maxHeaderSize: 16 * 1024,
    headers: { accept: 'text/*, application/json;q=0.9', 'accept-encoding': 'identity', 'user-agent': 'troupe-fetch' },
  }, resolve).on('error', reject);
});

const readText = async (response: IncomingMessage, max: number): Promise<{ text: string; cut: boolean }> => {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response) {
    const bytes = Buffer.isBuffer(chunk) ? chunk : Buffer.from(String(chunk));
    chunks.push(bytes);
    size += bytes.length;
    // Leaving the loop destroys the response and its connection.
    if (size > max) break;
  }
  return { text: cutBytes(Buffer.concat(chunks).toString('utf8'), max), cut: size > max };
};

/** The tool for an allow-list. `resolve` is for tests. */
export const fetchUrl = (allow: readonly AllowEntry[], resolve: Resolve = systemResolve): Tool => defineTool({
  name: 'fetch_url',
  description: allow.length === 0
    ? 'Reads a web page as text. No host is allowed in this installation.'
    : `Reads a web page as text. Allowed: ${allow.map((e) => `${e.scheme}//${e.host}:${e.port}`).slice(0, 50).join(', ')}.`,
  parameters: z.strictObject({ url: z.url({ protocol: /^https?$/ }).max(2_048) }),
  needsApproval: false,
  idempotent: true,
  operations: ['web_search'],
  preview: ({ url }) => `Read ${url}`,
  run: async ({ url: text }, { signal }) => {
    const url = new URL(text);
    const entry = allowedBy(allow, url);
    if (entry === undefined) throw refuse('host_not_allowed', 'That address is not on the allow-list of this installation.');
    const to = await pin(entry.host, entry, resolve);
    try {
      const response = await request(url, to, signal);
      const type = response.headers['content-type'] ?? '';
      const status = response.statusCode ?? 0;
      if (status >= 300 && status < 400) {
        response.destroy();
        return { status, location: response.headers.location ?? null, note: 'Redirects are not followed.' };
      }
      if (!textual.test(type)) {
        response.destroy();
        throw refuse('not_text', `The page is ${type === '' ? 'of an unnamed type' : type.slice(0, 100)}, not text.`);
      }
      const { text: body, cut } = await readText(response, limits.fetchMaxBytes);
      return { status, content_type: type, text: body, ...(cut ? { cut: `after ${limits.fetchMaxBytes} bytes` } : {}) };
    } catch (error) {
      if (error instanceof CodedError) throw error;
      if (signal.aborted) throw coded('aborted');
      const code = error instanceof Error && 'code' in error && typeof error.code === 'string' ? ` (${error.code})` : '';
      throw refuse('fetch_failed', `The page could not be read${code}.`);
    }
  },
});
