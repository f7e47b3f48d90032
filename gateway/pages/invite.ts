/** What an invitation's link opens: who invites, as what, and the button to join. Without an account it leads to making one. */
import { html } from './html.ts';
import { alert, result, type View } from './layout.ts';
import { problemText, type Problem } from './problem.ts';
import { signinPath } from './signin.ts';

type Person = NonNullable<View['person']>;

export interface InviteInput {
  readonly organizationName: string;
  readonly invitation: { readonly email: string; readonly role: string; readonly status: string; readonly expiresAt: string };
  readonly token: string;
  readonly person: Person | undefined;
  readonly problem?: Problem | undefined;
}

/** An invitation's page; its token is in the address that the mail had. */
export const invitePath = (token: string): string => `/invite?${new URLSearchParams({ token }).toString()}`;

const closed: Readonly<Record<string, string>> = {
  accepted: 'This invitation was accepted already.',
  expired: 'This invitation has expired. Ask for a new one.',
  revoked: 'This invitation was taken back.',
};

const problemOf = (problem: Problem): string => {
  switch (problem.code) {
    case 'conflict': return 'You are a member already.';
    case 'plan_limit': return 'The organization has no free place. Ask its owner.';
    case 'not_found': return 'This invitation is not valid any more.';
    default: return problemText(problem);
  }
};

export const inviteView = ({ organizationName, invitation, token, person, problem }: InviteInput): View => {
  const title = `Join ${organizationName}`;
  const summary = html`<dl>
<div><dt>Organization</dt><dd>${organizationName}</dd></div>
<div><dt>Your role</dt><dd>${invitation.role}</dd></div>
<div><dt>Invited address</dt><dd>${invitation.email}</dd></div>
</dl>`;
  const said = problem === undefined ? undefined : alert(problemOf(problem));
  if (invitation.status !== 'pending') {
    return { title, person, body: html`${said ?? result(closed[invitation.status] ?? 'This invitation is not valid any more.')}<p><a href="/console">To your organizations</a></p>` };
  }
  if (person === undefined) {
    return {
      title,
      body: html`${said}
<p>You are invited to work in <strong>${organizationName}</strong> on Troupe.</p>
${summary}
<p>Sign in with <strong>${invitation.email}</strong>. Without an account yet, signing in makes one.</p>
<p class="actions"><a class="button" href="${signinPath(invitePath(token))}">Sign in or create an account</a></p>`,
    };
  }
  if (person.email !== invitation.email) {
    return {
      title, person,
      body: html`${said ?? alert(html`This invitation is for <strong>${invitation.email}</strong>, and you are signed in as <strong>${person.email}</strong>.`)}
${summary}
<p>Sign out, then open the link again and sign in with the invited address.</p>`,
    };
  }
  return {
    title, person,
    body: html`${said}
${summary}
<form method="post" action="/invite">
<input type="hidden" name="csrf" value="${person.csrf}">
<input type="hidden" name="token" value="${token}">
<button>Join ${organizationName}</button>
</form>`,
  };
};

/** No such invitation, or none that can be read. */
export const inviteGoneView = (person: Person | undefined, problem?: Problem): View => ({
  title: 'Invitation', person,
  body: html`${alert(problem === undefined || problem.code === 'not_found' || problem.code === 'validation_error' ? 'This invitation does not exist or is not valid any more. Ask for a new one.' : problemText(problem))}
<p><a href="/console">To your organizations</a></p>`,
});
