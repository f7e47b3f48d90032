/** Where trust's facts and permissions come from: the organization actor's word over rows that lag, and what ended turns say of an agent. */
import assert from 'node:assert/strict';
import { createSecretKey } from 'node:crypto';
import { test } from 'node:test';
import { trustHandlers } from '../../actors/daemon/platform/trust.ts';
import type { Sql } from '../../actors/projections/postgres.ts';
import { foldSession, type SessionRow } from '../../actors/projections/sessions.ts';
import type { Message } from '../../actors/runtime/message.ts';
import { coded, CodedError } from '../../contracts/errors.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import type { Member } from '../../contracts/organization.ts';
import type { Role } from '../../contracts/permissions.ts';
import type { Caller } from '../../contracts/platform.ts';

const orgId = 'org_01jd0000000000000000000000';
const [asker, other] = ['usr_01jd0000000000000000000001', 'usr_01jd0000000000000000000002'];
const member = (userId: string, role: Role): Member => ({ userId, role, name: '', email: '', joinedAt: new Date(0).toISOString() });

/** Asks for another's score while the rows say that the caller administers an organization with them; `members` is the actor's word. */
const askFor = async (members: readonly Member[] | undefined): Promise<string> => {
  const ask = async ({ address, command }: Message): Promise<unknown> => {
    if (address.type === 'user' && command === 'trust_facts') return { created_at: 0, active_days: 1, identities: ['email'], domains_verified: 0 };
    if (address.type === 'custody') return { keys: null };
    if (members === undefined) throw coded('not_found');
    assert.deepEqual([address, command], [{ org: orgId, type: 'organization', key: orgId }, 'members']);
    return { members };
  };
  // The rows: one organization in common; nothing used, nothing paid.
  const rows = async (): Promise<readonly object[]> => [{ organization_id: orgId, paid: '0', used: '0' }];
  const sql = rows as unknown as Sql;
  const handlers = trustHandlers({
    config: { base_url: 'https://troupe.example', signing_key_path: '', former_key_paths: [], gateway_name: '', access_expiry_ms: 1_000 },
    masterKey: createSecretKey(Buffer.alloc(32)), actors: { ask },
    projections: {
      read: (work) => work(sql), caughtUp: () => Promise.resolve(), waitFor: () => Promise.resolve(), rebuild: () => Promise.resolve(),
      status: () => ({}), runners: new Map(), close: () => Promise.resolve(),
    },
    allowances: { take: () => Promise.reject(new TypeError('nothing is counted here')), stats: () => ({ asks: 0, passed: 0, refused: 0, waiting: 0 }) },
    now: () => 0, newUlid: () => '', hasTxt: () => Promise.resolve(false),
  });
  const handler = handlers['trust_score'];
  assert.ok(handler?.needs === 'caller');
  const caller: Caller = { kind: 'user', userId: asker, email: '', name: '', grantId: '', policy: '', accepted: '', expiresAtMs: 0 };
  try {
    const { status } = await handler.run({ caller, token: '', context: { ip: '', user_agent: '' }, query: { userId: other }, body: undefined, deadlineAt: 0, signal: new AbortController().signal });
    return String(status);
  } catch (error) {
    if (error instanceof CodedError) return error.code;
    throw error;
  }
};

test('trust - rows that lag give nobody another\'s score: role and membership are the organization actor\'s word [TRU-015] [TRU-016]', async () => {
  for (const role of ['admin', 'owner'] as const) assert.equal(await askFor([member(asker, role), member(other, 'member')]), '200');
  for (const role of ['member', 'viewer'] as const) assert.equal(await askFor([member(asker, role), member(other, 'member')]), 'forbidden', 'demoted');
  assert.equal(await askFor([member(asker, 'owner')]), 'forbidden', 'the other has left');
  assert.equal(await askFor(undefined), 'forbidden', 'deleted, or the caller has left');
});

test('sessions - ended turns are counted by how they ended; a cancelled one by none; days with a completed turn once each [TRU-021] [TRU-022]', () => {
  const usage = { input_tokens: 1, output_tokens: 1, cost_cents: 1 };
  const dayMs = 86_400_000;
  let row: SessionRow | undefined;
  let id = 0;
  const event = (k: string, d: Record<string, unknown>, at: number): void => {
    row = foldSession(row, { org: 'o', sid: 's' }, { id: String(id++), k, v: 1, d } as unknown as StoredEvent, at, ({ d: payload }) => payload as Readonly<Record<string, unknown>>);
  };
  const turn = (end: string, at: number): void => {
    const run = { run_id: `run-${id}` };
    event('RunStarted', run, at);
    if (end === 'error') event('RunErrored', { ...run, code: 'provider_error', message: '', usage }, at);
    else event('RunFinished', { ...run, finish_reason: end, usage }, at);
  };
  event('SessionCreated', { user_id: 'u', project_id: 'p', label: null, model: 'mock', agent_id: 'agent-s', created_at_unix: 0 }, 0);
  for (const end of ['stop', 'stop', 'length', 'error', 'cancelled', 'cancelled']) turn(end, 10 * dayMs);
  turn('error', 11 * dayMs);
  turn('stop', 12 * dayMs);
  assert.deepEqual([row?.turns, row?.ended, row?.completed, row?.errored, row?.service_days, row?.cost_cents], [8, 6, 3, 2, 2, 8]);
});
