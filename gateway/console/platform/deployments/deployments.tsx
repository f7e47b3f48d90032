/** Deployments of an organization: the list, and of one its sessions, the inspector, its knowledge and its regulation. */
import type { VNode } from 'preact';
import { useDesk, useLoaded } from '../desk.ts';
import { Failed, Waiting } from '../form.tsx';
import type { Within } from '../place.ts';
import type { Listed } from '../resources.ts';
import { Inspector } from './inspector.tsx';
import { Knowledge } from './knowledge.tsx';
import { DeploymentList } from './list.tsx';
import { Regulation } from './regulation.tsx';
import { mainBranch, readDeployment } from './services.ts';
import { Sessions } from './sessions.tsx';
import { To } from './to.tsx';

const parts = [['sessions', 'Sessions'], ['knowledge', 'Knowledge'], ['regulation', 'Regulation']] as const;

const One = ({ organization, deployment: id, within }: { organization: Listed; deployment: string; within: Within }): VNode => {
  const desk = useDesk();
  const { loaded, reload } = useLoaded(id, () => desk.api.get('/api/deployments', { orgId: organization.id, id }, readDeployment));
  if (loaded.state === 'loading') return <Waiting what="the deployment" />;
  if (loaded.state === 'failed') return <Failed problem={loaded.problem} onRetry={() => { void reload(); }} />;
  const deployment = loaded.value;
  const { part = 'sessions', session, node } = within;
  return (
    <>
      <nav class="tabs" aria-label={`Parts of ${deployment.name}`}>
        <strong>{deployment.name}</strong>
        {parts.map(([name, title]) => <To key={name} org={organization.id} within={{ deployment: id, part: name }} current={part === name}>{title}</To>)}
      </nav>
      {part === 'knowledge' && <Knowledge organization={organization} deployment={deployment} node={node} />}
      {part === 'regulation' && <Regulation key={id} deployment={deployment} />}
      {part === 'sessions' && (session === undefined ? <Sessions organization={organization} deployment={deployment} />
        : <Inspector key={`${session} ${within.branch ?? mainBranch}`} organization={organization} deployment={deployment} session={session} branch={within.branch ?? mainBranch} />)}
    </>
  );
};

export const Deployments = ({ organization, within }: { organization: Listed; within: Within }): VNode =>
  (within.deployment === undefined ? <DeploymentList organization={organization} />
    : <One key={within.deployment} organization={organization} deployment={within.deployment} within={within} />);
