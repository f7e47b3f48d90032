/**
 * The platform surface put together: who calls (callers.ts), what answers (a table of handlers per subject), what they share.
 *
 * A subject is one file that gives its handlers by route id; two tables with one id are a bug, found at start.
 */
import type { KeyObject } from 'node:crypto';
import { limits } from '../../../contracts/limits.ts';
import type { PlatformRoute } from '../../../contracts/platform.ts';
import { membershipsOf } from '../../projections/organizations.ts';
import type { Projections } from '../../projections/projections.ts';
import type { Sender } from '../../runtime/message.ts';
import type { Blobs } from '../../blobs/blobs.ts';
import type { Tools } from '../../tools/tool.ts';
import type { Allowances } from '../allowances.ts';
import type { Answer, Call } from '../link-call.ts';
import type { Log } from '../log.ts';
import type { TailSource } from '../tail.ts';
import { createAccounts, createCsrf } from './accounts.ts';
import { authHandlers } from './auth.ts';
import { createBearers } from './bearer.ts';
import { billingHandlers } from './billing.ts';
import { chatHandlers, createRunChat, modelHandlers } from './chat.ts';
import { createCallers } from './callers.ts';
import type { PlatformConfig, PlatformDeps } from './deps.ts';
import { deviceHandlers } from './device.ts';
import { createKeyVerifier } from './keys.ts';
import type { HasTxt } from './dns.ts';
import { legalHandlers, readManifest } from './legal.ts';
import { organizationHandlers } from './organizations.ts';
import { oauthHandlers } from './oauth.ts';
import { paymentHandlers, type PaymentOptions } from './payments.ts';
import { createPlatformStreams, type PlatformStreams, type StreamHandler } from './stream-serve.ts';
import { createPlatformServe, type Callers, type PlatformHandler } from './serve.ts';
import { createTokens } from './tokens.ts';
import { uiChatHandlers } from './ui-chat.ts';
import { trustHandlers } from './trust.ts';

export interface PlatformOptions {
  readonly config: PlatformConfig;
  /** Texts of the files that `platform` names. */
  readonly secrets: {
    readonly signingKeyPem: string;
    readonly formerKeyPems: readonly string[];
    readonly legalManifest?: string | undefined;
    readonly google?: string | undefined;
    readonly github?: string | undefined;
  };
  readonly models: PlatformDeps['models'];
  readonly masterKey: KeyObject;
  readonly actors: Pick<Sender, 'ask'>;
  readonly projections: Projections;
  readonly allowances: Allowances;
  /** What sells plans, and whether it may. */
  readonly payments: PaymentOptions;
  /** Of the actors that chat reads. */
  readonly tails: TailSource;
  readonly blobs: Pick<Blobs, 'put'>;
  /** That run for `/api/chat`. */
  readonly chatTools: Tools;
  /** Handlers of other parts (deployments), by route id. */
  readonly further: { readonly plain: Readonly<Record<string, PlatformHandler>>; readonly streams: Readonly<Record<string, StreamHandler>> };
  /** Finds the TXT records that prove domains. */
  readonly hasTxt: HasTxt;
  readonly log: Log;
  /** Unix milliseconds. */
  readonly now: () => number;
  readonly newUlid: () => string;
}

export interface Platform {
  readonly serve: (call: Call<PlatformRoute>) => Promise<Answer>;
  /** Routes that are answered over a stream. */
  readonly streams: PlatformStreams;
  readonly callers: Callers;
  readonly deps: PlatformDeps;
}

/** Throws `bad_request` for a file that is not what its configuration key wants. */
export const createPlatform = async (options: PlatformOptions): Promise<Platform> => {
  const { config, secrets, masterKey, actors, projections, now } = options;
  if (secrets.legalManifest === undefined) {
    options.log.warn({ key: 'platform.legal_manifest_path' }, 'no terms of your own are configured: people are asked to accept the development documents');
  }
  const bearers = createBearers(masterKey);
  const csrfOf = createCsrf(masterKey);
  const tokens = await createTokens({
    config, signingKeyPem: secrets.signingKeyPem, formerKeyPems: secrets.formerKeyPems, now,
    log: options.log, membershipsOf: (userId) => membershipsOf(projections, userId, limits.tokenOrgsMax),
    caughtUp: (waitMs) => projections.caughtUp('organizations', undefined, waitMs),
  });
  const accounts = createAccounts({ config, actors, tokens, bearers, now, newUlid: options.newUlid });
  const deps: PlatformDeps = {
    config, masterKey, actors, projections, tokens, accounts, now, models: options.models, allowances: options.allowances, log: options.log,
    manifest: readManifest(secrets.legalManifest, config.base_url), clientSecrets: { google: secrets.google, github: secrets.github },
    newUlid: options.newUlid,
  };
  const callers = createCallers({ actors, tokens, bearers, csrfOf, verifyKey: createKeyVerifier({ actors }) });
  const handlers = joined(
    authHandlers({ ...deps, bearers, csrfOf }),
    legalHandlers(deps),
    deviceHandlers(deps),
    organizationHandlers(deps),
    oauthHandlers(deps),
    modelHandlers(deps),
    billingHandlers(deps),
    paymentHandlers(deps, options.payments),
    trustHandlers({ ...deps, hasTxt: options.hasTxt }),
    options.further.plain,
  );
  const runChat = createRunChat({ ...deps, tails: options.tails, blobs: options.blobs, tools: options.chatTools });
  const streams = createPlatformStreams({ callers, log: options.log, handlers: { ...chatHandlers(runChat), ...uiChatHandlers(runChat), ...options.further.streams } });
  return { deps, callers, streams, serve: createPlatformServe({ callers, actors, handlers }) };
};

const joined = (...tables: readonly Readonly<Record<string, PlatformHandler>>[]): Readonly<Record<string, PlatformHandler>> => {
  const entries = tables.flatMap((table) => Object.entries(table));
  const twice = entries.find(([id], i) => entries.findIndex(([other]) => other === id) !== i);
  if (twice !== undefined) throw new TypeError(`two handlers for ${twice[0]}`);
  return Object.fromEntries(entries);
};
