/**
 * The certificate on disk: read, checked, watched (interface 8.3; decisions, Edge gateway).
 *
 * Guarantees: a pair is checked as a whole (both files parse, the key belongs to the certificate) before it is put into
 * service; a pair that fails leaves the old one in service and is tried again when a file has changed. Files are compared by
 * content, so renames, symlinks and copied times do not deceive it. The key is not kept in memory here.
 */
import { createHash, createPrivateKey, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createSecureContext } from 'node:tls';
import { coded, CodedError, shown } from '../contracts/errors.ts';
import type { Clock } from './clock.ts';
import type { Log } from './log.ts';
import type { CertificateFiles } from './server.ts';

export interface CertificateState {
  /** SHA-256 of the certificate in service, hex. */
  readonly fingerprint: string;
  readonly subject: string;
  /** Unix milliseconds. */
  readonly notAfterMs: number;
}

export interface CertificateWatch {
  readonly state: CertificateState;
  /** Looks now. `swapped` false = the files hold what is in service. Rejects with `cert_reload_failed`. */
  reload(): Promise<{ readonly swapped: boolean } & CertificateState>;
  close(): void;
}

interface Pair extends CertificateState {
  readonly digest: string;
}

/** Reads and checks a pair. Rejects with `cert_reload_failed`; the cause names what is wrong, the message does not. */
export const readPair = async (files: CertificateFiles): Promise<Pair> => {
  try {
    const [cert, key] = await Promise.all([readFile(files.certPath), readFile(files.keyPath)]);
    const leaf = new X509Certificate(cert);
    if (!leaf.checkPrivateKey(createPrivateKey(key))) throw coded('cert_reload_failed', 'The private key does not belong to the certificate.');
    createSecureContext({ cert, key });
    const digest = createHash('sha256').update(cert).update('\0').update(key).digest('hex');
    return { digest, fingerprint: leaf.fingerprint256.replaceAll(':', '').toLowerCase(), subject: leaf.subject, notAfterMs: Date.parse(leaf.validTo) };
  } catch (cause) {
    if (cause instanceof CodedError) throw cause;
    throw coded('cert_reload_failed', undefined, { cause });
  }
};

const stateOf = ({ fingerprint, subject, notAfterMs }: Pair): CertificateState => ({ fingerprint, subject, notAfterMs });

/** Watches from the pair in service on; `apply` puts a checked pair into service and throws if it cannot. */
export const watchCertificate = (options: {
  readonly files: CertificateFiles;
  readonly inService: Pair;
  readonly pollMs: number;
  readonly clock: Clock;
  readonly log: Log;
  readonly apply: (files: CertificateFiles) => void;
}): CertificateWatch => {
  const { files, log } = options;
  let pair = options.inService;
  let looking: Promise<{ swapped: boolean } & CertificateState> | undefined;
  /** The last failure logged: a broken file is told once, not with every look. */
  let told = '';

  const look = async (): Promise<{ swapped: boolean } & CertificateState> => {
    const found = await readPair(files);
    if (found.digest === pair.digest) return { swapped: false, ...stateOf(pair) };
    options.apply(files);
    pair = found;
    told = '';
    log.info({ fingerprint: pair.fingerprint, not_after: new Date(pair.notAfterMs).toISOString() }, 'certificate swapped');
    return { swapped: true, ...stateOf(pair) };
  };
  // One look at a time: a poll and an operator's reload must not swap twice.
  const reload = (): Promise<{ swapped: boolean } & CertificateState> => {
    looking ??= look().finally(() => {
      looking = undefined;
    });
    return looking;
  };
  const poll = (): void => {
    reload().catch((error: unknown) => {
      const cause = error instanceof Error && error.cause instanceof Error ? error.cause.message : shown(error).message;
      if (cause === told) return;
      told = cause;
      log.warn({ cause }, 'certificate not loaded, the old one stays in service');
    });
  };
  const stop = options.clock.every(options.pollMs, poll);
  return {
    get state() {
      return stateOf(pair);
    },
    reload,
    close: stop,
  };
};
