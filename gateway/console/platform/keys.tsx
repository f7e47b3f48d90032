/** API keys: made with scopes, shown once, revoked. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { keyScopes } from '../../../contracts/roles.ts';
import { fields, list, text } from '../read.ts';
import { useAction, useDesk, useLoaded, type Problem } from './desk.ts';
import { Confirmed, Failed, Field, Form, Secret, Waiting } from './form.tsx';
import { day, readKey, when, type Key, type Listed } from './resources.ts';

const path = '/api/organization/api-keys';
const answer = fields({ keys: list(readKey) });
const made = fields({ name: text, key: text });

const named = (problem: Problem): Problem =>
  (problem.code === 'plan_limit' ? { ...problem, message: 'Your plan allows no more API keys. Revoke one you do not need.' }
    : problem.code === 'validation_error' && problem.field?.startsWith('scopes') === true ? { ...problem, message: 'Choose at least one permission.' } : problem);

const Create = ({ organization, onMade }: { organization: Listed; onMade: (key: { name: string; key: string }) => Promise<void> }): VNode => {
  const desk = useDesk();
  const action = useAction(named);
  const { problem } = action;
  const [name, setName] = useState('');
  const [scopes, setScopes] = useState<ReadonlySet<string>>(new Set());
  const tick = (scope: string, on: boolean): void => {
    setScopes((before) => new Set(on ? [...before, scope] : [...before].filter((other) => other !== scope)));
  };
  const create = (): void => {
    void action.run(async () => {
      const key = await desk.api.send('POST', path, { orgId: organization.id, name, scopes: scopes.has('*') ? ['*'] : [...scopes] }, made);
      setName('');
      setScopes(new Set());
      await onMade(key);
    });
  };
  return (
    <section class="card" aria-labelledby="create">
      <h2 id="create">New API key</h2>
      <Form label="New API key" submit="Create key" action={action} fields={['name']} onSubmit={create}>
        <Field label="Name" name="name" value={name} onInput={setName} problem={problem} required maxLength={128} autocomplete="off" hint="What will use it, so that you know it later." />
        <fieldset>
          <legend>What it may do</legend>
          <label class="tick"><input type="checkbox" name="*" checked={scopes.has('*')} onChange={(event) => { tick('*', event.currentTarget.checked); }} />Everything an admin may do</label>
          {!scopes.has('*') && (
            <div class="scopes">
              {keyScopes.map((scope) => (
                <label key={scope} class="tick"><input type="checkbox" name={scope} checked={scopes.has(scope)} onChange={(event) => { tick(scope, event.currentTarget.checked); }} /><code>{scope}</code></label>
              ))}
            </div>
          )}
        </fieldset>
      </Form>
    </section>
  );
};

export const Keys = ({ organization }: { organization: Listed }): VNode => {
  const desk = useDesk();
  const [shown, setShown] = useState<{ name: string; key: string }>();
  const { loaded, reload } = useLoaded(organization.id, () => desk.api.get(path, { orgId: organization.id }, answer));
  const revoke = async (key: Key): Promise<void> => {
    await desk.api.send('DELETE', path, { orgId: organization.id, id: key.id }, readKey);
    desk.say(`The key ${key.name} was revoked`);
    await reload();
  };
  return (
    <>
      {shown !== undefined && (
        <section class="card made" aria-labelledby="made">
          <h2 id="made">{shown.name}</h2>
          <p role="status">Copy this key now: it is not shown again.</p>
          <Secret label="API key" value={shown.key} onDone={() => { setShown(undefined); }} />
        </section>
      )}
      <Create
        organization={organization}
        onMade={async (key) => {
          setShown(key);
          scrollTo({ top: 0 });
          await reload();
        }}
      />
      <section class="card" aria-labelledby="keys">
        <h2 id="keys">API keys</h2>
        {loaded.state === 'loading' && <Waiting what="API keys" />}
        {loaded.state === 'failed' && <Failed problem={loaded.problem} onRetry={() => { void reload(); }} />}
        {loaded.state === 'ready' && loaded.value.keys.length === 0 && <p class="hint">There is no API key yet.</p>}
        {loaded.state === 'ready' && loaded.value.keys.length > 0 && (
          <ul class="rows">
            {loaded.value.keys.map((key) => (
              <li key={key.id}>
                <div class="what">
                  <strong>{key.name}</strong>
                  <span><code>{key.keyPrefix}…</code></span>
                  <span class="hint">{key.scopes.includes('*') ? 'everything an admin may do' : key.scopes.join(', ')}</span>
                  <span class="hint">made {day(key.createdAt)} · {key.lastUsedAt === null ? 'never used' : `last used ${when(key.lastUsedAt)}`}</span>
                </div>
                {key.revokedAt !== null ? <span class="tag">revoked {day(key.revokedAt)}</span> : (
                  <Confirmed text="Revoke" label={`Revoke the key ${key.name}`} question={`Revoke the key ${key.name}?`} confirm="Revoke" onConfirm={() => revoke(key)}>
                    <p>Whatever uses it is refused at once. This cannot be undone.</p>
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
