/** Members and their roles. What one may not do is not offered; the organization decides in any case. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { rank, roles, type Role } from '../../../contracts/roles.ts';
import { list, fields, nothing } from '../read.ts';
import { useAction, useDesk, useLoaded } from './desk.ts';
import { Button, Confirmed, Failed, ProblemText, Select, Waiting } from './form.tsx';
import { day, readMember, type Listed, type Member } from './resources.ts';
import { mayChange, mayRemove } from './rights.ts';

const path = '/api/organization/members';
const answer = fields({ members: list(readMember) });

const RoleOf = ({ organization, member, onChanged }: { organization: Listed; member: Member; onChanged: (member: Member) => void }): VNode => {
  const desk = useDesk();
  const action = useAction();
  const [role, setRole] = useState<Role>(member.role);
  const change = (): void => {
    void action.run(async () => {
      const changed = await desk.api.send('PATCH', path, { orgId: organization.id, userId: member.userId, role }, readMember);
      onChanged(changed);
      desk.say(`${member.email} is now ${changed.role}`);
      if (member.userId === desk.person.id) await desk.refresh();
    });
  };
  return (
    <>
      <Select label={`Role of ${member.email}`} name="role" hidden value={role} options={roles.filter((option) => rank(option) <= rank(organization.role))} onChange={setRole} />
      {role !== member.role && <Button class="" busy={action.busy} onClick={change}>Change role</Button>}
      <ProblemText problem={action.problem} />
    </>
  );
};

export const Members = ({ organization }: { organization: Listed }): VNode => {
  const desk = useDesk();
  const mine = organization.role;
  const { loaded, reload, change } = useLoaded(organization.id, () => desk.api.get(path, { orgId: organization.id }, answer));
  const remove = async (member: Member): Promise<void> => {
    const self = member.userId === desk.person.id;
    await (self ? desk.api.send('POST', '/api/organization/leave', { orgId: organization.id }, nothing)
      : desk.api.send('DELETE', path, { orgId: organization.id, userId: member.userId }, nothing));
    desk.say(self ? `You have left ${organization.name}` : `${member.email} was removed`);
    if (!self) return reload();
    await desk.refresh();
    desk.go({ view: 'organizations', org: undefined });
  };
  if (loaded.state === 'loading') return <Waiting what="members" />;
  if (loaded.state === 'failed') return <Failed problem={loaded.problem} onRetry={() => { void reload(); }} />;
  return (
    <section class="card" aria-label="Members">
      <ul class="rows">
        {loaded.value.members.map((member) => {
          const self = member.userId === desk.person.id;
          return (
            <li key={`${member.userId} ${member.role}`}>
              <div class="what">
                <strong>{member.name === '' ? member.email : member.name}{self && ' (you)'}</strong>
                <span class="hint">{member.email} · since {day(member.joinedAt)}</span>
              </div>
              <div class="actions">
                {mayChange(mine, member.role)
                  ? <RoleOf organization={organization} member={member} onChanged={(changed) => { change(({ members }) => ({ members: members.map((m) => (m.userId === changed.userId ? changed : m)) })); }} />
                  : <span class="tag">{member.role}</span>}
                {(self || mayRemove(mine, member.role)) && (
                  <Confirmed
                    text={self ? 'Leave' : 'Remove'} label={self ? `Leave ${organization.name}` : `Remove ${member.email}`}
                    question={self ? `Leave ${organization.name}?` : `Remove ${member.email}?`} confirm={self ? 'Leave' : 'Remove'} onConfirm={() => remove(member)}
                  >
                    <p>{self ? 'You lose access at once. Coming back needs an invitation.' : 'Access ends at once, on every device. The personal workspace stays.'}</p>
                  </Confirmed>
                )}
              </div>
            </li>
          );
        })}
      </ul>
    </section>
  );
};
