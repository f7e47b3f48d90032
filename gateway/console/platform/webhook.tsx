/** The webhook's signing secret and what could not be delivered. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { nothing } from '../read.ts';
import { useAction, useDesk, useLoaded } from './desk.ts';
import { Button, Failed, ProblemText, Secret, Waiting } from './form.tsx';
import { readWebhook, when, type Listed, type Webhook } from './resources.ts';

const DeadLetter = ({ organization, letter, onSent }: { organization: Listed; letter: Webhook['deadLetters'][number]; onSent: () => Promise<void> }): VNode => {
  const desk = useDesk();
  const action = useAction();
  const redeliver = (): void => {
    void action.run(async () => {
      await desk.api.send('POST', '/api/organization/webhook/redeliver', { orgId: organization.id, id: letter.id }, nothing);
      desk.say(`${letter.type} is sent again`);
      await onSent();
    });
  };
  return (
    <li>
      <div class="what">
        <strong>{letter.type}</strong>
        <span class="hint">{when(letter.created)} · {letter.attempts} attempts · {letter.lastError}</span>
        <ProblemText problem={action.problem} />
      </div>
      <Button busy={action.busy} label={`Send ${letter.type} ${letter.id} again`} onClick={redeliver}>Send again</Button>
    </li>
  );
};

/** Shows nothing as long as there is neither an address nor a dead letter. */
export const WebhookState = ({ organization }: { organization: Listed }): VNode | null => {
  const desk = useDesk();
  const [open, setOpen] = useState(false);
  const { loaded, reload } = useLoaded(organization.id, () => desk.api.get('/api/organization/webhook', { orgId: organization.id }, readWebhook));
  if (loaded.state === 'loading') return <Waiting what="the webhook" />;
  if (loaded.state === 'failed') return <Failed problem={loaded.problem} onRetry={() => { void reload(); }} />;
  const { url, secret, deadLetters } = loaded.value;
  if (url === null && deadLetters.length === 0) return null;
  return (
    <section class="card" aria-labelledby="webhook">
      <h2 id="webhook">Webhook</h2>
      {url !== null && (open
        ? <Secret label="Signing secret" value={secret} onDone={() => { setOpen(false); }} />
        : <p class="actions"><Button onClick={() => { setOpen(true); }}>Show signing secret</Button></p>)}
      {url !== null && <p class="hint">Header <code>Troupe-Signature: t=…,v1=…</code>: v1 is the HMAC-SHA256 of <code>t.body</code> with this secret.</p>}
      {deadLetters.length === 0 ? <p class="hint">Everything was delivered or is still being tried.</p> : (
        <>
          <h3>Not delivered</h3>
          <ul class="rows">{deadLetters.map((letter) => <DeadLetter key={letter.id} organization={organization} letter={letter} onSent={reload} />)}</ul>
        </>
      )}
    </section>
  );
};
