/**
 * The development certificate authority and the server certificate it signs, for localhost, 127.0.0.1 and ::1 only.
 *
 * Guarantee: the CA stays the same from start to start (whoever trusted it keeps trusting it); the server certificate is
 * made anew when it nears its end, no longer fits the CA or its key, or cannot be read. Keys are 0600.
 */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { generate } from 'selfsigned';
import { limits } from '../../contracts/limits.ts';
import { writePrivate } from './folder.ts';

const dayMs = 86_400_000;
const curve = { keyType: 'ec', curve: 'P-256', algorithm: 'sha256' } as const;
/** The CA outlives any checkout; it signs nothing but localhost. */
const caDays = 3_650;

export interface Certificate {
  readonly caPath: string;
  readonly certPath: string;
  readonly keyPath: string;
  /** True when this call made the server certificate. */
  readonly renewed: boolean;
}

const readPair = (certPath: string, keyPath: string): { readonly cert: X509Certificate; readonly key: string } | undefined => {
  if (!existsSync(certPath) || !existsSync(keyPath)) return undefined;
  try {
    const cert = new X509Certificate(readFileSync(certPath));
    const key = readFileSync(keyPath, 'utf8');
    return cert.checkPrivateKey(createPrivateKey(key)) ? { cert, key } : undefined;
  } catch {
    // A damaged file is replaced like a missing one.
    return undefined;
  }
};

const makeCa = async (): Promise<{ cert: string; key: string }> => {
  const made = await generate([{ name: 'commonName', value: 'Troupe development CA' }], {
    ...curve, notAfterDate: new Date(Date.now() + caDays * dayMs),
    extensions: [
      { name: 'basicConstraints', cA: true, critical: true },
      { name: 'keyUsage', keyCertSign: true, cRLSign: true, critical: true },
    ],
  });
  return { cert: made.cert, key: made.private };
};

/** A server certificate for this machine's loopback names, signed by the CA. */
export const makeServerCertificate = async (
  ca: { readonly cert: string; readonly key: string }, days: number = limits.devCertificateDays,
): Promise<{ cert: string; key: string }> => {
  const made = await generate([{ name: 'commonName', value: 'localhost' }], {
    ...curve, ca, notBeforeDate: new Date(Date.now() - dayMs), notAfterDate: new Date(Date.now() + days * dayMs),
    extensions: [
      { name: 'basicConstraints', cA: false, critical: true },
      { name: 'keyUsage', digitalSignature: true, critical: true },
      { name: 'extKeyUsage', serverAuth: true },
      { name: 'subjectAltName', altNames: [{ type: 2, value: 'localhost' }, { type: 7, ip: '127.0.0.1' }, { type: 7, ip: '::1' }] },
    ],
  });
  return { cert: made.cert, key: made.private };
};

/** Keeps or makes both certificates in a folder. `now` in Unix milliseconds. */
export const ensureCertificate = async (tlsFolder: string, now: number = Date.now()): Promise<Certificate> => {
  const caPath = join(tlsFolder, 'ca.pem');
  const caKeyPath = join(tlsFolder, 'ca.key');
  const certPath = join(tlsFolder, 'server.pem');
  const keyPath = join(tlsFolder, 'server.key');

  const keptCa = readPair(caPath, caKeyPath);
  const caGood = keptCa !== undefined && keptCa.cert.validToDate.getTime() - now > limits.devCertificateDays * dayMs;
  const ca = caGood ? { cert: readFileSync(caPath, 'utf8'), key: keptCa.key } : await makeCa();
  if (!caGood) {
    writePrivate(caKeyPath, ca.key);
    writePrivate(caPath, ca.cert);
  }
  const kept = readPair(certPath, keyPath);
  const good = kept !== undefined && kept.cert.verify(new X509Certificate(ca.cert).publicKey)
    && kept.cert.validToDate.getTime() - now > limits.devCertificateRenewDays * dayMs;
  if (!good) {
    const server = await makeServerCertificate(ca);
    writePrivate(keyPath, server.key);
    writePrivate(certPath, server.cert);
  }
  return { caPath, certPath, keyPath, renewed: !good };
};
