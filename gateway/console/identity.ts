/**
 * Who chats: the person of a sign-in link (its token is kept for the tab), or the person who is signed in at the platform in this browser,
 * with gateway tokens that are renewed before they end and kept in memory only.
 */
import { CodedError } from '../../contracts/errors.ts';
import { subjectOf } from '../client/token.ts';
import type { Api } from './api.ts';
import { fields, number, text } from './read.ts';

export interface Identity {
  readonly userId: string;
  readonly token: () => string | Promise<string>;
  /** Of the platform: forgets a token that was refused, `token` then gets a new one. Undefined for a sign-in link. */
  readonly renew: (() => void) | undefined;
}

/** Nobody: with accounts here (a person can sign in) or without. */
export type Nobody = { readonly kind: 'nobody'; readonly accounts: boolean };
export type Found = { readonly kind: 'somebody'; readonly identity: Identity } | Nobody;

/** Milliseconds before its end from which a token is not used any more: a request takes its time, and clocks differ. */
const renewBeforeMs = 60_000;
const gatewayToken = fields({ access_token: text, expires_in: number });

/** The identity of a sign-in link's token; undefined for text that is no token. */
export const linkIdentity = (token: string): Identity | undefined => {
  const userId = subjectOf(token);
  return userId === undefined ? undefined : { userId, token: () => token, renew: undefined };
};

/** `organization`: chat within it; undefined = the personal workspace. `now`: milliseconds, monotonic. */
export const platformIdentity = async (api: Api, organization: string | undefined, now: () => number): Promise<Found> => {
  let user: { id: string } | null;
  try {
    ({ user } = await api.session());
  } catch (error) {
    // No platform behind this gateway, or one that does not answer now: there is the sign-in link.
    if (!(error instanceof CodedError)) throw error;
    return { kind: 'nobody', accounts: error.entry.kind === 'fault' };
  }
  if (user === null) return { kind: 'nobody', accounts: true };
  let held: { readonly token: Promise<string>; untilMs: number } | undefined;
  const fetched = (): Promise<string> => {
    const mine = {
      untilMs: Infinity,
      token: api.send('POST', '/api/auth/gateway-token', organization === undefined ? {} : { orgId: organization }, gatewayToken).then((answer) => {
        mine.untilMs = now() + answer.expires_in * 1_000 - renewBeforeMs;
        return answer.access_token;
      }, (error: unknown) => {
        if (held === mine) held = undefined;
        throw error;
      }),
    };
    held = mine;
    return mine.token;
  };
  return { kind: 'somebody', identity: { userId: user.id, renew: () => { held = undefined; }, token: () => (held !== undefined && now() < held.untilMs ? held.token : fetched()) } };
};
