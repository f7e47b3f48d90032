/** The deployments of an organization: made (key and secret shown once), restarted, given a new key, ended. What one may not do is not offered. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { allows } from '../../../../contracts/roles.ts';
import type { Deployment } from '../../../../contracts/deployment.ts';
import { fields, list, nothing } from '../../read.ts';
import { useAction, useDesk, useLoaded, type Problem } from '../desk.ts';
import { Confirmed, Failed, Field, Form, Secret, Waiting } from '../form.tsx';
import { day, type Listed } from '../resources.ts';
import { readCredentials, readDeployment, type Credentials } from './services.ts';
import { To } from './to.tsx';

const path = '/api/deployments';
const answer = fields({ deployments: list(readDeployment) });

const named = (problem: Problem): Problem =>
  (problem.code === 'plan_limit' ? { ...problem, message: `${problem.message} Managed deployments need the plan team or enterprise, and each plan has room for so many.` } : problem);

const Create = ({ organization, onMade }: { organization: Listed; onMade: (made: Credentials) => Promise<void> }): VNode => {
  const desk = useDesk();
  const action = useAction(named);
  const [name, setName] = useState('');
  const [purpose, setPurpose] = useState('');
  const create = (): void => {
    void action.run(async () => {
      const made = await desk.api.send('POST', path, { orgId: organization.id, name, purpose }, readCredentials);
      setName('');
      setPurpose('');
      await onMade(made);
    });
  };
  return (
    <section class="card" aria-labelledby="create">
      <h2 id="create">New deployment</h2>
      <Form label="New deployment" submit="Create deployment" action={action} fields={['name', 'purpose']} onSubmit={create}>
        <Field label="Name" name="name" value={name} onInput={setName} problem={action.problem} required maxLength={128} autocomplete="off" />
        <Field label="Purpose" name="purpose" value={purpose} onInput={setPurpose} problem={action.problem} autocomplete="off" hint="What its agent is for. It becomes part of the agent and cannot be changed later." />
      </Form>
    </section>
  );
};

const Row = ({ organization, deployment, onKey, onChanged }: { organization: Listed; deployment: Deployment; onKey: (made: Credentials) => void; onChanged: () => Promise<void> }): VNode => {
  const desk = useDesk();
  const { id, name, status, url, agent, createdAt } = deployment;
  const target = { orgId: organization.id, id };
  const open = status !== 'deprovisioning' && status !== 'failed' && status !== 'provisioning';
  const change = async (action: 'restart' | 'rotate_key'): Promise<void> => {
    const made = await desk.api.send('PATCH', path, { ...target, action }, readCredentials);
    desk.say(action === 'restart' ? `${name} is restarting` : `${name} has a new key`);
    if (made.key !== undefined) onKey(made);
    await onChanged();
  };
  return (
    <li>
      <div class="what">
        <strong>{open ? <To org={organization.id} within={{ deployment: id, part: 'sessions' }}>{name}</To> : name}</strong>
        <span class="hint"><code>{id}</code> · made {day(createdAt)}</span>
        <span class="hint">Services at <code>{url}</code></span>
        <span class="hint">Agent <code>{agent.did}</code></span>
      </div>
      <div class="actions">
        <span class={`tag status-${status}`}>{status}</span>
        {open && allows(organization.role, 'instance.restart') && (
          <>
            <Confirmed text="Restart" label={`Restart ${name}`} question={`Restart ${name}?`} confirm="Restart" danger={false} onConfirm={() => change('restart')}>
              <p>What runs is put down and taken up again from its journal. Nothing is lost.</p>
            </Confirmed>
            <Confirmed text="New key" label={`New key for ${name}`} question={`A new key for ${name}?`} confirm="Rotate the key" onConfirm={() => change('rotate_key')}>
              <p>The old key is refused at once. The new one is shown once.</p>
            </Confirmed>
          </>
        )}
        {status !== 'deprovisioning' && allows(organization.role, 'instance.deprovision') && (
          <Confirmed
            text="Delete" label={`Delete ${name}`} question={`Delete ${name}?`} confirm="Delete" typed={name}
            onConfirm={async () => {
              await desk.api.send('DELETE', path, target, nothing);
              desk.say(`${name} is being deleted`);
              await onChanged();
            }}
          >
            <p>Its sessions, knowledge, blobs and streams, and its agent's keys, are erased. This cannot be undone.</p>
          </Confirmed>
        )}
      </div>
    </li>
  );
};

export const DeploymentList = ({ organization }: { organization: Listed }): VNode => {
  const desk = useDesk();
  const [shown, setShown] = useState<Credentials>();
  const { loaded, reload } = useLoaded(organization.id, () => desk.api.get(path, { orgId: organization.id }, answer));
  const show = (made: Credentials): void => {
    setShown(made);
    scrollTo({ top: 0 });
  };
  return (
    <>
      {shown !== undefined && (
        <section class="card made" aria-labelledby="made">
          <h2 id="made">{shown.name}</h2>
          <p role="status">Copy {shown.secret === undefined ? 'this key' : 'key and secret'} now: {shown.secret === undefined ? 'it is' : 'they are'} not shown again.</p>
          <Secret label="Deployment key" value={shown.key ?? ''} {...(shown.secret === undefined ? { onDone: () => { setShown(undefined); } } : {})} />
          {shown.secret !== undefined && <Secret label="Shared secret" value={shown.secret} onDone={() => { setShown(undefined); }} />}
        </section>
      )}
      <section class="card" aria-labelledby="deployments">
        <h2 id="deployments">Deployments</h2>
        {loaded.state === 'loading' && <Waiting what="deployments" />}
        {loaded.state === 'failed' && <Failed problem={loaded.problem} onRetry={() => { void reload(); }} />}
        {loaded.state === 'ready' && loaded.value.deployments.length === 0 && <p class="hint">There is no deployment yet.</p>}
        {loaded.state === 'ready' && loaded.value.deployments.length > 0 && (
          <ul class="rows">
            {loaded.value.deployments.map((deployment) => <Row key={deployment.id} organization={organization} deployment={deployment} onKey={show} onChanged={reload} />)}
          </ul>
        )}
      </section>
      {allows(organization.role, 'instance.provision') && (
        <Create
          organization={organization}
          onMade={async (made) => {
            show(made);
            await reload();
          }}
        />
      )}
    </>
  );
};
