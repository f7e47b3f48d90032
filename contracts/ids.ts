/**
 * The platform's own ids and the two forms people type: e-mail addresses and slugs.
 *
 * Guarantee: an id is `<prefix>_` and 26 characters of Crockford's base32 in lower case (a ULID), so it is one plain subject token and
 * says of which kind it is. E-mail addresses and slugs are ASCII, so that no look-alike of another script can pass for one.
 */
import { z } from 'zod';
import { limits } from './limits.ts';

const ulid = '[0-7][0-9a-hjkmnp-tv-z]{25}';
const id = <Prefix extends string>(prefix: Prefix) => z.string().regex(new RegExp(`^${prefix}_${ulid}$`), { error: `must be an id of the form ${prefix}_… (26 characters)` });

export const accountId = id('usr');
export const organizationId = id('org');
export const invitationId = id('inv');
export const keyId = id('key');
export const grantId = id('grt');

export const certificationId = id('crt');
export const deploymentId = id('dep');
/** A deployment's agent. */
export const deploymentAgentId = id('agt');
export type IdPrefix = 'usr' | 'org' | 'inv' | 'key' | 'grt' | 'evt' | 'crt' | 'dep' | 'agt';
/** An id of a new ULID in any case. */
export const idOf = (prefix: IdPrefix, newUlid: string): string => `${prefix}_${newUlid.toLowerCase()}`;

/** True for ids of our organizations; an organization named by a foreign identity provider never looks like one. */
export const isOrganizationId = (text: string): boolean => organizationId.safeParse(text).success;
export const isAccountId = (text: string): boolean => accountId.safeParse(text).success;

const notAnAddress = 'must be an e-mail address';

/**
 * Trimmed and in lower case. ASCII only (RFC 5321 section 4.1.2 without quoted strings and address literals), at most
 * `limits.emailMaxChars`; a domain of another script is written in its `xn--` form.
 */
export const email = z.string().trim().max(limits.emailMaxChars, { error: `has at most ${limits.emailMaxChars} characters` })
  // Before the letters are made small: some of other scripts (the Kelvin sign) would become ASCII by it.
  .regex(/^[\u0021-\u007e]*$/, { error: 'must be in ASCII; a domain of another script in its xn-- form' }).toLowerCase()
  .regex(/^[a-z0-9!#$%&'*+/=?^_`{|}~-]{1,64}(?:\.[a-z0-9!#$%&'*+/=?^_`{|}~-]{1,64})*@(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]$/, { error: notAnAddress })
  .refine((text) => text.indexOf('@') <= 64, { error: notAnAddress });

export const reservedSlugs: readonly string[] = [
  'api', 'www', 'admin', 'console', 'app', 'chat', 'login', 'signup', 'auth', 'status', 'docs', 'blog', 'help', 'support',
];
/** 3-32 of a-z 0-9 and hyphen, starting and ending alphanumeric, not reserved (decisions, Organizations). Never changes after creation. */
export const slug = z.string().regex(/^[a-z0-9][a-z0-9-]{1,30}[a-z0-9]$/, { error: 'must be 3 to 32 of a-z, 0-9 and hyphen, with a letter or digit at both ends' })
  .refine((text) => !reservedSlugs.includes(text), { error: 'is a reserved word; choose another' });

// oxlint-disable-next-line no-control-regex
const control = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/;
/** Something that is seen: not white space, not what leaves no ink (zero-width characters, fillers, the empty Braille cell). */
const visible = /[^\s\p{Default_Ignorable_Code_Point}\p{Mn}\u2800]/u;
/** A name shown to people: 1-128 code points, trimmed, NFC, something to see, no control character, no line end and no character that reorders text. */
export const displayName = z.string().max(4 * limits.idMaxChars, { error: `must be 1 to ${limits.idMaxChars} characters` }).transform((text) => text.normalize('NFC').trim())
  .refine((text) => visible.test(text) && [...text].length <= limits.idMaxChars && !control.test(text) && text.isWellFormed(), { error: `must be 1 to ${limits.idMaxChars} characters, some of them visible, without control characters` });
