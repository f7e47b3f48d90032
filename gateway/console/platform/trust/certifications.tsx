/**
 * Certifications of an organization and of its agents: applying, and how far each is. Which there are is told by the organization's audit log,
 * each one's own state by the certification itself.
 */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { fields, list, orNull, text } from '../../read.ts';
import { useAction, useDesk, useLoaded, type Problem } from '../desk.ts';
import { readCertification, readCertificationAnswer, type Certification } from '../figures.ts';
import { Failed, Field, Form, Select, Waiting } from '../form.tsx';
import { day, readEntry, type Listed } from '../resources.ts';

const kinds = ['platform-partner', 'agent-operator', 'security-reviewed'] as const;
const kindWords: Readonly<Record<Certification['certType'], string>> = { 'platform-partner': 'Platform partner', 'agent-operator': 'Agent operator', 'security-reviewed': 'Security reviewed' };
const entities = ['organization', 'agent'] as const;
const stateWords: Readonly<Record<Certification['status'], string>> = {
  pending: 'waits for the platform\'s staff', approved: 'approved; staff may revoke it', rejected: 'rejected; you may apply again', revoked: 'revoked; you may apply again',
};

/** Audit entries looked through for certifications. */
const looked = '1000';
const auditAnswer = fields({ entries: list(readEntry), nextCursor: orNull(text) });

const inWords = (entityId: string) => (problem: Problem): Problem =>
  (problem.code === 'not_found' ? { ...problem, field: 'entityId', message: `There is no agent ${entityId} that this organization deployed.` } : problem);

const Apply = ({ organization, onApplied }: { organization: Listed; onApplied: () => Promise<void> }): VNode => {
  const desk = useDesk();
  const [entityType, setEntityType] = useState<(typeof entities)[number]>('organization');
  const [agent, setAgent] = useState('');
  const [certType, setCertType] = useState<(typeof kinds)[number]>('platform-partner');
  const [website, setWebsite] = useState('');
  const [description, setDescription] = useState('');
  const action = useAction(inWords(agent));
  const apply = (): void => {
    void action.run(async () => {
      const entityId = entityType === 'organization' ? organization.id : agent.trim();
      const evidence = { website: website.trim(), description: description.trim() };
      const { estimatedReview } = await desk.api.send('POST', '/api/trust/certify', { entityType, entityId, certType, evidence }, readCertificationAnswer);
      desk.say(`Applied. Expect an answer until ${day(estimatedReview)}`);
      setWebsite('');
      setDescription('');
      await onApplied();
    });
  };
  return (
    <Form label="Apply for a certification" submit="Apply" action={action} fields={['entityId', 'website', 'description']} onSubmit={apply}>
      <Select label="For" name="entityType" value={entityType} options={entities} named={(one) => (one === 'organization' ? organization.name : 'An agent of it')} onChange={setEntityType} />
      {entityType === 'agent' && <Field label="Agent id" name="entityId" value={agent} onInput={setAgent} problem={action.problem} required maxLength={128} autocomplete="off" spellcheck={false} />}
      <Select label="Certification" name="certType" value={certType} options={kinds} named={(one) => kindWords[one]} onChange={setCertType} />
      <Field label="Website" name="website" inputMode="url" value={website} onInput={setWebsite} problem={action.problem} required maxLength={512} autocomplete="off" placeholder="https://" />
      <Field label="Why it should have it" name="description" value={description} onInput={setDescription} problem={action.problem} required maxLength={2_000} autocomplete="off" hint="What staff should look at: what you offer, to whom, how it is secured." />
    </Form>
  );
};

export const Certifications = ({ organization }: { organization: Listed }): VNode => {
  const desk = useDesk();
  const { loaded, reload } = useLoaded(`certifications of ${organization.id}`, async () => {
    const { entries } = await desk.api.get('/api/organization/audit', { orgId: organization.id, limit: looked }, auditAnswer);
    const ids = [...new Set(entries.filter(({ resourceType }) => resourceType === 'certification').map(({ resourceId }) => resourceId))];
    return Promise.all(ids.map((id) => desk.api.get(`/api/trust/certify/${encodeURIComponent(id)}`, {}, readCertification)));
  });
  return (
    <>
      <p class="hint">An application is <strong>pending</strong> until the platform's staff has looked at it, within about 7 days: then it is <strong>approved</strong> or <strong>rejected</strong>. An approved one can later be <strong>revoked</strong>.</p>
      {loaded.state === 'loading' && <Waiting what="certifications" />}
      {loaded.state === 'failed' && <Failed problem={loaded.problem} onRetry={() => { void reload(); }} />}
      {loaded.state === 'ready' && (loaded.value.length === 0 ? <p class="hint">{organization.name} has applied for none yet.</p> : (
        <ul class="rows">
          {loaded.value.map(({ certificationId, certType, entityType, entityId, status, estimatedReview }) => (
            <li key={certificationId}>
              <div class="what">
                <strong>{kindWords[certType]}</strong>
                <span class="hint">{entityType === 'organization' ? organization.name : `Agent ${entityId}`} · {stateWords[status]}{status === 'pending' && `, until about ${day(estimatedReview)}`}</span>
                <code>{certificationId}</code>
              </div>
              <span class="tag">{status}</span>
            </li>
          ))}
        </ul>
      ))}
      <h3>Apply</h3>
      <Apply organization={organization} onApplied={reload} />
    </>
  );
};
