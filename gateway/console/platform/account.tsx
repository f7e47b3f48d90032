/** The person's account: the sign-ins that are in force, ending one or all, and the way to an API token. */
import type { VNode } from 'preact';
import { fields, list, nothing } from '../read.ts';
import { useDesk, useLoaded } from './desk.ts';
import { Confirmed, Failed, Waiting } from './form.tsx';
import { day, readGrant, when, type Grant } from './resources.ts';

const path = '/api/auth/grants';
const answer = fields({ grants: list(readGrant) });
const kinds: Readonly<Record<Grant['kind'], string>> = { browser: 'Browser', device: 'Device or command line', 'api-token': 'API token' };

/** What a person recognises of a browser's long name. */
const short = (userAgent: string): string => /(Firefox|Edg|Chrome|Safari|curl|troupe|node)\/?[\d.]*/.exec(userAgent)?.[0] ?? userAgent.slice(0, 40);

export const Account = (): VNode => {
  const desk = useDesk();
  const { loaded, reload } = useLoaded('grants', () => desk.api.get(path, {}, answer));
  const revoke = async (grant: Grant): Promise<void> => {
    await desk.api.send('DELETE', path, { id: grant.id }, nothing);
    if (grant.current) {
      desk.signedOut();
      return;
    }
    desk.say('The sign-in was ended');
    await reload();
  };
  const revokeAll = async (): Promise<void> => {
    await desk.api.send('POST', '/api/auth/revoke', { all: true }, nothing);
    desk.signedOut();
  };
  return (
    <>
      <section class="card" aria-labelledby="you">
        <h2 id="you">You</h2>
        <dl>
          {desk.person.name !== '' && <div><dt>Name</dt><dd>{desk.person.name}</dd></div>}
          <div><dt>E-mail address</dt><dd>{desk.person.email}</dd></div>
          <div><dt>Id</dt><dd><code>{desk.person.id}</code></dd></div>
        </dl>
        <p class="actions"><a class="button quiet" href="/api/auth/api-token">Make an API token</a><a class="button quiet" href="/device">Connect a device</a><a class="button quiet" href="/legal">Terms and privacy</a></p>
      </section>
      <section class="card" aria-labelledby="sign-ins">
        <h2 id="sign-ins">Sign-ins</h2>
        <p class="hint">Browsers, devices and tokens that act as you. What is ended here is refused at once, everywhere.</p>
        {loaded.state === 'loading' && <Waiting what="sign-ins" />}
        {loaded.state === 'failed' && <Failed problem={loaded.problem} onRetry={() => { void reload(); }} />}
        {loaded.state === 'ready' && (
          <>
            <ul class="rows">
              {loaded.value.grants.map((grant) => {
                const what = `${kinds[grant.kind]}${grant.kind === 'browser' ? '' : ` ${grant.clientId}`}`;
                return (
                  <li key={grant.id}>
                    <div class="what">
                      <strong>{what}{grant.current && ' (this one)'}</strong>
                      <span class="hint" title={grant.userAgent}>{[short(grant.userAgent), grant.ipAddress].filter((part) => part !== '').join(' · ')}</span>
                      <span class="hint">since {day(grant.createdAt)} · {grant.lastUsedAt === null ? 'not used yet' : `last used ${when(grant.lastUsedAt)}`} · until {day(grant.expiresAt)}</span>
                    </div>
                    <Confirmed
                      text="End" label={`End ${what}`} question={grant.current ? 'Sign out here?' : `End this sign-in (${what})?`} confirm={grant.current ? 'Sign out' : 'End it'}
                      onConfirm={() => revoke(grant)}
                    />
                  </li>
                );
              })}
            </ul>
            <p class="actions">
              <Confirmed text="End all" label="End all sign-ins" question="End all sign-ins?" confirm="End all" onConfirm={revokeAll}>
                <p>Every browser, device and token of yours is signed out, this one too. API keys of organizations stay.</p>
              </Confirmed>
            </p>
          </>
        )}
      </section>
    </>
  );
};
