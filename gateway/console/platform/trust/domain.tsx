/** Verifying a domain in three steps: name it, set the TXT record, have it looked for. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { useAction, useDesk, type Problem } from '../desk.ts';
import { readVerified } from '../figures.ts';
import { Button, Field, Form, ProblemText, Secret } from '../form.tsx';

const path = '/api/trust/verify';

type Step =
  | { readonly kind: 'name' }
  | { readonly kind: 'record'; readonly domain: string; readonly record: { readonly name: string; readonly value: string }; readonly looks: number }
  | { readonly kind: 'done'; readonly domain: string };

const inWords = (problem: Problem): Problem =>
  (problem.code === 'validation_error' && problem.field?.endsWith('domain') === true && !problem.message.includes('verified enough')
    ? { ...problem, field: 'domain', message: 'This must be a domain name such as example.com, without https:// and without a path.' } : problem);

const stepOf = { name: 0, record: 1, done: 3 } as const;
const titles = ['Name the domain', 'Set the record', 'Have it checked'] as const;

const Steps = ({ at }: { at: number }): VNode => (
  <ol class="steps">
    {titles.map((title, step) => (
      <li key={title} class={step < at ? 'past' : undefined} aria-current={step === at ? 'step' : undefined}>{title}{step < at && <span class="hint"> (done)</span>}</li>
    ))}
  </ol>
);

/** `onVerified`: the score has changed. */
export const Domain = ({ onVerified }: { onVerified: () => Promise<void> }): VNode => {
  const desk = useDesk();
  const action = useAction(inWords);
  const [step, setStep] = useState<Step>({ kind: 'name' });
  const [domain, setDomain] = useState('');
  const begin = (): void => {
    void action.run(async () => {
      const name = domain.trim().toLowerCase();
      const { txtRecord } = await desk.api.send('POST', path, { type: 'domain', domain: name }, readVerified);
      if (txtRecord === undefined) throw new TypeError('the server names no record');
      setStep({ kind: 'record', domain: name, record: txtRecord, looks: 0 });
      desk.say('Now set the record');
    });
  };
  const look = (from: Extract<Step, { kind: 'record' }>): void => {
    void action.run(async () => {
      const { verified } = await desk.api.send('POST', path, { type: 'domain_confirm', domain: from.domain }, readVerified);
      if (!verified) {
        setStep({ ...from, looks: from.looks + 1 });
        return;
      }
      setStep({ kind: 'done', domain: from.domain });
      desk.say(`${from.domain} is verified`);
      await onVerified();
    });
  };
  const afresh = (): void => {
    action.clear();
    setDomain('');
    setStep({ kind: 'name' });
  };
  return (
    <>
      <Steps at={step.kind === 'record' && step.looks > 0 ? 2 : stepOf[step.kind]} />
      {step.kind === 'name' && (
        <Form label="Domain" submit="Get the record" action={action} fields={['domain']} onSubmit={begin}>
          <Field label="Domain" name="domain" inputMode="url" value={domain} onInput={setDomain} problem={action.problem} required maxLength={253} autocomplete="off" spellcheck={false} placeholder="example.com" hint="One whose DNS you can change. Asking again for the same domain gives the same record, so you can come back later." />
        </Form>
      )}
      {step.kind === 'record' && (
        <div class="form">
          <p>At the company that runs the DNS of <strong>{step.domain}</strong>, add a record of type <code>TXT</code>:</p>
          <Secret label="Name" value={step.record.name} />
          <Secret label="Value" value={step.record.value} />
          <p class="hint">Many forms add the domain by themselves: then the name is only the part before <code>.{step.domain}</code>. The value proves your account alone; it is no secret.</p>
          {step.looks > 0 && !action.busy && <p class="alert asked" role="status">The record is not there yet. New records can take from a minute to a day to be seen everywhere. Check name and value, then look again.</p>}
          <ProblemText problem={action.problem} />
          <p class="actions"><Button class="" busy={action.busy} onClick={() => { look(step); }}>{action.busy ? 'Looking …' : step.looks === 0 ? 'I have set it: check now' : 'Check again'}</Button><Button onClick={afresh}>Another domain</Button></p>
        </div>
      )}
      {step.kind === 'done' && (
        <div class="form">
          <p class="result" role="status"><strong>{step.domain}</strong> is verified. It counts for your identity from now on.</p>
          <p class="actions"><Button onClick={afresh}>Another domain</Button></p>
        </div>
      )}
    </>
  );
};
