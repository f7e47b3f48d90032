/**
 * What the gateway counts and times (interface 6.7), rendered as Prometheus text (exposition format 0.0.4).
 *
 * Guarantee: the number of series is fixed by the contract (routes, statuses, close codes), never by what a client sends.
 * No label holds a user, an address, a session or a token.
 */
const buckets = {
  /** Seconds. */
  verification: [0.00001, 0.00005, 0.0001, 0.0005, 0.001, 0.005, 0.05, 0.5, 5],
  upstream: [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 2.5, 5, 10],
  socket: [1, 10, 60, 300, 900, 3_600, 14_400, 86_400],
} as const;

class Histogram {
  readonly #bounds: readonly number[];
  readonly #counts: number[];
  #sum = 0;
  #count = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = bounds.map(() => 0);
  }

  observe(seconds: number): void {
    this.#sum += seconds;
    this.#count += 1;
    const at = this.#bounds.findIndex((bound) => seconds <= bound);
    if (at >= 0) this.#counts[at] = (this.#counts[at] ?? 0) + 1;
  }

  render(name: string, help: string): string {
    let below = 0;
    const lines = this.#bounds.map((bound, at) => {
      below += this.#counts[at] ?? 0;
      return `${name}_bucket{le="${bound}"} ${below}`;
    });
    return [
      `# HELP ${name} ${help}`, `# TYPE ${name} histogram`, ...lines,
      `${name}_bucket{le="+Inf"} ${this.#count}`, `${name}_sum ${this.#sum}`, `${name}_count ${this.#count}`,
    ].join('\n');
  }
}

class Counter {
  readonly #labels: readonly string[];
  readonly #values = new Map<string, number>();

  constructor(...labels: string[]) {
    this.#labels = labels;
  }

  add(...values: (string | number)[]): void {
    const series = this.#labels.map((label, at) => `${label}="${String(values[at])}"`).join(',');
    this.#values.set(series, (this.#values.get(series) ?? 0) + 1);
  }

  render(name: string, help: string): string {
    const lines = [...this.#values].map(([series, value]) => `${name}{${series}} ${value}`);
    return [`# HELP ${name} ${help}`, `# TYPE ${name} counter`, ...lines].join('\n');
  }
}

export interface Gauges {
  readonly sockets: number;
  readonly daemons: number;
  readonly jwksFetches: number;
  readonly draining: boolean;
}

export class Metrics {
  /** Seconds from a bearer's arrival to its verdict, waiting for a key fetch included. */
  readonly verification = new Histogram(buckets.verification);
  /** Seconds of a call over the link. */
  readonly upstream = new Histogram(buckets.upstream);
  /** Seconds a WebSocket was open. */
  readonly socket = new Histogram(buckets.socket);
  readonly requests = new Counter('route', 'status');
  readonly rateLimited = new Counter('bucket');
  readonly closes = new Counter('code');
  readonly upgrades = new Counter('status');

  render(gauges: Gauges): string {
    const gauge = (name: string, help: string, value: number): string => `# HELP ${name} ${help}\n# TYPE ${name} gauge\n${name} ${value}`;
    return `${[
      this.requests.render('troupe_gateway_requests_total', 'HTTP requests by route and status.'),
      this.upgrades.render('troupe_gateway_upgrades_total', 'WebSocket upgrades by status.'),
      this.rateLimited.render('troupe_gateway_rate_limited_total', 'Requests and frames refused by a token bucket.'),
      this.closes.render('troupe_gateway_socket_closes_total', 'WebSockets closed, by close code.'),
      this.verification.render('troupe_gateway_token_verification_seconds', 'Time to verify a bearer token.'),
      this.upstream.render('troupe_gateway_upstream_seconds', 'Time of a call to the daemon.'),
      this.socket.render('troupe_gateway_socket_seconds', 'Time a WebSocket was open.'),
      gauge('troupe_gateway_sockets', 'WebSockets open now.', gauges.sockets),
      gauge('troupe_gateway_daemons', 'Daemons connected now.', gauges.daemons),
      gauge('troupe_gateway_jwks_fetches', 'JWKS fetches since the start.', gauges.jwksFetches),
      gauge('troupe_gateway_draining', '1 while draining.', gauges.draining ? 1 : 0),
    ].join('\n')}\n`;
  }
}
