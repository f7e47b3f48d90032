/**
 * A real mail server (smtp-server) on a free port of 127.0.0.1: keeps what it takes, parsed by postal-mime, and refuses, stalls or
 * trickles as the test says. Waiting is by what arrives.
 */
import { once } from 'node:events';
import type { AddressInfo, Socket } from 'node:net';
import PostalMime, { type Email } from 'postal-mime';
import { SMTPServer, type SMTPServerSession } from 'smtp-server';
import type { ServerCertificate } from './certificate.ts';

export interface ReceivedMail {
  readonly from: string;
  readonly to: readonly string[];
  readonly raw: string;
  readonly email: Email;
  /** Whether it came over TLS, and as whom. */
  readonly secure: boolean;
  readonly user: string | undefined;
}

export type SmtpStage = 'connect' | 'mail' | 'rcpt' | 'data';
/** An SMTP reply code of 4xx or 5xx, or no answer at all. Undefined = take it. */
export type SmtpFault = number | 'stall' | undefined;

export interface SmtpOptions {
  readonly certificate?: ServerCertificate;
  /** TLS from the first byte. */
  readonly secure?: boolean;
  /** Without STARTTLS. */
  readonly plain?: boolean;
  /** Requires this login. */
  readonly login?: { readonly user: string; readonly password: string };
}

export interface SmtpReceiver {
  readonly port: number;
  readonly mails: readonly ReceivedMail[];
  /** Connections so far. */
  readonly connections: number;
  /** What happens at a stage from now on. */
  fault(stage: SmtpStage, fault: SmtpFault): void;
  /** Resolves when so many mails were taken in all. */
  received(count: number): Promise<void>;
  /** Resolves when a connection reached a stage that stalls. */
  stalled(): Promise<void>;
  stop(): Promise<void>;
}

const refusal = (code: number): Error => Object.assign(new Error('no, for the test'), { responseCode: code });

export const startSmtp = async (options: SmtpOptions = {}): Promise<SmtpReceiver> => {
  const mails: ReceivedMail[] = [];
  const faults = new Map<SmtpStage, SmtpFault>();
  const waits: { readonly count: number; readonly give: () => void }[] = [];
  const stalls: (() => void)[] = [];
  const sockets = new Set<Socket>();
  let connections = 0;

  const stage = (name: SmtpStage, done: (error?: Error | null) => void | Promise<void>): void => {
    const fault = faults.get(name);
    if (fault === 'stall') for (const give of stalls.splice(0)) give();
    else void done(fault === undefined ? undefined : refusal(fault));
  };
  const keep = async (raw: Buffer, session: SMTPServerSession): Promise<void> => {
    mails.push({
      from: session.envelope.mailFrom === false ? '' : session.envelope.mailFrom.address,
      to: session.envelope.rcptTo.map(({ address }) => address),
      raw: raw.toString('utf8'), email: await PostalMime.parse(raw),
      secure: session.secure, user: typeof session.user === 'string' ? session.user : undefined,
    });
    for (const wait of waits) if (mails.length >= wait.count) wait.give();
  };
  const { certificate, login } = options;
  const server = new SMTPServer({
    ...(certificate === undefined ? {} : certificate),
    secure: options.secure === true,
    authOptional: login === undefined, disableReverseLookup: true, logger: false,
    disabledCommands: [...(options.plain === true ? ['STARTTLS'] : []), ...(login === undefined ? ['AUTH'] : [])],
    onAuth: (auth, _session, done) => {
      if (auth.username === login?.user && auth.password === login?.password) done(null, { user: auth.username });
      else done(refusal(535));
    },
    onConnect: (_session, done) => {
      connections += 1;
      stage('connect', done);
    },
    onMailFrom: (_address, _session, done) => stage('mail', done),
    onRcptTo: (_address, _session, done) => stage('rcpt', done),
    onData: (stream, session, done) => {
      const chunks: Buffer[] = [];
      stream.on('data', (chunk: Buffer) => chunks.push(chunk));
      stream.once('end', () => stage('data', async (error) => {
        let failure = error;
        try {
          if (failure === undefined || failure === null) await keep(Buffer.concat(chunks), session);
        } catch (cause) {
          failure = cause instanceof Error ? cause : refusal(451);
        }
        done(failure);
      }));
    },
  });
  // A client that ends in the middle, or refuses the certificate, is part of some tests.
  server.on('error', () => undefined);
  server.server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  const listening = once(server.listen(0, '127.0.0.1'), 'listening');
  await listening;
  const { port } = server.server.address() as AddressInfo;
  return {
    port, mails,
    get connections() { return connections; },
    fault: (name, fault) => { faults.set(name, fault); },
    received: (count) => new Promise((resolve) => {
      if (mails.length >= count) resolve();
      else waits.push({ count, give: resolve });
    }),
    stalled: () => new Promise((resolve) => { stalls.push(resolve); }),
    stop: () => new Promise((resolve) => {
      server.close(() => resolve());
      for (const socket of sockets) socket.destroy();
    }),
  };
};
