/**
 * One request on the link as its handler sees it, and its end: a deadline, a cancel, or a gateway that is gone.
 */
import type { CodedError } from '../../contracts/errors.ts';
import type { AnyRoute } from '../../contracts/platform-routes.ts';

export interface Answer {
  /** HTTP status the gateway gives its client. */
  readonly status: number;
  /** JSON text, or bytes that are sent as they are. */
  readonly body: string | Uint8Array;
}

/** One request as its handler sees it. */
export interface Call<Of extends AnyRoute = AnyRoute> {
  readonly route: Of;
  /** The capability, unverified; empty where the route needs none. */
  readonly token: string;
  /** A view into the receive buffer, good for the whole call. */
  readonly body: Buffer;
  /** Monotonic milliseconds (`performance.now()`) after which nobody waits. */
  readonly deadlineAt: number;
  /** Fires at the deadline, at a cancel and when the gateway is gone. Made when first asked for. */
  readonly signal: AbortSignal;
}

/** A call while it runs: what the connection keeps to end it. */
export class RunningCall implements Call {
  readonly route: AnyRoute;
  readonly token: string;
  readonly body: Buffer;
  readonly deadlineAt: number;
  #controller: AbortController | undefined;

  constructor(route: AnyRoute, token: string, body: Buffer, deadlineAt: number) {
    this.route = route;
    this.token = token;
    this.body = body;
    this.deadlineAt = deadlineAt;
  }

  get signal(): AbortSignal {
    return (this.#controller ??= new AbortController()).signal;
  }

  abort(reason: CodedError): void {
    (this.#controller ??= new AbortController()).abort(reason);
  }
}

