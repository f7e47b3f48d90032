/**
 * The listener: the only file that knows uWebSockets.js. Brings requests to the pipeline, upgrades to streams, and answers back.
 *
 * Guarantees:
 * T1  TLS 1.3 only: the cipher list names a TLS 1.2 suite that no client can negotiate; TLS 1.3 suites are fixed in BoringSSL.
 * T2  A certificate swap refuses no connection: one acceptor holds the listening socket for ever and hands every accepted
 *     connection to the app with the newest certificate; older apps keep their connections. (Closing one of two listening
 *     sockets, the usual way, resets what waits in its accept queue: measured.)
 * T3  A body is read in pieces and never beyond the route's bound; what all bodies hold is bounded (bodies.ts); one that is streamed is read
 *     no faster than it is taken (body-source.ts). A request that its client gives up is aborted upstream.
 * T4  Several processes may listen on one port (SO_REUSEPORT; uWebSockets.js sets it for every port but 0).
 * Strings of a request are read before the handler returns: uWebSockets.js reuses their memory.
 */
import { STATUS_CODES } from 'node:http';
import type { HttpRequest, HttpResponse, TemplatedApp, us_listen_socket, us_socket_context_t } from 'uWebSockets.js';
import { coded, refuse, type CodedError } from '../contracts/errors.ts';
import { limits } from '../contracts/limits.ts';
import type { Surface } from '../contracts/config.ts';
import { routes } from '../contracts/routes.ts';
import { remoteAddress, type TrustedProxies } from './address.ts';
import type { Answer, Pieces } from './answer.ts';
import type { Bodies } from './bodies.ts';
import { BodySource } from './body-source.ts';
import { collect } from './collect.ts';
import type { Endpoint, Exchange, RequestHead } from './endpoint.ts';
import { SizedBody } from './sized-body.ts';
import type { StreamConnection } from './stream.ts';
import type { Upgrade, UpgradeRequest } from './upgrade.ts';

export interface CertificateFiles {
  readonly certPath: string;
  readonly keyPath: string;
}

export interface ServerOptions {
  readonly host: string;
  /** 0 = any free port, which no second process can share. */
  readonly port: number;
  readonly certificate: CertificateFiles;
  readonly proxies: TrustedProxies;
  readonly bodies: Bodies;
  /** What is served here; an endpoint of another surface is as if it did not exist. */
  readonly surfaces: readonly Surface[];
  /** Whether a surface is served under the name of a Host header; undefined = under any. */
  readonly servesHost: ((surface: Surface, host: string) => boolean) | undefined;
  readonly endpoints: readonly Endpoint[];
  /** The answer to a request that no endpoint takes. Never throws. */
  readonly other: (head: RequestHead, serves: (surface: Surface) => boolean) => Answer;
  readonly admitUpgrade: (request: UpgradeRequest) => Upgrade | Promise<Upgrade>;
  /** The answer to an upgrade that was refused. Never throws. */
  readonly refuseUpgrade: (error: unknown) => Answer;
  readonly openStream: (upgrade: Upgrade) => StreamConnection;
  readonly countUpgrade: (status: number) => void;
  /** A request or socket has ended. */
  readonly onEnded: () => void;
}

export interface Server {
  readonly port: number;
  readonly sockets: ReadonlySet<StreamConnection>;
  /** Requests being answered, and upgrades that wait for identity keys. */
  readonly requests: number;
  /** Serves new connections with this certificate. Throws `cert_reload_failed` and changes nothing if it cannot be used. */
  swap(certificate: CertificateFiles): void;
  /** Takes no new connection and no upgrade; what is open goes on. Idempotent. */
  stopListening(): void;
  /** Ends everything at once. */
  close(): void;
}

/** What the type declarations of uWebSockets.js leave out. */
interface Acceptor extends TemplatedApp {
  getDescriptor(): object;
  addChildAppDescriptor(descriptor: object): void;
  removeChildAppDescriptor(descriptor: object): void;
}

interface SocketData {
  readonly connection: StreamConnection;
}

const cipherList = 'ECDHE-PSK-AES128-CBC-SHA';

/**
 * uWebSockets.js reads its head limit from the process environment when it is loaded; its default of 4 KiB is less than a
 * bearer may have. So it is loaded here, after the limit is set.
 */
const loadUws = async (): Promise<typeof import('uWebSockets.js') & { _cfg(option: string): void }> => {
  process.env['UWS_HTTP_MAX_HEADERS_SIZE'] = String(limits.headMaxBytes);
  const uws = await import('uWebSockets.js');
  const silenced = uws as typeof uws & { _cfg(option: string): void };
  // No product and version in every answer.
  silenced._cfg('silent');
  return silenced;
};

/** Rejects with `bad_config` if the address or the certificate cannot be used. */
export const startServer = async (options: ServerOptions): Promise<Server> => {
  const uws = await loadUws();
  const sockets = new Set<StreamConnection>();
  const { bodies } = options;
  let accepting = true;
  let requests = 0;

  const makeApp = (certificate: CertificateFiles): Acceptor => {
    const app = uws.SSLApp({
      cert_file_name: certificate.certPath, key_file_name: certificate.keyPath, ssl_ciphers: cipherList, ssl_prefer_low_memory_usage: true,
    }) as Acceptor;
    for (const endpoint of options.endpoints) {
      if (!options.surfaces.includes(endpoint.surface)) continue;
      const params = endpoint.path.split('/').filter((part) => part.startsWith(':')).length;
      app[methods[endpoint.method]](endpoint.path, (res, req) => {
        if (servedAt(endpoint.surface, req)) onRequest(endpoint, params, res, req);
        else onOther(res, req);
      });
      // RFC 9110 section 9.3.2. Elsewhere HEAD is a method like any other.
      if (endpoint.surface === 'edge' || endpoint.surface === 'console' || endpoint.method !== 'GET') continue;
      app.head(endpoint.path, (res, req) => {
        if (servedAt(endpoint.surface, req)) onRequest(endpoint, params, res, req, true);
        else onOther(res, req);
      });
    }
    if (options.surfaces.includes('edge')) app.ws<SocketData>(routes.stream.path, {
      maxPayloadLength: limits.clientFrameCutBytes,
      maxBackpressure: 2 * limits.linkFrameMaxBytes,
      // Liveness is the heartbeat's business; this is the backstop for a socket whose close frame nobody reads.
      idleTimeout: 960,
      sendPingsAutomatically: false,
      upgrade: onUpgrade,
      open: (ws) => {
        const { connection } = ws.getUserData();
        sockets.add(connection);
        connection.opened(ws);
      },
      message: (ws, message, isBinary) => ws.getUserData().connection.message(message, isBinary),
      drain: (ws) => ws.getUserData().connection.drained(),
      pong: (ws) => ws.getUserData().connection.pong(),
      close: (ws, code) => {
        const { connection } = ws.getUserData();
        sockets.delete(connection);
        connection.ended(code);
        options.onEnded();
      },
    });
    app.any('/*', onOther);
    return app;
  };

  const servedAt = (surface: Surface, req: HttpRequest): boolean => options.servesHost?.(surface, req.getHeader('host')) ?? true;

  const addressOf = (res: HttpResponse, req: HttpRequest): string =>
    remoteAddress(Buffer.from(res.getRemoteAddressAsText()).toString('latin1'), options.proxies, () => allOf(req, 'x-forwarded-for'));

  const writeHead = (res: HttpResponse, answer: Answer): void => {
    res.writeStatus(`${answer.status} ${STATUS_CODES[answer.status] ?? ''}`);
    for (const [name, value] of Object.entries(answer.headers)) res.writeHeader(name, value);
    for (const line of answer.cookies ?? []) res.writeHeader('set-cookie', line);
  };

  /** `headOnly`: an answer to HEAD has no body; what follows its head would be taken for the next answer (RFC 9110 section 9.3.2). */
  const write = (res: HttpResponse, answer: Answer, closes: boolean, headOnly = false): void => {
    res.cork(() => {
      writeHead(res, answer);
      // Said by hand: given the length, `endWithoutBody` keeps the answer open.
      if (headOnly && answer.length !== undefined) res.writeHeader('content-length', String(answer.length));
      // RFC 9110 section 15.4.5: a 304 has no body, and `end` would say that the content has none.
      const bodiless = headOnly || answer.status === 304;
      if (!bodiless) res.end(answer.body, closes || !accepting);
      else if (answer.length === undefined && answer.status !== 304 && (closes || !accepting)) res.endWithoutBody(Buffer.byteLength(answer.body), true);
      // Without the length it would have: given one, uWebSockets.js v20.49 closes the connection.
      else res.endWithoutBody();
    });
  };

  /** A body in pieces; resolves when it has ended, or its client has. */
  const writePieces = (res: HttpResponse, answer: Answer, pieces: Pieces, gone: AbortSignal): Promise<void> => new Promise((resolve) => {
    const body = answer.length === undefined ? undefined : new SizedBody(res, answer.length);
    let open = true;
    const over = (): void => {
      open = false;
      resolve();
    };
    gone.addEventListener('abort', over, { once: true });
    res.cork(() => writeHead(res, answer));
    const flow = pieces.start({
      write: (bytes) => {
        let taken = true;
        if (body !== undefined) taken = open ? body.write(bytes) : true;
        else if (open) res.cork(() => { taken = res.write(bytes); });
        return taken;
      },
      end: () => {
        if (body !== undefined) return open ? body.end(over) : undefined;
        if (open) res.cork(() => { res.end(undefined, !accepting); });
        over();
      },
      cut: () => {
        if (open) res.close();
        over();
      },
    });
    // oxlint-disable-next-line no-unnecessary-condition -- `start` may have ended it.
    if (!open) return;
    res.onWritable(() => {
      if (body === undefined || body.flush()) flow.onWritable();
      return true;
    });
  });

  /** `params`: how many the pattern has. */
  const headOf = (params: number, res: HttpResponse, req: HttpRequest): RequestHead => ({
    method: req.getMethod(), path: req.getUrl(), query: req.getQuery(), address: addressOf(res, req),
    params: Array.from({ length: params }, (_, at) => decoded(req.getParameter(at) ?? '')),
    header: (name) => allOf(req, name),
  });

  const onRequest = (endpoint: Endpoint, params: number, res: HttpResponse, req: HttpRequest, headOnly = false): void => {
    const gone = new AbortController();
    res.onAborted(() => gone.abort());
    const settle = (answer: Answer | Promise<Answer>, closes: boolean): void | Promise<void> => {
      if (answer instanceof Promise) return answer.then((later) => settle(later, closes));
      if (gone.signal.aborted) return;
      if (answer.pieces === undefined || headOnly) {
        write(res, answer, closes, headOnly);
        answer.pieces?.drop();
      } else return writePieces(res, answer, answer.pieces, gone.signal);
    };
    const length = Number(req.getHeader('content-length'));
    const exchange = endpoint.begin(headOf(params, res, req));
    const held = bodies.open();
    const framed = hasOneFraming(req);
    /** The end of an exchange that goes on after this call. */
    const finish = (work: Promise<void>): void => {
      requests += 1;
      void work.finally(() => {
        held.release();
        requests -= 1;
        options.onEnded();
      });
    };
    if (!framed) {
      finish(afterRead().then(() => settle(exchange.refuse(ambiguous(), gone.signal), true)));
      return;
    }
    try {
      const admitted = exchange.admit(held);
      if (endpoint.streamsBody === true) return finish(streamed(endpoint, exchange, admitted, length, new BodySource(res, { maxBytes: endpoint.bodyMaxBytes, held, gone: gone.signal }), gone.signal, settle));
      // In the same chain as the admission: a rejection of either is always handled.
      const body = !endpoint.takesBody ? Promise.resolve(new Uint8Array())
        : length > endpoint.bodyMaxBytes ? Promise.reject(coded('payload_too_large')) : collect(res, endpoint.bodyMaxBytes, held, gone.signal);
      finish(Promise.all([admitted, body])
        .then(([, bytes]) => exchange.serve(bytes, gone.signal))
        // A step of its own: a body in pieces may take minutes, and must not keep the request's.
        .then((answer) => settle(answer, false))
        .catch((error: unknown) => (gone.signal.aborted ? undefined : settle(exchange.refuse(error, gone.signal), leavesBody(error)))));
    } catch (error) {
      held.release();
      const refused = settle(exchange.refuse(error, gone.signal), length > limits.bodyMaxBytes || leavesBody(error));
      if (refused !== undefined) finish(refused);
    }
  };

  /** An exchange whose body goes through; before it is answered nothing of the body waits in the connection any more, or that ends with it. */
  const streamed = async (
    endpoint: Endpoint, exchange: Exchange, admitted: void | Promise<void>, length: number, source: BodySource, gone: AbortSignal,
    settle: (answer: Answer | Promise<Answer>, closes: boolean) => void | Promise<void>,
  ): Promise<void> => {
    let answer: Answer | Promise<Answer>;
    // A client that says it will send too much is not waited for.
    const tooLong = length > endpoint.bodyMaxBytes;
    try {
      await admitted;
      if (exchange.upload === undefined) throw new TypeError(`${endpoint.path} streams its body to an exchange that takes none`);
      if (tooLong) throw coded('payload_too_large');
      answer = await exchange.upload(source, gone);
    } catch (error) {
      if (gone.aborted) return;
      answer = exchange.refuse(error, gone);
    }
    const complete = !tooLong && await source.drop();
    await settle(answer, !complete);
  };

  const onOther = (res: HttpResponse, req: HttpRequest): void => {
    let gone = false;
    res.onAborted(() => { gone = true; });
    const head = headOf(0, res, req);
    const framed = hasOneFraming(req);
    const answer = options.other(head, (surface) => options.surfaces.includes(surface) && servedAt(surface, req));
    const answered = (): void => {
      if (!gone) write(res, answer, !framed, head.method === 'head');
    };
    if (framed) answered();
    else void afterRead().then(answered);
  };

  const onUpgrade = (res: HttpResponse, req: HttpRequest, context: us_socket_context_t): void => {
    let gone = false;
    res.onAborted(() => {
      gone = true;
    });
    const key = req.getHeader('sec-websocket-key');
    const extensions = req.getHeader('sec-websocket-extensions');
    const enter = (upgrade: Upgrade): void => {
      if (gone) return upgrade.release();
      const connection = options.openStream(upgrade);
      options.countUpgrade(101);
      // Not inside res.cork: when the upgraded socket keeps its address, uWebSockets.js v20.49 takes it for an HTTP response
      // after the cork and may close it (seen: 1 of 60 upgrades that had waited for keys).
      res.upgrade<SocketData>({ connection }, key, upgrade.protocol, extensions, context);
    };
    const refuseUpgrade = (error: unknown): void => {
      const answer = options.refuseUpgrade(error);
      options.countUpgrade(answer.status);
      if (!gone) write(res, answer, true);
    };
    try {
      if (!accepting) throw coded('draining');
      if (!servedAt('edge', req)) throw coded('not_found');
      const admitted = options.admitUpgrade({
        address: addressOf(res, req), authorization: allOf(req, 'authorization'), protocols: allOf(req, 'sec-websocket-protocol'),
        version: req.getHeader('sec-websocket-version'), query: req.getQuery(),
      });
      if (!(admitted instanceof Promise)) return enter(admitted);
      requests += 1;
      admitted.then(enter).catch(refuseUpgrade).finally(() => {
        requests -= 1;
        options.onEnded();
      });
    } catch (error) {
      refuseUpgrade(error);
    }
  };

  const build = (certificate: CertificateFiles): Acceptor => {
    try {
      return makeApp(certificate);
    } catch (cause) {
      throw coded('cert_reload_failed', undefined, { cause });
    }
  };

  const acceptor = build(options.certificate);
  let serving = build(options.certificate);
  const apps = [acceptor, serving];
  acceptor.addChildAppDescriptor(serving.getDescriptor());
  const listening = await listen(acceptor, options.host, options.port);
  const { listenSocket } = listening;

  const stopListening = (): void => {
    if (!accepting) return;
    accepting = false;
    uws.us_listen_socket_close(listenSocket);
  };

  return {
    port: uws.us_socket_local_port(listenSocket),
    sockets,
    get requests() {
      return requests;
    },
    swap: (certificate) => {
      const next = build(certificate);
      apps.push(next);
      acceptor.addChildAppDescriptor(next.getDescriptor());
      acceptor.removeChildAppDescriptor(serving.getDescriptor());
      serving = next;
    },
    stopListening,
    close: () => {
      stopListening();
      for (const app of apps.splice(0)) app.close();
    },
  };
};

const listen = (app: TemplatedApp, host: string, port: number): Promise<{ listenSocket: us_listen_socket }> =>
  new Promise((resolve, reject) => {
    app.listen(host, port, (listenSocket) => {
      // Wrapped: a listen socket is a native object that must not be taken for a thenable.
      if (listenSocket === false) reject(refuse('bad_config', `listen: ${host}:${port} is not free or not an address of this machine.`));
      else resolve({ listenSocket });
    });
  });

/** All lines of a header, joined by commas (RFC 9110 section 5.3); cookies by semicolons (RFC 9113 section 8.2.3). */
const allOf = (req: HttpRequest, name: string): string => {
  const lines: string[] = [];
  req.forEach((key, value) => {
    if (key === name) lines.push(value);
  });
  return lines.join(name === 'cookie' ? '; ' : ',');
};

const methods = { GET: 'get', POST: 'post', PATCH: 'patch', DELETE: 'del' } as const;

/** A value of the path, percent-decoded where it can be. */
const decoded = (text: string): string => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

/**
 * False if the head says the body's length twice in different words, or in a coding other than `chunked`: uWebSockets.js takes the first
 * and any, a proxy before us may take another, and what one of them holds for a body is a request to the other (RFC 9112 section 6.3).
 */
const hasOneFraming = (req: HttpRequest): boolean => {
  const coding = req.getHeader('transfer-encoding');
  if (coding !== '' && allOf(req, 'transfer-encoding').toLowerCase() !== 'chunked') return false;
  return req.getHeader('content-length') === '' || new Set(allOf(req, 'content-length').split(',')).size === 1;
};

const ambiguous = (): CodedError => coded('bad_request', 'The length of the body is ambiguous.');

/**
 * When what has arrived is read. Until a request is answered, uWebSockets.js ends a connection that brings another: so what comes behind a
 * body of doubtful length is never taken for one.
 */
const afterRead = (): Promise<void> => new Promise((resolve) => { setImmediate(resolve); });

/** Refusals that come while a body may still be on its way: the connection ends with them. */
const leaving: ReadonlySet<unknown> = new Set(['payload_too_large', 'overloaded']);
const leavesBody = (error: unknown): boolean => error instanceof Error && 'code' in error && leaving.has(error.code);
