/**
 * `.troupe/dev.json`: what tools and tests need to use this development Troupe, with a user's token (HS256, accepted by a
 * gateway in `auth.dev_mode` only). Mode 0600, replaced whole when the token is made anew.
 */
import { SignJWT } from 'jose';
import { devFile, type DevFile } from '../../contracts/config.ts';
import { limits } from '../../contracts/limits.ts';
import { writePrivate } from './folder.ts';

export const devUser = { id: 'dev-user', email: 'dev@localhost' } as const;

/** A Tier 1 identity token as the gateway of `audience` takes it. `nowSec` in Unix seconds. */
export const signDevToken = (
  secret: string,
  claims: { readonly sub: string; readonly audience: string; readonly org?: string; readonly ttlSec?: number; readonly nowSec?: number },
): Promise<string> => {
  const nowSec = claims.nowSec ?? Math.floor(Date.now() / 1000);
  return new SignJWT(claims.org === undefined ? {} : { org: claims.org })
    .setProtectedHeader({ alg: 'HS256', typ: 'JWT' })
    .setSubject(claims.sub).setAudience(claims.audience).setIssuedAt(nowSec)
    .setExpirationTime(nowSec + (claims.ttlSec ?? limits.devTokenTtlSec))
    .sign(new TextEncoder().encode(secret));
};

export interface DevFacts {
  readonly path: string;
  readonly secret: string;
  readonly audience: string;
  readonly baseUrl: string;
  /** With the integrator's credentials. */
  readonly natsUrl: string;
  readonly caPath: string;
  readonly adminSocket: string;
  readonly org: string;
}

/** Signs a new token and writes the file. */
export const writeDevFile = async (facts: DevFacts): Promise<DevFile> => {
  const token = await signDevToken(facts.secret, { sub: devUser.id, audience: facts.audience, org: facts.org });
  const file = devFile.parse({
    baseUrl: facts.baseUrl, gatewayUrl: facts.baseUrl, deploymentUrl: facts.baseUrl,
    natsUrl: facts.natsUrl, caPath: facts.caPath, adminSocket: facts.adminSocket,
    user: { ...devUser, accessToken: token, gatewayToken: token },
    org: { id: facts.org, slug: facts.org },
  });
  writePrivate(facts.path, `${JSON.stringify(file, null, 2)}\n`);
  return file;
};
