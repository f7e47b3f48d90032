/** The audit log, page by page, and its export as a file. */
import type { VNode } from 'preact';
import { allows } from '../../../contracts/roles.ts';
import { fields, list, orNull, text } from '../read.ts';
import { useAction, useDesk, useLoaded } from './desk.ts';
import { Button, Failed, ProblemText, Waiting } from './form.tsx';
import { readEntry, readMember, when, type Listed } from './resources.ts';

const path = '/api/organization/audit';
const pageSize = '50';
const answer = fields({ entries: list(readEntry), nextCursor: orNull(text) });
const memberList = fields({ members: list(readMember) });

const detail = (metadata: Readonly<Record<string, unknown>>): string =>
  Object.entries(metadata).map(([name, value]) => `${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`).join(', ');

/** Hands a text to the browser as a file to save. */
const save = (name: string, type: string, body: string): void => {
  const url = URL.createObjectURL(new Blob([body], { type }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
};

export const Audit = ({ organization }: { organization: Listed }): VNode => {
  const desk = useDesk();
  const action = useAction();
  const query = { orgId: organization.id, limit: pageSize };
  const { loaded, reload, change } = useLoaded(organization.id, async () => {
    const [page, { members }] = await Promise.all([desk.api.get(path, query, answer), desk.api.get('/api/organization/members', { orgId: organization.id }, memberList)]);
    return { ...page, emails: new Map(members.map((member) => [member.userId, member.email])) };
  });
  const more = (cursor: string): void => {
    void action.run(async () => {
      const page = await desk.api.get(path, { ...query, cursor }, answer);
      change((before) => ({ ...before, entries: [...before.entries, ...page.entries], nextCursor: page.nextCursor }));
    });
  };
  const download = (format: 'csv' | 'jsonl', type: string): void => {
    void action.run(async () => {
      save(`audit-${organization.slug}.${format}`, type, await desk.api.text(path, { orgId: organization.id, format }));
      desk.say('The export is ready');
    });
  };
  return (
    <section class="card" aria-label="Audit log">
      {allows(organization.role, 'audit.export') && (
        <p class="actions">
          <Button busy={action.busy} onClick={() => { download('csv', 'text/csv'); }}>Export CSV</Button>
          <Button busy={action.busy} onClick={() => { download('jsonl', 'application/x-ndjson'); }}>Export JSONL</Button>
        </p>
      )}
      <ProblemText problem={action.problem} />
      {loaded.state === 'loading' && <Waiting what="the log" />}
      {loaded.state === 'failed' && <Failed problem={loaded.problem} onRetry={() => { void reload(); }} />}
      {loaded.state === 'ready' && loaded.value.entries.length === 0 && <p class="hint">Nothing was noted yet.</p>}
      {loaded.state === 'ready' && loaded.value.entries.length > 0 && (
        <ol class="rows">
          {loaded.value.entries.map((entry) => (
            <li key={entry.id}>
              <div class="what">
                <strong>{entry.action}</strong>
                <span class="hint"><time datetime={entry.createdAt}>{when(entry.createdAt)}</time> · <span title={entry.actorId}>{loaded.value.emails.get(entry.actorId) ?? entry.actorId}</span> · {entry.ipAddress}</span>
                <span class="hint">{entry.resourceType} {entry.resourceId}{Object.keys(entry.metadata).length > 0 && ` · ${detail(entry.metadata)}`}</span>
              </div>
            </li>
          ))}
        </ol>
      )}
      {loaded.state === 'ready' && loaded.value.nextCursor !== null && (
        <p class="actions"><Button busy={action.busy} onClick={() => { if (loaded.value.nextCursor !== null) more(loaded.value.nextCursor); }}>Older entries</Button></p>
      )}
    </section>
  );
};
