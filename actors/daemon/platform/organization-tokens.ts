/**
 * The two secrets that organizations give out: API keys and the tokens of invitations' links.
 *
 * Guarantees: each leads to its organization by itself, so nothing is looked up for one that is malformed. An API key is 32 random bytes, of
 * which only the SHA-256 is stored. An invitation's token is derived from the master key and stored nowhere; that it still counts is the
 * organization's word.
 */
import { randomBytes, type KeyObject } from 'node:crypto';
import { isOrganizationId } from '../../../contracts/ids.ts';
import { deriveKey, proofOf, sameBytes, sha256 } from './derive.ts';

/** Characters of the random part that a key's shown prefix holds: far too few to guess the rest. */
const prefixRandomChars = 4;
const head = 'trp_sk_';
const keyForm = /^trp_sk_([0-7][0-9a-hjkmnp-tv-z]{25})_[A-Za-z0-9_-]{43}$/;

export interface NewKey {
  /** `trp_sk_<26 characters of the organization's id>_<43 of base64url>`: shown once. */
  readonly key: string;
  readonly prefix: string;
  readonly sha256: string;
}

/** `organizationId`: `org_…`. */
export const newApiKey = (organizationId: string): NewKey => {
  const start = `${head}${organizationId.slice('org_'.length)}_`;
  const key = `${start}${randomBytes(32).toString('base64url')}`;
  return { key, prefix: key.slice(0, start.length + prefixRandomChars), sha256: sha256(key) };
};

/** The organization that a key names; undefined for what has not the form of one. */
export const organizationOfKey = (key: string): string | undefined => {
  const id = `org_${keyForm.exec(key)?.[1] ?? ''}`;
  return isOrganizationId(id) ? id : undefined;
};

export interface InvitationTokens {
  /** `<organization>.<invitation>.<43 of base64url>`. */
  make(organizationId: string, invitationId: string): string;
  /** What a token stands for; undefined for one that was not made here. */
  read(token: string): { readonly organizationId: string; readonly invitationId: string } | undefined;
}

const tokenForm = /^(org_[0-9a-z]{26})\.(inv_[0-9a-z]{26})\.([A-Za-z0-9_-]{43})$/;

export const createInvitationTokens = (masterKey: KeyObject): InvitationTokens => {
  const key = deriveKey(masterKey, 'invitation');
  return {
    make: (organizationId, invitationId) => `${organizationId}.${invitationId}.${proofOf(key, organizationId, invitationId).toString('base64url')}`,
    read: (token) => {
      const [, organizationId, invitationId, proof] = tokenForm.exec(token) ?? [];
      if (organizationId === undefined || invitationId === undefined || proof === undefined) return undefined;
      // As text: the last character of 43 holds two bits that decoding drops.
      const own = proofOf(key, organizationId, invitationId).toString('base64url');
      return sameBytes(Buffer.from(proof), Buffer.from(own)) ? { organizationId, invitationId } : undefined;
    },
  };
};
