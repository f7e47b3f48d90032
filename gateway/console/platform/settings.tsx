/** An organization's name and settings, handing it over, deleting it. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { allows } from '../../../contracts/roles.ts';
import { fields, list, nothing } from '../read.ts';
import { useAction, useDesk, useLoaded, type Problem } from './desk.ts';
import { Confirmed, Failed, Field, Form, Select, Waiting } from './form.tsx';
import { readMember, readOrganization, type Listed, type Organization } from './resources.ts';
import { WebhookState } from './webhook.tsx';

const path = '/api/organization';
const memberList = fields({ members: list(readMember) });

const inWords = (problem: Problem): Problem => {
  if (problem.code !== 'validation_error') return problem;
  if (problem.field?.endsWith('webhookUrl') === true) return { ...problem, message: 'This must be an https address without a user name or fragment.' };
  if (problem.field?.endsWith('retentionDays') === true) return { ...problem, message: 'This must be a whole number of days, from 1.' };
  return problem;
};

/** Digits as a number; anything else goes to the server as it is and comes back as its refusal. */
const daysOf = (typed: string): number | string | null => (typed.trim() === '' ? null : /^\d{1,9}$/.test(typed.trim()) ? Number(typed.trim()) : typed);

const Settings = ({ organization, now, onChanged }: { organization: Listed; now: Organization; onChanged: (changed: Organization) => void }): VNode => {
  const desk = useDesk();
  const action = useAction(inWords);
  const { problem } = action;
  const [name, setName] = useState(now.name);
  const [model, setModel] = useState(now.settings.defaultModel);
  const [sharedMemory, setSharedMemory] = useState(now.settings.sharedMemory);
  const [webhookUrl, setWebhookUrl] = useState(now.settings.webhookUrl ?? '');
  const [retention, setRetention] = useState(now.settings.retentionDays === null ? '' : String(now.settings.retentionDays));
  const owner = allows(organization.role, 'retention.configure');
  // Only what was changed is sent: two admins at work at once do not undo each other.
  const save = (): void => {
    const { settings } = now;
    const url = webhookUrl.trim() === '' ? null : webhookUrl.trim();
    const days = daysOf(retention);
    const changed = {
      ...(model === settings.defaultModel ? {} : { defaultModel: model }), ...(sharedMemory === settings.sharedMemory ? {} : { sharedMemory }),
      ...(url === settings.webhookUrl ? {} : { webhookUrl: url }), ...(!owner || days === settings.retentionDays ? {} : { retentionDays: days }),
    };
    void action.run(async () => {
      const body = { orgId: organization.id, ...(name === now.name ? {} : { name }), ...(Object.keys(changed).length === 0 ? {} : { settings: changed }) };
      const answer = await desk.api.send('PATCH', path, body, readOrganization);
      onChanged(answer);
      if (answer.name !== organization.name) await desk.refresh();
      desk.say('Saved');
    });
  };
  return (
    <section class="card" aria-labelledby="settings">
      <h2 id="settings">Settings</h2>
      <Form label="Settings" submit="Save" action={action} fields={['name', 'defaultModel', 'webhookUrl', 'retentionDays']} onSubmit={save}>
        <Field label="Name" name="name" value={name} onInput={setName} problem={problem} required maxLength={128} autocomplete="off" />
        <Field label="Default model" name="defaultModel" value={model} onInput={setModel} problem={problem} required maxLength={128} autocomplete="off" spellcheck={false} hint="Used where a request names no model." />
        <label class="tick"><input type="checkbox" name="sharedMemory" checked={sharedMemory} onChange={(event) => { setSharedMemory(event.currentTarget.checked); }} />Members share one memory</label>
        <Field
          label="Webhook address" name="webhookUrl" inputMode="url" value={webhookUrl} onInput={setWebhookUrl} problem={problem} autocomplete="off" spellcheck={false} placeholder="https://"
          hint="Gets membership changes, plan changes and ended sessions, each signed. Empty = none."
        />
        {owner
          ? <Field label="Days that conversations are kept" name="retentionDays" inputMode="numeric" value={retention} onInput={setRetention} problem={problem} autocomplete="off" hint="Older ones are deleted for good. Empty = for ever." />
          : <p class="hint">Conversations are kept {now.settings.retentionDays === null ? 'for ever' : `for ${now.settings.retentionDays} days`}; the owner sets this.</p>}
      </Form>
    </section>
  );
};

const HandOver = ({ organization }: { organization: Listed }): VNode | null => {
  const desk = useDesk();
  const { loaded, reload } = useLoaded(`members of ${organization.id}`, () => desk.api.get('/api/organization/members', { orgId: organization.id }, memberList));
  const [email, setEmail] = useState<string>();
  if (loaded.state === 'loading') return <Waiting what="members" />;
  if (loaded.state === 'failed') return <Failed problem={loaded.problem} onRetry={() => { void reload(); }} />;
  const others = loaded.value.members.filter(({ userId }) => userId !== desk.person.id);
  const chosen = others.find((member) => member.email === email) ?? others[0];
  if (chosen === undefined) return <p class="hint">There is nobody else to hand it to.</p>;
  const transfer = async (): Promise<void> => {
    await desk.api.send('POST', '/api/organization/transfer', { orgId: organization.id, userId: chosen.userId }, readMember);
    desk.say(`${chosen.email} owns ${organization.name} now`);
    await desk.refresh();
  };
  return (
    <div class="form">
      <Select label="New owner" name="owner" value={chosen.email} options={others.map((member) => member.email)} onChange={setEmail} />
      <p class="actions">
        <Confirmed text="Hand over" question={`Make ${chosen.email} the owner?`} confirm="Hand over" onConfirm={transfer}>
          <p>You become an admin of {organization.name}. Only the new owner can undo this.</p>
        </Confirmed>
      </p>
    </div>
  );
};

export const OrganizationSettings = ({ organization }: { organization: Listed }): VNode => {
  const desk = useDesk();
  const { loaded, reload, change } = useLoaded(organization.id, () => desk.api.get(path, { orgId: organization.id }, readOrganization));
  const remove = async (): Promise<void> => {
    await desk.api.send('DELETE', path, { orgId: organization.id }, nothing);
    desk.say(`${organization.name} was deleted`);
    await desk.refresh();
    desk.go({ view: 'organizations', org: undefined });
  };
  if (loaded.state === 'loading') return <Waiting what="settings" />;
  if (loaded.state === 'failed') return <Failed problem={loaded.problem} onRetry={() => { void reload(); }} />;
  const now = loaded.value;
  return (
    <>
      <Settings organization={organization} now={now} onChanged={(changed) => { change(() => changed); }} />
      <WebhookState key={now.settings.webhookUrl ?? ''} organization={organization} />
      {allows(organization.role, 'org.transfer') && (
        <section class="card" aria-labelledby="hand-over">
          <h2 id="hand-over">Hand over</h2>
          <HandOver organization={organization} />
        </section>
      )}
      {allows(organization.role, 'org.delete') && (
        <section class="card" aria-labelledby="delete">
          <h2 id="delete">Delete</h2>
          <p class="hint">Removes {organization.name} with its conversations, memories, API keys and deployments, for good. Its members are told by mail.</p>
          <p class="actions">
            <Confirmed text="Delete organization" question={`Delete ${organization.name}?`} confirm="Delete for good" typed={organization.slug} onConfirm={remove}>
              <p>Everybody loses access at once. This cannot be undone.</p>
            </Confirmed>
          </p>
        </section>
      )}
    </>
  );
};
