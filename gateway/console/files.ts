/** What the console is made of, as the gateway serves it: path → file. Shared by the builder and the gateway's static routes. */
export interface ConsoleFile {
  /** Content-Type. */
  readonly type: string;
  readonly body: Uint8Array;
}
/** Keyed by path: `/` the chat page, `/console…` the console, and their scripts and styles. */
export type ConsoleFiles = ReadonlyMap<string, ConsoleFile>;

/**
 * Headers every console file is served with. Nothing inline, nothing from elsewhere; `connect-src 'self'` admits the page's
 * own https and wss (CSP level 3). The page opens no frame and cannot be framed; no address of it is told to anyone.
 */
export const consoleHeaders: Readonly<Record<string, string>> = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cache-control': 'no-cache',
};
