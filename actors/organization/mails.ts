/**
 * An organization's mails: invitations, and the word to each member that it was deleted (ORG-028, ORG-038).
 *
 * Guarantees: a mail that is in the outbox is sent at least once, always under the same Message-ID, or given up after
 * `limits.organizationMailForMs` or the mail server's refusal, which the audit log shows. At most `limits.organizationMailsMax` at once. An
 * invitation that was revoked or has ended is not mailed any more. A link's token is made while the mail is sent and is journaled nowhere.
 */
import { z } from 'zod';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { Mail, Mailer } from '../mail/mailer.ts';
import { invitation, organizationDeleted } from '../mail/templates.ts';
import type { EffectContext, Outcome } from '../runtime/define.ts';
import { isPending } from './show.ts';
import type { OrganizationState } from './state.ts';
import type { mailInput, OrganizationTurn } from './turn.ts';

export interface MailDeps {
  readonly mailer: Pick<Mailer, 'send'>;
  /** Address of the page that accepts an invitation; holds its token. */
  readonly invitationLink: (organizationId: string, invitationId: string) => string;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** False = there was nothing to send any more. */
export const mailOutput = z.strictObject({ sent: z.boolean() });

type Input = z.output<typeof mailInput>;
const dayMs = 86_400_000;

/** Starts what is due and sets the reminder for what comes after. The last thing of every turn that changes the outbox. */
export const mailsOn = (turn: OrganizationTurn): void => {
  if (turn.state.phase === 'none') return;
  const { outbox } = turn.state;
  const running = outbox.filter((mail) => mail.running).length;
  const due = outbox.filter((mail) => !mail.running && mail.due <= turn.now).slice(0, Math.max(0, limits.organizationMailsMax - running));
  for (const { mail } of due) {
    turn.effect('mail', { mail });
    turn.emit('MailStarted', { mail });
  }
  if (turn.state.outbox.length === 0) {
    turn.forget('mail');
    return;
  }
  // While some run: only in case their host is lost; the end of each looks again.
  const idle = turn.state.outbox.filter((mail) => !mail.running).map((mail) => mail.due);
  const wake = turn.now + limits.organizationWakeMs;
  turn.remind('mail', { atMs: running + due.length > 0 ? wake : Math.min(wake, ...idle) });
};

/** What is to be mailed now; undefined = nothing any more. */
const mailOf = (state: OrganizationState, orgId: string, { mail }: Input, deps: MailDeps): Mail | undefined => {
  if (state.phase === 'live') {
    const one = state.invitations.find(({ id }) => id === mail);
    if (one === undefined || !isPending(one, deps.now())) return undefined;
    const link = deps.invitationLink(orgId, mail);
    return { id: `${orgId}-${mail}`, to: one.email, ...invitation({ organization: state.name, by: one.by, role: one.role, link, days: limits.invitationTtlMs / dayMs }) };
  }
  const member = state.phase === 'deleted' ? state.members.find(({ user_id }) => user_id === mail) : undefined;
  if (state.phase !== 'deleted' || member === undefined) return undefined;
  return { id: `${orgId}-${mail}-deleted`, to: member.email, ...organizationDeleted({ organization: state.name, by: state.by }) };
};

export const sendMail = (deps: MailDeps) => async (context: EffectContext<OrganizationState>, input: Input): Promise<z.output<typeof mailOutput>> => {
  const mail = mailOf(context.state(), context.self.key, input, deps);
  if (mail === undefined) return { sent: false };
  if (context.signal.aborted) throw coded('aborted');
  await deps.mailer.send(mail, context.signal);
  return { sent: true };
};

export const mailed = (turn: OrganizationTurn, outcome: Outcome<z.output<typeof mailOutput>>, { mail }: Input): void => {
  const queued = turn.state.phase === 'none' ? undefined : turn.state.outbox.find((one) => one.mail === mail);
  if (queued !== undefined) {
    const delay = Math.min(limits.organizationMailRetryMs * 2 ** Math.min(queued.attempts, 20), limits.organizationMailRetryMaxMs);
    if (outcome.ok) turn.emit('MailSent', { mail });
    else if (outcome.code === 'mail_refused' || turn.now >= queued.since + limits.organizationMailForMs) turn.emit('MailGivenUp', { mail, code: outcome.code });
    else turn.emit('MailFailed', { mail, code: outcome.code, due: Math.min(turn.now + delay, queued.since + limits.organizationMailForMs) });
  }
  mailsOn(turn);
};
