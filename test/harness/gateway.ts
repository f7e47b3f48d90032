/**
 * Starts a real gateway on a free port with a certificate of its own: in this process (clock and lookups can be injected) or
 * as child processes (two on one port, signals). With it a fake daemon peer, an issuer, and clients for HTTPS and WSS.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { createPrivateKey, generateKeyPairSync, randomBytes, type KeyObject } from 'node:crypto';
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { Agent, request as httpsRequest } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { generate } from 'selfsigned';
import { stringify } from 'smol-toml';
import { WebSocket, type RawData } from 'ws';
import type { GatewayConfig } from '../../contracts/config.ts';
import { checkConfig } from '../../gateway/config.ts';
import { systemClock, type Clock } from '../../gateway/clock.ts';
import { startGateway, type Gateway, type GatewayDependencies } from '../../gateway/gateway.ts';
import type { Log } from '../../gateway/log.ts';
import { startIssuer, type Issuer } from './issuer.ts';
import { startPeer, type Peer, type PeerScript } from './peer.ts';

export interface CertificatePair {
  readonly cert: string;
  readonly key: string;
}

/** A self-signed P-256 certificate for localhost and 127.0.0.1. */
export const makeCertificate = async (commonName: string): Promise<CertificatePair> => {
  const made = await generate([{ name: 'commonName', value: commonName }], {
    keyType: 'ec', curve: 'P-256', algorithm: 'sha256',
    extensions: [{ name: 'subjectAltName', altNames: [{ type: 2, value: 'localhost' }, { type: 7, ip: '127.0.0.1' }] }],
  });
  return { cert: made.cert, key: made.private };
};

/** Writes both files so that each is replaced whole. */
export const writeCertificate = async (folder: string, pair: CertificatePair): Promise<void> => {
  for (const [name, text] of [['cert.pem', pair.cert], ['key.pem', pair.key]] as const) {
    await writeFile(join(folder, `${name}.new`), text, { mode: 0o600 });
    await rename(join(folder, `${name}.new`), join(folder, name));
  }
};

export interface LogLine {
  readonly level: string;
  readonly fields: object;
  readonly message: string;
}

export interface Reply {
  readonly status: number;
  readonly headers: NodeJS.Dict<string | string[]>;
  readonly text: string;
  readonly json: unknown;
}

export interface CallOptions {
  readonly method?: string;
  readonly token?: string;
  readonly headers?: Record<string, string>;
  /** Sent as JSON unless it is a string or bytes. */
  readonly body?: unknown;
  readonly localAddress?: string;
  readonly agent?: Agent;
  readonly port?: number;
}

/** Configuration keys to override; sections are merged. */
type Section<T> = T extends object ? { readonly [K in keyof T]?: T[K] } : T;
export type ConfigPatch = { readonly [K in keyof GatewayConfig]?: Section<GatewayConfig[K]> };

export interface Edge {
  readonly gateway: Gateway;
  readonly peer: Peer;
  readonly issuer: Issuer;
  readonly folder: string;
  readonly port: number;
  readonly ca: string;
  readonly capabilityKey: KeyObject;
  readonly devSecret: Buffer;
  readonly logs: readonly LogLine[];
  /** Resolves with the next log line that has this message. */
  logged(message: string): Promise<LogLine>;
  readonly adminPath: string;
  call(path: string, options?: CallOptions): Promise<Reply>;
  /** A `ws` client with the bearer in the Authorization header; `protocols` and `headers` replace that. */
  socket(sid: string, options?: SocketOptions): WebSocket;
  stop(): Promise<void>;
}

export interface SocketOptions {
  readonly token?: string;
  readonly protocols?: string[];
  readonly headers?: Record<string, string>;
  readonly query?: string;
  readonly autoPong?: boolean;
  readonly localAddress?: string;
  readonly port?: number;
}

export interface EdgeOptions {
  readonly config?: ConfigPatch;
  readonly on?: PeerScript;
  /** False = no daemon at all. */
  readonly peer?: boolean;
  readonly dependencies?: Partial<GatewayDependencies>;
  readonly clock?: Clock;
}

const merge = (base: Record<string, unknown>, patch: Record<string, unknown>): Record<string, unknown> => {
  const merged = { ...base };
  for (const [key, value] of Object.entries(patch)) {
    const before = merged[key];
    const sections = typeof value === 'object' && value !== null && !Array.isArray(value) && typeof before === 'object' && before !== null;
    merged[key] = sections ? merge({ ...before }, { ...value }) : value;
  }
  return merged;
};

/** Files and configuration of a gateway, without starting it. */
export const prepareEdge = async (issuer: Issuer, socketPath: string, patch: ConfigPatch = {}): Promise<{
  folder: string; config: GatewayConfig; raw: Record<string, unknown>; ca: string; capabilityKey: KeyObject; devSecret: Buffer;
}> => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-gateway-'));
  const pair = await makeCertificate('first');
  const devSecret = Buffer.from(randomBytes(32).toString('hex'));
  const capability = generateKeyPairSync('ec', { namedCurve: 'prime256v1', privateKeyEncoding: { type: 'pkcs8', format: 'pem' }, publicKeyEncoding: { type: 'spki', format: 'pem' } });
  await writeCertificate(folder, pair);
  await writeFile(join(folder, 'capability.pem'), capability.privateKey, { mode: 0o600 });
  await writeFile(join(folder, 'dev.secret'), devSecret, { mode: 0o600 });
  const raw = merge({
    log_level: 'info',
    listen: { host: '127.0.0.1', port: 0 },
    tls: { cert_path: join(folder, 'cert.pem'), key_path: join(folder, 'key.pem') },
    auth: { jwks_url: issuer.jwksUrl, dev_secret_path: join(folder, 'dev.secret') },
    capability: { key_path: join(folder, 'capability.pem') },
    upstream: { socket_path: socketPath },
    console: false,
  }, { ...patch });
  return { folder, raw, config: checkConfig(raw, 'test'), ca: pair.cert, capabilityKey: createPrivateKey(capability.privateKey), devSecret };
};

/** Resolves when the gateway listens and, unless `peer` is false, is connected to the fake daemon. */
export const startEdge = async (options: EdgeOptions = {}): Promise<Edge> => {
  const issuer = await startIssuer();
  const peer = await startPeer({ on: { request: (request) => request.answer(200, request.route?.id === 'health' ? 'OK' : {}), ...options.on } });
  const prepared = await prepareEdge(issuer, options.peer === false ? join(tmpdir(), `troupe-nobody-${process.pid}.sock`) : peer.socketPath, options.config);
  const { folder, config, ca, capabilityKey, devSecret } = prepared;
  const logs: LogLine[] = [];
  const waiting = new Set<{ readonly message: string; readonly give: (line: LogLine) => void }>();
  const write = (level: string) => (fields: object, message: string): void => {
    const line = { level, fields, message };
    logs.push(line);
    for (const wait of waiting) {
      if (wait.message !== message) continue;
      waiting.delete(wait);
      wait.give(line);
    }
  };
  const log: Log = { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') };
  const clear = async (): Promise<void> => {
    await Promise.all([peer.stop(), issuer.stop()]);
    await rm(folder, { recursive: true, force: true });
  };
  const gateway = await startGateway(config, { log, release: 'test', clock: options.clock ?? systemClock, ...options.dependencies }).catch(async (error: unknown) => {
    await clear();
    throw error;
  });
  if (options.peer !== false) await linked(gateway, 1);
  const agent = new Agent({ ca, keepAlive: false });
  return {
    gateway, peer, issuer, folder, ca, capabilityKey, devSecret, logs,
    port: gateway.port,
    logged: (message) => new Promise((give) => void waiting.add({ message, give })),
    adminPath: config.admin?.socket_path ?? '',
    call: (path, call = {}) => callEdge(gateway.port, agent, path, call),
    socket: (sid, socket = {}) => openSocket(gateway.port, ca, sid, socket),
    stop: async () => {
      await gateway.close();
      agent.destroy();
      await clear();
    },
  };
};

/** Resolves when the gateway is connected to that many daemons. */
export const linked = (gateway: Gateway, daemons: number): Promise<void> => new Promise((resolve) => {
  if (gateway.link().connected === daemons) return resolve();
  const stop = gateway.onLink((state) => {
    if (state.connected !== daemons) return;
    stop();
    resolve();
  });
});

/** One HTTPS request. */
export const callEdge = (port: number, agent: Agent, path: string, options: CallOptions): Promise<Reply> => new Promise((resolve, reject) => {
  const { body } = options;
  const bytes = body === undefined ? undefined : typeof body === 'string' ? Buffer.from(body) : body instanceof Uint8Array ? Buffer.from(body) : Buffer.from(JSON.stringify(body));
  const sent = httpsRequest({
    host: '127.0.0.1', servername: 'localhost', port: options.port ?? port, path, method: options.method ?? (bytes === undefined ? 'GET' : 'POST'), agent: options.agent ?? agent,
    localAddress: options.localAddress,
    headers: {
      ...(options.token === undefined ? {} : { authorization: `Bearer ${options.token}` }),
      ...(bytes === undefined ? {} : { 'content-type': 'application/json', 'content-length': bytes.length }), ...options.headers,
    },
  }, (answer) => {
    const chunks: Buffer[] = [];
    answer.on('data', (chunk: Buffer) => chunks.push(chunk));
    answer.on('error', reject);
    answer.on('end', () => {
      const text = Buffer.concat(chunks).toString('utf8');
      let json: unknown;
      try {
        json = JSON.parse(text);
      } catch {
        // Not JSON: the text is what there is.
        json = undefined;
      }
      resolve({ status: answer.statusCode ?? 0, headers: answer.headers, text, json });
    });
  });
  sent.on('error', reject);
  sent.end(bytes);
});

export const openSocket = (port: number, ca: string, sid: string, options: SocketOptions): WebSocket =>
  new WebSocket(`wss://localhost:${options.port ?? port}/v1/agent/stream?${options.query ?? `sid=${sid}`}`, options.protocols ?? [], {
    ca, headers: { ...(options.token === undefined ? {} : { authorization: `Bearer ${options.token}` }), ...options.headers },
    autoPong: options.autoPong ?? true, localAddress: options.localAddress, lookup: (_host, lookup, done) => {
      if (typeof lookup === 'object' && lookup.all === true) done(null, [{ address: '127.0.0.1', family: 4 }]);
      else done(null, '127.0.0.1', 4);
    },
  });

/** What a client saw of a socket until it ended. */
export interface Ending {
  readonly code: number;
  readonly reason: string;
  readonly frames: readonly unknown[];
}

export const opened = (socket: WebSocket): Promise<void> => new Promise((resolve, reject) => {
  socket.once('open', () => resolve());
  socket.once('error', reject);
});

/** Collects frames from now on and resolves when the socket has ended. Call before anything can arrive. */
export const ending = (socket: WebSocket): Promise<Ending> => new Promise((resolve, reject) => {
  const frames: unknown[] = [];
  socket.on('message', (data) => frames.push(JSON.parse(Buffer.isBuffer(data) ? data.toString('utf8') : '')));
  socket.on('error', reject);
  socket.on('close', (code, reason) => resolve({ code, reason: reason.toString('utf8'), frames }));
});

/** The next text frame. */
export const nextFrame = (socket: WebSocket): Promise<string> => new Promise((resolve, reject) => {
  const onMessage = (data: RawData): void => {
    socket.off('close', onClose);
    resolve(Buffer.isBuffer(data) ? data.toString('utf8') : '');
  };
  const onClose = (code: number): void => {
    socket.off('message', onMessage);
    reject(new Error(`The socket closed with ${code}.`));
  };
  socket.once('message', onMessage);
  socket.once('close', onClose);
});

/** The HTTP answer to an upgrade that was refused. */
export const refusal = (socket: WebSocket): Promise<{ status: number; headers: NodeJS.Dict<string | string[]>; json: unknown }> => new Promise((resolve, reject) => {
  socket.on('error', reject);
  socket.once('open', () => reject(new Error('The upgrade was not refused.')));
  socket.once('unexpected-response', (_request, answer) => {
    const chunks: Buffer[] = [];
    answer.on('data', (chunk: Buffer) => chunks.push(chunk));
    answer.on('end', () => resolve({ status: answer.statusCode ?? 0, headers: answer.headers, json: JSON.parse(Buffer.concat(chunks).toString('utf8')) }));
  });
});

export interface GatewayProcess {
  readonly child: ChildProcess;
  readonly port: number;
  readonly ended: Promise<number | null>;
  /** Log lines so far. */
  readonly lines: readonly string[];
}

const mainPath = fileURLToPath(new URL('../../gateway/main.ts', import.meta.url));

/** Starts `gateway/main.ts` with this configuration; resolves when it says that it listens. */
export const spawnGateway = async (folder: string, name: string, raw: Record<string, unknown>): Promise<GatewayProcess> => {
  const path = join(folder, `${name}.toml`);
  await writeFile(path, stringify(raw));
  const child = spawn(process.execPath, [mainPath, '--config', path], { stdio: ['ignore', 'pipe', 'pipe'] });
  const lines: string[] = [];
  const ended = new Promise<number | null>((resolve) => child.once('exit', (code) => resolve(code)));
  const port = await new Promise<number>((resolve, reject) => {
    let rest = '';
    let stderr = '';
    child.stderr.on('data', (chunk: Buffer) => {
      stderr += chunk.toString('utf8');
    });
    child.stdout.on('data', (chunk: Buffer) => {
      const parts = (rest + chunk.toString('utf8')).split('\n');
      rest = parts.pop() ?? '';
      for (const text of parts) {
        lines.push(text);
        const line: unknown = JSON.parse(text);
        if (typeof line === 'object' && line !== null && 'msg' in line && line.msg === 'listening' && 'port' in line && typeof line.port === 'number') resolve(line.port);
      }
    });
    child.once('exit', (code) => reject(new Error(`The gateway ended with ${String(code)}: ${stderr}`)));
  });
  return { child, port, ended, lines };
};
