/** Self-signed P-256 server certificates for any names; each is its own authority. */
import { generate } from 'selfsigned';

export interface ServerCertificate {
  readonly cert: string;
  readonly key: string;
}

/** For these DNS names, and 127.0.0.1 and ::1 unless `loopback` is false. */
export const certificateFor = async (names: readonly string[], loopback = true): Promise<ServerCertificate> => {
  const made = await generate([{ name: 'commonName', value: names[0] ?? 'localhost' }], {
    keyType: 'ec', curve: 'P-256', algorithm: 'sha256',
    extensions: [{
      name: 'subjectAltName',
      altNames: [
        ...names.map((value) => ({ type: 2 as const, value })),
        ...(loopback ? [{ type: 7 as const, ip: '127.0.0.1' }, { type: 7 as const, ip: '::1' }] : []),
      ],
    }],
  });
  return { cert: made.cert, key: made.private };
};
