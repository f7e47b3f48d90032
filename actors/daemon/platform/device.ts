/**
 * Handlers of the device flow (RFC 8628; interface 2.1, 3.1, 4.1, 8.2; decisions, Device flow and tokens): the device's side, which
 * begins and polls, and the side of the signed-in person, who sees what is asked and decides.
 *
 * Guarantees
 * D1  A device code that was not made here is `invalid_grant` without a look-up and without a trace. One that was counts its polls with
 *     the remote address, before anything is told.
 * D2  One token answer for each approval: the record is used up first, then tokens are made, if the poll has time for both. If making them
 *     fails all the same, the person approves anew; never do two clients get tokens. Who ends all logins ends what was approved before.
 * D3  User codes looked for in vain count per person; who guesses too often is told nothing for a while, not even of codes that exist.
 *     One daemon learns it at that person's next miss, so of n daemons together they give n looks more.
 * It makes no pages and keeps no token.
 */
import { randomUUID } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { z } from 'zod';
import { authRoutes, deviceGrant } from '../../../contracts/auth-routes.ts';
import { clientId, deviceCommands, userCode } from '../../../contracts/device.ts';
import { coded, CodedError } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { nameCommands } from '../../../contracts/name.ts';
import { byOf, type Caller } from '../../../contracts/platform.ts';
import type { ActorAddress } from '../../../contracts/subjects.ts';
import { endpointAllowance } from '../../allowance/address.ts';
import { deviceAddress, deviceId, isDeviceCode, newDeviceCode, newUserCode } from '../../device/codes.ts';
import { nameAddress } from '../../name/address.ts';
import { addressBlock } from './address.ts';
import type { Accounts, PlatformDeps } from './deps.ts';
import { deriveKey } from './derive.ts';
import { forAnyone, forCaller, type PlatformHandler, type PlatformHandlerRequest } from './serve.ts';
import { bodyOf, queryOf } from './typed.ts';

export interface DeviceDeps extends Pick<PlatformDeps, 'config' | 'masterKey' | 'actors' | 'allowances' | 'now'> {
  readonly accounts: Pick<Accounts, 'issue'>;
}

type AnyRequest = PlatformHandlerRequest<Caller | undefined>;
type Commands = typeof deviceCommands;

/** RFC 6749 section 3.1: a parameter without a value counts as left out. */
const given = (text: string | undefined): string | undefined => (text === '' ? undefined : text);

/** `rate_limited` of an allowance under the endpoint's own code, with the same details. */
const limited = (code: 'rate_limit_exceeded' | 'slow_down') => (error: unknown): never => {
  if (!(error instanceof CodedError) || error.code !== 'rate_limited') throw error;
  throw coded(code, undefined, { cause: error, ...(error.details === undefined ? {} : { details: { ...error.details } }) });
};

const retryAfterSec = (error: CodedError): number => {
  const after: unknown = error.details?.['retry_after'];
  return typeof after === 'number' ? after : 1;
};

export const deviceHandlers = (deps: DeviceDeps): Readonly<Record<string, PlatformHandler>> => {
  const { config, actors, allowances, accounts, now } = deps;
  const base = config.base_url;
  const codeKey = deriveKey(deps.masterKey, 'device-code');
  /** People who guessed too often: Unix milliseconds until which they are told nothing. */
  const guessers = new LRUCache<string, number>({ max: limits.userCodeGuessersMax });

  /** `once`: under an id, so that a repeat after a hand-over does nothing twice. What only looks has none, since ids are journaled. */
  const ask = ({ deadlineAt, signal }: AnyRequest, address: ActorAddress, command: string, input: unknown, once = false): Promise<unknown> =>
    actors.ask({ address, command, input, principal: { kind: 'system' }, deadlineAt, signal, ...(once ? { id: randomUUID() } : {}) });
  const askDevice = async <Name extends keyof Commands>(
    request: AnyRequest, id: string, command: Name, input: z.input<Commands[Name]['input']>, once = false,
  ): Promise<z.output<Commands[Name]['output']>> => {
    const output = await ask(request, deviceAddress(id), command, input, once);
    return deviceCommands[command].output.parse(output) as z.output<Commands[Name]['output']>;
  };

  const takeUserCode = async (request: AnyRequest, id: string): Promise<string> => {
    for (let draws = 0; draws < limits.userCodeDrawsMax; draws++) {
      const drawn = newUserCode();
      const forMs = limits.deviceTtlSec * 1_000 + limits.deviceKeptMs;
      const { mine } = nameCommands.claim.output.parse(await ask(request, nameAddress('user-code', drawn), 'claim', { holder: id, forMs }, true));
      if (mine) return drawn;
    }
    throw coded('overloaded');
  };

  const begin = forAnyone(async (request) => {
    const body = bodyOf(authRoutes.deviceCode, request);
    const client = clientId.safeParse(given(body.client_id) ?? 'cli');
    if (!client.success) throw coded('invalid_request', 'client_id must be 1-128 printable ASCII characters.');
    await allowances.take({ ...endpointAllowance('device-code', addressBlock(request.context.ip)), signal: request.signal })
      .catch(limited('rate_limit_exceeded'));
    const deviceCode = newDeviceCode(codeKey);
    const id = deviceId(deviceCode);
    const code = await takeUserCode(request, id);
    const { expires_in } = await askDevice(request, id, 'start', { user_code: code, client_id: client.data }, true);
    return {
      status: 200,
      headers: { 'cache-control': 'no-store' },
      body: {
        device_code: deviceCode, user_code: code, verification_uri: `${base}/device`, verification_uri_complete: `${base}/device?code=${code}`,
        expires_in, interval: limits.deviceIntervalSec,
      },
    };
  });

  const token = forAnyone(async (request) => {
    const body = bodyOf(authRoutes.deviceToken, request);
    // Also when it is missing (decisions, Device flow and tokens).
    if (given(body.grant_type) !== deviceGrant) throw coded('unsupported_grant_type');
    const deviceCode = given(body.device_code);
    if (deviceCode === undefined) throw coded('invalid_request', 'device_code is missing.');
    if (!isDeviceCode(codeKey, deviceCode)) throw coded('invalid_grant');
    await allowances.take({ ...endpointAllowance('device-poll', deviceCode, addressBlock(request.context.ip)), signal: request.signal })
      .catch(limited('slow_down'));
    const id = deviceId(deviceCode);
    const client = given(body.client_id);
    const poll = client === undefined ? {} : { client_id: client };
    const { state } = await askDevice(request, id, 'poll', poll);
    if (state === 'approved' && request.deadlineAt - performance.now() < limits.deviceRedeemMs) throw coded('deadline_exceeded');
    const found = state === 'approved' || state === 'denied' ? await askDevice(request, id, 'redeem', poll, true) : { state };
    switch (found.state) {
      case 'pending': throw coded('authorization_pending');
      case 'denied': throw coded('access_denied');
      case 'expired': throw coded('expired_token');
      case 'unknown':
      case 'other_client': throw coded('invalid_grant');
      case 'approved':
    }
    const issued = await accounts.issue(found.user_id, 'device', found.client_id, request.context, found.approved_at).catch((error: unknown) => {
      // The person is gone since, or has ended all logins.
      throw error instanceof CodedError && error.code === 'unauthorized' ? coded('access_denied') : error;
    });
    return {
      status: 200,
      headers: { 'cache-control': 'no-store' },
      body: { access_token: issued.accessToken, token_type: 'Bearer', expires_in: issued.expiresInSec, refresh_token: issued.refreshToken },
    };
  });

  /** A person of a browser session. */
  const personOf = ({ caller }: PlatformHandlerRequest): string => {
    if (caller.kind !== 'user') throw coded('forbidden');
    return caller.userId;
  };

  const requireNoGuesser = (userId: string): void => {
    const until = guessers.get(userId) ?? 0;
    const leftMs = until - now();
    if (leftMs <= 0) return;
    const details = { limit: limits.userCodeMissesPerMinuteMax, remaining: 0, reset: Math.ceil(until / 1_000), retry_after: Math.ceil(leftMs / 1_000) };
    throw coded('rate_limited', undefined, { details });
  };

  const missed = async (userId: string, signal: AbortSignal): Promise<never> => {
    try {
      await allowances.take({
        org: `u-${userId}`, key: 'user-code-miss', perMinute: limits.userCodeMissesPerMinuteMax, perDay: limits.userCodeMissesPerDayMax, signal,
      });
    } catch (error) {
      if (error instanceof CodedError && error.code === 'rate_limited') guessers.set(userId, now() + retryAfterSec(error) * 1_000);
      throw error;
    }
    throw coded('not_found', 'There is no such code, or it was used.');
  };

  /** Runs on the device of a typed user code; a code without one counts as a miss. */
  const onDevice = async <T>(request: PlatformHandlerRequest, typed: string, run: (id: string) => Promise<T>): Promise<T> => {
    const userId = personOf(request);
    requireNoGuesser(userId);
    // What has not the form of one guesses nothing.
    if (!userCode.safeParse(typed).success) throw coded('not_found', 'There is no such code, or it was used.');
    const { holder } = nameCommands.holder.output.parse(await ask(request, nameAddress('user-code', typed), 'holder', {}));
    if (holder === null) return missed(userId, request.signal);
    try {
      return await run(holder);
    } catch (error) {
      if (error instanceof CodedError && error.code === 'not_found') return missed(userId, request.signal);
      throw error;
    }
  };

  return {
    [authRoutes.metadata.id]: forAnyone(async () => ({
      status: 200,
      headers: { 'cache-control': 'public, max-age=300' },
      body: {
        issuer: base,
        device_authorization_endpoint: `${base}${authRoutes.deviceCode.path}`,
        token_endpoint: `${base}${authRoutes.deviceToken.path}`,
        refresh_endpoint: `${base}${authRoutes.refresh.path}`,
        jwks_uri: `${base}${authRoutes.jwks.path}`,
        grant_types_supported: [deviceGrant],
        token_endpoint_auth_methods_supported: ['none'],
        response_types_supported: [],
      },
    })),
    [authRoutes.deviceCode.id]: begin,
    [authRoutes.deviceToken.id]: token,
    [authRoutes.deviceShow.id]: forCaller(async (request) => {
      const { user_code } = queryOf(authRoutes.deviceShow, request);
      const shown = await onDevice(request, user_code, (id) => askDevice(request, id, 'describe', {}));
      return { status: 200, body: shown };
    }),
    [authRoutes.deviceAuthorize.id]: forCaller(async (request) => {
      const { user_code, action } = bodyOf(authRoutes.deviceAuthorize, request);
      const by = byOf(request.caller, request.context);
      const { status, client_id } = await onDevice(request, user_code, (id) => askDevice(request, id, 'decide', { action, by }, true));
      return { status: 200, body: status === 'approved' ? { status, client_id } : { status } };
    }),
  };
};
