/** Trust: the person's own score with its factors, verifying a domain, certifications of an organization, the score of an agent. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { allows } from '../../../contracts/roles.ts';
import { useAction, useDesk, useLoaded, type Problem } from './desk.ts';
import { readAgentScore, readUserScore, type AgentScore } from './figures.ts';
import { Failed, Field, Form, Select, Waiting } from './form.tsx';
import type { Listed } from './resources.ts';
import { Certifications } from './trust/certifications.tsx';
import { Domain } from './trust/domain.tsx';
import { ofAgent, ofUser, Score } from './trust/factors.tsx';

const path = '/api/trust/score';

const unknownAgent = (problem: Problem): Problem =>
  (problem.code === 'not_found' || problem.code === 'validation_error' ? { ...problem, field: 'agentId', message: 'There is no agent with this id that you can see.' } : problem);

const AgentTrust = (): VNode => {
  const desk = useDesk();
  const action = useAction(unknownAgent);
  const [id, setId] = useState('');
  const [found, setFound] = useState<AgentScore>();
  const look = (): void => {
    setFound(undefined);
    void action.run(async () => { setFound(await desk.api.get(path, { agentId: id.trim() }, readAgentScore)); });
  };
  return (
    <>
      <Form label="Agent" submit="Show score" action={action} fields={['agentId']} onSubmit={look}>
        <Field label="Agent id" name="agentId" value={id} onInput={setId} problem={action.problem} required maxLength={128} autocomplete="off" spellcheck={false} hint="Before you rely on an agent: what is known of it." />
      </Form>
      {found !== undefined && <div role="region" aria-label={`Score of ${found.agentId}`} class="form"><p>Deployed by <code>{found.deployedBy}</code></p><Score {...found} explained={ofAgent} /></div>}
    </>
  );
};

const OfOrganizations = ({ organizations }: { organizations: readonly Listed[] }): VNode => {
  const mine = organizations.filter(({ role }) => allows(role, 'org.update'));
  const [id, setId] = useState(mine[0]?.id ?? '');
  const organization = mine.find((one) => one.id === id);
  if (organization === undefined) return <p class="hint">Certifications are for admins and owners of an organization; you are in none as such.</p>;
  return (
    <>
      {mine.length > 1 && <div class="choices"><Select label="Organization" name="organization" value={id} options={mine.map((one) => one.id)} named={(one) => mine.find((other) => other.id === one)?.name ?? one} onChange={setId} /></div>}
      <Certifications key={organization.id} organization={organization} />
    </>
  );
};

export const Trust = ({ organizations }: { organizations: readonly Listed[] }): VNode => {
  const desk = useDesk();
  const { loaded, reload } = useLoaded('trust', () => desk.api.get(path, {}, readUserScore));
  return (
    <>
      <section class="card" aria-labelledby="score">
        <h2 id="score">Your trust score</h2>
        {loaded.state === 'loading' && <Waiting what="your score" />}
        {loaded.state === 'failed' && <Failed problem={loaded.problem} onRetry={() => { void reload(); }} />}
        {loaded.state === 'ready' && <Score {...loaded.value} explained={ofUser} />}
      </section>
      <section class="card" aria-labelledby="domain"><h2 id="domain">Verify a domain</h2><Domain onVerified={reload} /></section>
      <section class="card" aria-labelledby="certifications"><h2 id="certifications">Certifications</h2><OfOrganizations organizations={organizations} /></section>
      <section class="card" aria-labelledby="agent"><h2 id="agent">An agent's score</h2><AgentTrust /></section>
    </>
  );
};
