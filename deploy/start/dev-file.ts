/**
 * `.troupe/dev.json`: what tools and tests need to use this development Troupe: the account made at the first start with its access token
 * and its organization's API key, and a gateway token (HS256, accepted by a gateway in `auth.dev_mode` only, so that it may live a day).
 * Mode 0600, replaced whole when that token is made anew.
 */
import { SignJWT } from 'jose';
import { devFile, type DevFile } from '../../contracts/config.ts';
import { limits } from '../../contracts/limits.ts';
import type { DevAccount } from './account.ts';
import type { DevDeployment } from './deployment.ts';
import { writePrivate } from './folder.ts';

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
  readonly deploymentUrl: string;
  /** With the integrator's credentials. */
  readonly natsUrl: string;
  readonly caPath: string;
  readonly adminSocket: string;
  readonly account: Pick<DevAccount, 'userId' | 'email' | 'accessToken' | 'org'>;
  readonly deployment: DevDeployment;
}

/** Signs a new token and writes the file. */
export const writeDevFile = async (facts: DevFacts): Promise<DevFile> => {
  const token = await signDevToken(facts.secret, { sub: facts.account.userId, audience: facts.audience, org: facts.account.org.id });
  const file = devFile.parse({
    baseUrl: facts.baseUrl, gatewayUrl: facts.baseUrl, deploymentUrl: facts.deploymentUrl,
    natsUrl: facts.natsUrl, caPath: facts.caPath, adminSocket: facts.adminSocket,
    user: { id: facts.account.userId, email: facts.account.email, accessToken: facts.account.accessToken, gatewayToken: token },
    org: facts.account.org,
    deployment: facts.deployment,
  });
  writePrivate(facts.path, `${JSON.stringify(file, null, 2)}\n`);
  return file;
};
