/**
 * The mails there are: subject, plain text and a plain HTML page each.
 *
 * Guarantees: whatever a person named (an organization, themselves) is one line of text in every part: control characters and characters
 * that reorder text are taken out, markup is escaped, the length is cut. Links are https (or http to this machine, for development). No
 * image, script, style sheet or tracking of any kind. The code is not in the subject, which shows on locked screens.
 */
import { isLoopback } from './loopback.ts';
import type { Mail } from './mailer.ts';

/** What a template gives; the sender adds `id` and `to`. */
export type MailContent = Required<Pick<Mail, 'subject' | 'text' | 'html'>>;

const nameMaxChars = 80;
// oxlint-disable-next-line no-control-regex
const unseen = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]/gu;

/** A name from a person, as one short line. */
const line = (name: string): string => {
  const chars = [...name.replaceAll(unseen, ' ').replaceAll(/\s+/gu, ' ').trim()];
  return chars.length > nameMaxChars ? `${chars.slice(0, nameMaxChars - 1).join('')}…` : chars.join('');
};

const entities: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
const escaped = (text: string): string => text.replaceAll(/[&<>"']/g, (char) => entities[char] ?? char);

/** Throws a TypeError (a bug of the caller) for what is no link to an https page. */
const safeLink = (link: string): string => {
  const url = new URL(link);
  const open = url.protocol === 'https:' || (url.protocol === 'http:' && isLoopback(url.hostname.replace(/^\[|\]$/g, '')));
  if (!open || url.username !== '' || url.password !== '') throw new TypeError('a mail may only link to an https page');
  return url.href;
};

type Part = { readonly say: string } | { readonly show: string } | { readonly link: string; readonly label: string };

const content = (subject: string, parts: readonly Part[]): MailContent => {
  const text = parts.map((part) => ('say' in part ? part.say : 'show' in part ? `    ${part.show}` : part.link)).join('\n\n');
  const html = parts.map((part) => {
    if ('say' in part) return `<p>${escaped(part.say)}</p>`;
    if ('show' in part) return `<p style="font-size:24px;letter-spacing:4px;font-family:monospace">${escaped(part.show)}</p>`;
    return `<p><a href="${escaped(part.link)}">${escaped(part.label)}</a></p><p>${escaped(part.link)}</p>`;
  }).join('\n');
  return {
    subject,
    text: `${text}\n`,
    html: `<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>${escaped(subject)}</title></head>\n<body style="font-family:sans-serif;max-width:36em">\n${html}\n</body></html>\n`,
  };
};

/** A sign-in code. `minutes` = how long it is good. */
export const signInCode = ({ code, minutes }: { readonly code: string; readonly minutes: number }): MailContent => content('Your Troupe sign-in code', [
  { say: 'Enter this code on the page where you are signing in:' },
  { show: line(code) },
  { say: `It is good for ${minutes} minutes and works once.` },
  { say: 'Did you not ask for it? Then ignore this mail: without the code nobody can sign in. Never pass it on to anybody.' },
]);

/** A code that proves the address of an account which was made without it, through a sign-in provider (TRU-026). */
export const verifyCode = ({ code, minutes }: { readonly code: string; readonly minutes: number }): MailContent => content('Verify your address for Troupe', [
  { say: 'An account with this e-mail address was made on Troupe. This code proves that the address is yours:' },
  { show: line(code) },
  { say: `It is good for ${minutes} minutes and works once. Verifying the address raises the account's trust; you can ask for a new code by signing in with your e-mail address.` },
  { say: 'Did you not make an account? Then ignore this mail. Never pass the code on to anybody: with it one can sign in.' },
]);

export interface InvitationMail {
  readonly organization: string;
  /** Who invites: name or e-mail address. */
  readonly by: string;
  /** What they will be: viewer, member, admin. */
  readonly role: string;
  /** Leads to the page that accepts; one without an account is led to make one there. Holds the token. */
  readonly link: string;
  readonly days: number;
}

/** An invitation to an organization (ORG-038). */
export const invitation = ({ organization, by, role, link, days }: InvitationMail): MailContent => content(`Invitation to ${line(organization)} on Troupe`, [
  { say: `${line(by)} invites you to the organization "${line(organization)}" on Troupe, as ${line(role)}.` },
  { link: safeLink(link), label: 'Accept the invitation' },
  { say: `The link is good for ${days} days and for you alone. If you have no account yet, you can make one there with this e-mail address.` },
  { say: 'Do you not know them? Then ignore this mail: nothing happens.' },
]);

/** An organization was deleted: to each of its members (ORG-028). */
export const organizationDeleted = ({ organization, by }: { readonly organization: string; readonly by: string }): MailContent => content(`${line(organization)} was deleted on Troupe`, [
  { say: `${line(by)} has deleted the organization "${line(organization)}", of which you were a member.` },
  { say: 'Access has ended. Its conversations, memories, keys and deployments are being erased for good; this cannot be undone.' },
  { say: 'Your own account is not affected.' },
]);
