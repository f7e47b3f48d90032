/**
 * How vendors' clients reach their vendor: `fetch` as far as those clients use it, over undici's plain requests.
 *
 * The built-in fetch makes each answer a web stream, which cost more than everything else that is done with a short completion. Here the body is
 * the connection's own stream. Guarantees: connections are kept alive; the signal ends the request, before its answer and within it; a
 * redirect is an answer like any other, so credentials go nowhere else. It reads JSON requests and answers in text, no forms and no files.
 */
import { Agent, request } from 'undici';

type Method = NonNullable<Parameters<typeof request>[1]>['method'];

/** One for each client. Throws (rejects with) undici's errors: the clients translate them. */
export const vendorFetch = (): typeof globalThis.fetch => {
  // The clients and vendor.ts bound how long an answer may be silent.
  const dispatcher = new Agent({ headersTimeout: 0, bodyTimeout: 0 });
  return async (input, init = {}) => {
    const url = input instanceof Request ? input.url : String(input);
    if (init.body !== undefined && init.body !== null && typeof init.body !== 'string') throw new TypeError('a vendor is sent text only');
    const { statusCode, headers, body } = await request(url, {
      dispatcher, method: (init.method ?? 'GET') as Method, headers: Object.fromEntries(new Headers(init.headers)),
      ...(typeof init.body === 'string' ? { body: init.body } : {}), ...(init.signal === undefined || init.signal === null ? {} : { signal: init.signal }),
    });
    const shown = new Headers();
    for (const [name, value] of Object.entries(headers)) for (const one of value === undefined ? [] : [value].flat()) shown.append(name, one);
    // What the clients read of a Response; its body they iterate.
    return { ok: statusCode >= 200 && statusCode < 300, status: statusCode, statusText: '', url, headers: shown, body, text: () => body.text(), json: () => body.json() } as unknown as Response;
  };
};
