/** What becomes an audit entry, and the bounds of an export. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { auditHandlers } from '../../actors/daemon/platform/audit.ts';
import { entryOf } from '../../actors/projections/audit.ts';
import { journaled } from '../../actors/projections/journaled.ts';
import { CodedError, coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { auditEntry, type AuditEntry } from '../../contracts/organization.ts';
import { organizationEvents } from '../../contracts/organization-events.ts';
import type { Projections } from '../../actors/projections/projections.ts';
import { codeOf } from '../harness/memory-host.ts';
import { orgId, person } from '../harness/organization-actor.ts';

const by = person('owner');
const payloads: Readonly<Record<keyof typeof organizationEvents, Record<string, unknown>>> = {
  OrganizationCreated: { name: 'n', slug: 's', default_model: 'm', by }, OrganizationUpdated: { name: 'n', by },
  SlugStarted: {}, SlugFailed: { code: 'c', due: 1 }, SlugKept: {}, SlugLost: {},
  MemberInvited: { id: 'inv_a', email: 'a@example.com', role: 'viewer', expires_at: 1, by }, InvitationRevoked: { id: 'inv_a', replaced: false, by }, InvitationExpired: { id: 'inv_a' },
  MemberJoined: { user_id: 'usr_a', name: 'a', email: 'a@example.com', role: 'viewer', invitation_id: 'inv_a', by }, MemberRoleChanged: { user_id: 'usr_a', from: 'viewer', to: 'admin', by },
  MemberRemoved: { user_id: 'usr_a', role: 'viewer', by }, OwnershipTransferred: { from: 'usr_owner', to: 'usr_a', was: 'viewer', by },
  KeyCreated: { id: 'key_a', name: 'k', scopes: ['*'], key_prefix: 'trp_sk_x', key_sha256: 'feedbeef', created_by: 'usr_owner', by }, KeyRevoked: { id: 'key_a', by }, KeyUsed: { id: 'key_a' },
  PlanSet: { plan: 'pro', reason: 'r' }, Noted: { action: 'x.done', resource_type: 'x', resource_id: '1', metadata: { a: 1 }, by }, OrganizationDeleted: { by },
  MailStarted: { mail: 'inv_a' }, MailSent: { mail: 'inv_a' }, MailFailed: { mail: 'inv_a', code: 'c', due: 1 }, MailGivenUp: { mail: 'inv_a', code: 'c' },
  EraseStarted: { pass: 1 }, EraseFailed: { pass: 1, code: 'c', due: 1 }, Erased: { pass: 1, due: null }, PaymentsSettled: {},
  DeploymentReserved: { id: 'dep_a', name: 'd', by }, DeploymentConfirmed: { id: 'dep_a' }, DeploymentRemoved: { id: 'dep_a' },
};
const quiet = new Set(['SlugStarted', 'SlugFailed', 'SlugKept', 'KeyUsed', 'MailStarted', 'MailSent', 'MailFailed', 'EraseStarted', 'EraseFailed', 'Erased', 'PaymentsSettled', 'DeploymentConfirmed', 'DeploymentRemoved']);

test('audit - every event that is a change is an entry, with who did it; none holds a hash of a key [AUD-005] [AUD-021]', () => {
  const broken: unknown[] = [];
  const kinds = Object.keys(organizationEvents);
  const commit = {
    address: { org: orgId, type: 'organization', key: orgId }, seq: 1,
    commit: { v: 1, e: 1, n: 1, f: 1, c: 0, m: 0, p: 0, h: '', t: 1_000, ev: [
      { id: '0', k: '$epoch', d: {} },
      ...Object.entries(payloads).map(([k, d], i) => ({ id: `e${i}`, k, d })), { id: 'x', k: 'KeyRevoked', d: { id: 7 } }, { id: 'y', k: 'Unheard', d: {} },
    ] },
  } as const;
  const events = journaled(organizationEvents, [commit], { upcast: (event) => event.d, onBroken: (_at, error) => broken.push(error) });
  assert.deepEqual(events.map(({ kind }) => kind).toSorted(), kinds.toSorted());
  assert.equal(broken.length, 2, 'what cannot be read is reported, the rest counts');
  for (const event of events) {
    const entry = entryOf(event);
    assert.equal(entry === undefined, quiet.has(event.kind), event.kind);
    if (entry === undefined) continue;
    auditEntry.parse(entry);
    const done = 'by' in event.payload;
    assert.deepEqual([entry.actorId, entry.ipAddress, entry.userAgent], done ? ['usr_owner', '192.0.2.1', 'test'] : ['system', '', ''], event.kind);
    assert.ok(!JSON.stringify(entry).includes('feedbeef'));
  }
});

/** The audit route over so many entries; `more`: the database held back older ones. */
const route = (count: number, more: boolean, metadata: Record<string, unknown> = {}, late?: CodedError) => {
  const entries: AuditEntry[] = Array.from({ length: count }, (_, i) => ({
    id: `e${i}`, organizationId: orgId, actorId: 'usr_a', action: 'a', resourceType: 't', resourceId: 'r', metadata, ipAddress: '', userAgent: '', createdAt: new Date(0).toISOString(),
  }));
  const projections: Pick<Projections, 'read' | 'caughtUp'> = {
    // The database is played: what counts here is what is done with its answer.
    read: async <T>() => ({ entries, more }) as T,
    caughtUp: async () => { if (late !== undefined) throw late; },
  };
  const answers: Readonly<Record<string, unknown>> = { authorise: { role: 'owner', plan: 'free', limits: { perMinute: 1, perDay: 1, maxApiKeys: 1, maxMembers: 1, credits: 1 }, default_model: 'm', name: 'n' }, note: {} };
  const handlers = auditHandlers({ actors: { ask: async ({ command }) => answers[command] }, projections: projections as Projections });
  return async (query: Record<string, unknown>) => {
    const handler = handlers['audit'];
    assert.ok(handler !== undefined);
    return handler.run({
      caller: { kind: 'user', userId: 'usr_a', email: 'a@example.com', name: 'a', grantId: 'g', policy: '', accepted: '', expiresAtMs: 0 }, token: '', context: { ip: '192.0.2.1', user_agent: '' },
      query: { orgId, ...query }, body: undefined, deadlineAt: 0, signal: new AbortController().signal,
    });
  };
};

test('audit - an export beyond its bounds is refused whole, never cut; a part of it can be asked for [AUD-002] [AUD-003]', async () => {
  for (const format of ['csv', 'jsonl']) {
    assert.equal((await route(limits.auditExportMax, false)({ format })).status, 200);
    assert.equal(await codeOf(route(limits.auditExportMax, true)({ format })), 'payload_too_large');
    assert.equal(await codeOf(route(2_000, false, { text: 'x'.repeat(2_000) })({ format })), 'payload_too_large');
    assert.equal((await route(100, true)({ format, limit: 100 })).status, 200);
    assert.equal(await codeOf(route(99, true)({ format, limit: 100 })), 'payload_too_large', 'its bytes were too many for as many as were asked for');
  }
});

test('audit - a log that is not up to date in time is refused as unavailable, not answered as it was [AUD-001]', async () => {
  assert.equal(await codeOf(route(1, false, {}, coded('deadline_exceeded'))({})), 'upstream_unavailable');
  assert.equal(await codeOf(route(1, false, {}, coded('overloaded'))({})), 'overloaded');
});
