/**
 * Lets a request for a deployment's services in or refuses it: address bucket, the form of its credential, the credential's bucket, in that order.
 *
 * Guarantees: only the daemon knows whether a credential is good, so a request takes from the address bucket until the daemon has answered it
 * as somebody's: guesses cost what anonymous requests cost. A key has a bucket of its own; JWTs, which whoever has the secret makes without
 * end, have one for the deployment they name and the address they come from, so that nobody uses up another's by naming it.
 */
import { hash } from 'node:crypto';
import { addressBlock } from '../contracts/address.ts';
import { deploymentAddress } from '../contracts/deployment.ts';
import { deploymentOfKey, readDeploymentJwt } from '../contracts/deployment-token.ts';
import { limits } from '../contracts/limits.ts';
import type { EnvelopeRoute } from '../contracts/platform-routes.ts';
import { addressTokens } from '../contracts/subjects.ts';
import type { HeldBody } from './bodies.ts';
import { bearerOf, type Gate } from './gate.ts';
import { nothing, secretKey, type PlatformAdmitted, type RouteGate } from './platform-gate.ts';
import type { PlatformRequest } from './platform-request.ts';

interface Named {
  readonly bucket: string;
  readonly partitionKey?: string;
}

/** Whose credential it says it is; undefined for what has the form of none. */
const nameOf = (token: string, address: string): Named | undefined => {
  const key = deploymentOfKey(token);
  if (key !== undefined) return { bucket: secretKey(token), partitionKey: addressTokens(deploymentAddress(key.organizationId, key.deploymentId)) };
  const jwt = readDeploymentJwt(token);
  if (jwt === undefined) return undefined;
  return { bucket: `jwt ${hash('sha256', `${jwt.deploymentId ?? ''} ${addressBlock(address)}`, 'base64url')}` };
};

export class DeploymentGate implements RouteGate {
  readonly #gate: Gate;

  constructor(gate: Gate) {
    this.#gate = gate;
  }

  /** Throws `rate_limited`, `unauthorized`. */
  admit(route: EnvelopeRoute, { address, authorization, announced }: PlatformRequest, held: HeldBody): PlatformAdmitted {
    const gate = this.#gate;
    gate.checkAddress(address);
    if (route.auth.kind === 'none') {
      gate.takeAddress(address);
      return { token: '', believed: nothing };
    }
    const token = this.#tokenOf(authorization, address);
    const named = nameOf(token, address);
    if (named === undefined) throw gate.refused(address, 'unauthorized');
    gate.takeUser(named.bucket);
    gate.takeAddress(address);
    if (Math.min(route.bodyMaxBytes, announced) > limits.bodyMaxBytes) held.upload(named.bucket);
    let taken = true;
    const believed = (): void => {
      if (taken) gate.giveAddress(address);
      taken = false;
    };
    return { token, ...named, believed };
  }

  /** No bearer, two, one of another scheme or one too long: the same refusal. */
  #tokenOf(authorization: string, address: string): string {
    let token: string | undefined;
    try {
      token = bearerOf(authorization);
    } catch {
      throw this.#gate.refused(address, 'unauthorized');
    }
    if (token === undefined) throw this.#gate.refused(address, 'unauthorized');
    return token;
  }
}
