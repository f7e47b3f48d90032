/** The branches of a session, and a new one at the event one looks at. */
import type { VNode } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { allows } from '../../../../contracts/roles.ts';
import { fields, list } from '../../read.ts';
import { useAction, useDesk, useLoaded, type Problem } from '../desk.ts';
import { Failed, Field, Form, Waiting } from '../form.tsx';
import { when, type Listed } from '../resources.ts';
import { branchQuery, readBranch, servicePath, type Envelope } from './services.ts';
import { To } from './to.tsx';

interface BranchesProps {
  readonly organization: Listed;
  readonly deployment: string;
  readonly session: string;
  readonly branch: string;
  readonly event: Envelope | undefined;
  readonly number: number;
  /** A turn runs: what the list says of this branch changes with its end. */
  readonly running: boolean;
}

const named = (problem: Problem): Problem => (problem.code === 'conflict' ? { ...problem, field: 'name', message: 'There is a branch of this name.' } : problem);

const Fork = ({ organization, deployment, session, branch, event, number }: BranchesProps): VNode => {
  const desk = useDesk();
  const action = useAction(named);
  const [name, setName] = useState('');
  const [armed, setArmed] = useState(false);
  const fork = (): void => {
    void action.run(async () => {
      const body = { name, from: branch, ...(event === undefined ? {} : { at: event.id }), allow_effects: armed };
      const made = await desk.api.send('POST', servicePath(deployment, 'sessions', session, 'branches'), body, readBranch);
      desk.say(`The branch ${made.branch} was forked after event ${number}`);
      desk.go({ view: 'deployments', org: organization.id, within: { deployment, part: 'sessions', session, ...branchQuery(made.branch) } });
    });
  };
  return (
    <Form label="New branch" submit={`Fork after event ${number}`} action={action} fields={['name']} onSubmit={fork}>
      <Field label="Name of a new branch" name="name" value={name} onInput={setName} problem={action.problem} required maxLength={64} autocomplete="off" spellcheck={false} />
      <label class="tick"><input type="checkbox" name="allow_effects" checked={armed} onChange={(change) => { setArmed(change.currentTarget.checked); }} />Its tools may act outside of the session</label>
    </Form>
  );
};

export const Branches = (props: BranchesProps): VNode => {
  const { organization, deployment, session, branch, running } = props;
  const desk = useDesk();
  const { loaded, reload } = useLoaded(`${deployment} ${session}`, () => desk.api.get(servicePath(deployment, 'sessions', session, 'branches'), {}, fields({ branches: list(readBranch) })));
  useEffect(() => { if (!running) void reload(); }, [running]);
  return (
    <section class="card" aria-labelledby="branches">
      <h2 id="branches">Branches</h2>
      {loaded.state === 'loading' && <Waiting what="branches" />}
      {loaded.state === 'failed' && <Failed problem={loaded.problem} onRetry={() => { void reload(); }} />}
      {loaded.state === 'ready' && (
        <ul class="rows">
          {loaded.value.branches.map((one) => (
            <li key={one.branch}>
              <div class="what">
                <strong><To org={organization.id} within={{ deployment, part: 'sessions', session, ...branchQuery(one.branch) }} current={one.branch === branch}>{one.branch}</To></strong>
                <span class="hint">{one.event_count} events · {when(one.created_at)}{one.from !== null && ` · from ${one.from}`}</span>
              </div>
              {one.from !== null && <span class="tag">effects {one.effects}</span>}
            </li>
          ))}
        </ul>
      )}
      {allows(organization.role, 'chat.create') && <Fork {...props} />}
    </section>
  );
};
