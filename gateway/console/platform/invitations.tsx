/** Inviting by e-mail, and what became of the invitations. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { fields, list } from '../read.ts';
import { useAction, useDesk, useLoaded, type Problem } from './desk.ts';
import { Confirmed, Failed, Field, Form, Select, Waiting } from './form.tsx';
import { day, readInvitation, type Invitation, type Listed } from './resources.ts';

const answer = fields({ invitations: list(readInvitation) });
const invited = fields({ invitation: readInvitation });
const offered = ['viewer', 'member', 'admin'] as const;

const atEmail = (problem: Problem): Problem =>
  (problem.code === 'conflict' ? { ...problem, field: 'email', message: 'This person is a member already.' }
    : problem.code === 'validation_error' && problem.field === 'email' ? { ...problem, message: 'This is not an e-mail address we can write to.' }
      : problem);

export const Invitations = ({ organization }: { organization: Listed }): VNode => {
  const desk = useDesk();
  const action = useAction(atEmail);
  const { problem } = action;
  const [email, setEmail] = useState('');
  const [role, setRole] = useState<(typeof offered)[number]>('member');
  const { loaded, reload } = useLoaded(organization.id, () => desk.api.get('/api/organization/invitations', { orgId: organization.id }, answer));
  const invite = (): void => {
    void action.run(async () => {
      const { invitation } = await desk.api.send('POST', '/api/organization/members', { orgId: organization.id, email, role }, invited);
      setEmail('');
      desk.say(`${invitation.email} was invited`);
      await reload();
    });
  };
  const revoke = async (invitation: Invitation): Promise<void> => {
    await desk.api.send('DELETE', '/api/organization/invitations', { orgId: organization.id, invitationId: invitation.id }, invited);
    desk.say(`The invitation of ${invitation.email} was revoked`);
    await reload();
  };
  return (
    <>
      <section class="card" aria-labelledby="invite">
        <h2 id="invite">Invite somebody</h2>
        <Form label="Invite somebody" submit="Send invitation" action={action} fields={['email']} onSubmit={invite}>
          <Field label="E-mail address" name="email" inputMode="email" value={email} onInput={setEmail} problem={problem} required maxLength={254} autocomplete="off" spellcheck={false} />
          <Select label="Role" name="role" value={role} options={offered} onChange={setRole} />
          <p class="hint">A link is mailed to this address. It is valid for 14 days, for this address only.</p>
        </Form>
      </section>
      <section class="card" aria-labelledby="invitations">
        <h2 id="invitations">Invitations</h2>
        {loaded.state === 'loading' && <Waiting what="invitations" />}
        {loaded.state === 'failed' && <Failed problem={loaded.problem} onRetry={() => { void reload(); }} />}
        {loaded.state === 'ready' && loaded.value.invitations.length === 0 && <p class="hint">Nobody was invited yet.</p>}
        {loaded.state === 'ready' && loaded.value.invitations.length > 0 && (
          <ul class="rows">
            {loaded.value.invitations.map((invitation) => (
              <li key={invitation.id}>
                <div class="what">
                  <strong>{invitation.email}</strong>
                  <span class="hint">{invitation.role} · {invitation.status === 'pending' ? `until ${day(invitation.expiresAt)}` : invitation.status}</span>
                </div>
                {invitation.status === 'pending' && (
                  <Confirmed text="Revoke" label={`Revoke the invitation of ${invitation.email}`} question={`Revoke the invitation of ${invitation.email}?`} confirm="Revoke" onConfirm={() => revoke(invitation)}>
                    <p>The link in the mail stops working.</p>
                  </Confirmed>
                )}
              </li>
            ))}
          </ul>
        )}
      </section>
    </>
  );
};
