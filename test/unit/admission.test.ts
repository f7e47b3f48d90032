/** Who may use the edge now (actors/daemon/admission.ts): what is asked, what ends an open stream, what a feed that loses commits does. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { createAdmission, type Admission } from '../../actors/daemon/admission.ts';
import type { Identified } from '../../actors/daemon/capability.ts';
import { encodeCommit } from '../../actors/runtime/commit.ts';
import type { Message } from '../../actors/runtime/message.ts';
import { coded, CodedError, type ErrorCode } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { allows, type Role } from '../../contracts/permissions.ts';
import { routes, type Route } from '../../contracts/routes.ts';
import { recorder } from '../harness/log.ts';

const sub = 'usr_01m7y5k0emwn9k1s928k7rjpdr';
const org = 'org_01m7y5k0emwn9k1s928k7rjpdr';
const userSubject = `events.u-${sub}.user.${sub}`;
const orgSubject = `events.${org}.organization.${org}`;
const stream = routes.stream as unknown as Route;
const createSession = routes.createSession as unknown as Route;

interface World {
  readonly admission: Admission;
  /** What the actors say. */
  grantLives: boolean;
  role: Role | undefined;
  fault: ErrorCode | undefined;
  readonly asked: string[];
  readonly subscribed: Set<string>;
  /** A commit on a feed, with its stream sequence and the one before it there. */
  commit(subject: string, seq: number, before: number, kind: string, payload: Record<string, unknown>): void;
  gap(subject: string): void;
  /** Called when an ask begins. */
  onAsk: () => void;
}

const world = (t: TestContext, identified: Partial<Identified['principal']> & { readonly grant?: string | undefined } = {}): World => {
  const feeds = new Map<string, { readonly onCommit: (data: Uint8Array, seq: number, before: number) => void; readonly onGap: () => void }>();
  const { grant = 'grt_1', ...more } = identified;
  const ask = async (message: Message): Promise<unknown> => {
    it.onAsk();
    it.asked.push(`${message.address.type} ${message.command}`);
    if (it.fault !== undefined) throw coded(it.fault);
    if (message.address.type === 'user') {
      if (!it.grantLives) throw coded('unauthorized');
      return { user_id: sub, email: 'a@b.cc', name: 'a', policy: '' };
    }
    const { permission } = message.input as { permission: 'chat.read' | 'chat.create' };
    if (it.role === undefined) throw coded('not_found');
    if (!allows(it.role, permission)) throw coded('forbidden');
    return { role: it.role, plan: 'free', limits: { perMinute: 1, perDay: 1, maxApiKeys: 1, maxMembers: 1, credits: 1 }, default_model: 'mock', name: 'n' };
  };
  const admission = createAdmission({
    log: recorder(), actors: { ask },
    capabilities: { identify: async () => ({ principal: { kind: 'user', sub, org, scopes: [], ...more }, grant: 'grant' in identified ? identified.grant : grant }) },
    feed: {
      watch: async (subject, onCommit, onGap = () => undefined) => {
        it.subscribed.add(subject);
        feeds.set(subject, { onCommit, onGap });
        return { stop: () => { it.subscribed.delete(subject); } };
      },
    },
  });
  t.after(() => admission.close());
  const it: World = {
    admission, grantLives: true, role: 'member', fault: undefined, asked: [], subscribed: new Set(), onAsk: () => undefined,
    commit: (subject, seq, before, kind, payload) => feeds.get(subject)?.onCommit(encodeCommit({ v: 1, e: 1, n: 1, f: 1, c: 0, m: 0, p: 0, h: '', t: 0, ev: [{ id: 'e', k: kind, d: payload }] }), seq, before),
    gap: (subject) => feeds.get(subject)?.onGap(),
  };
  return it;
};

const by = { actor: sub, ip: '', user_agent: '' };
const codeOf = async (work: Promise<unknown>): Promise<string> => {
  const error = await work.then(() => undefined, (e: unknown) => e);
  return error instanceof CodedError ? error.code : `not refused: ${String(error)}`;
};
const turns = async (): Promise<void> => {
  for (let i = 0; i < 5; i++) await setImmediate();
};

test('admission - each request asks for the login and the membership, and for chat.create where it writes [RBAC-007] [RBAC-019]', async (t) => {
  const it = world(t);
  assert.equal((await it.admission.authorise(createSession, 't'))?.sub, sub);
  assert.deepEqual(it.asked, ['user check', 'organization authorise']);
  it.role = 'viewer';
  assert.equal(await codeOf(it.admission.authorise(createSession, 't')), 'forbidden');
  assert.equal((await it.admission.authorise(stream, 't'))?.sub, sub);
  it.role = undefined;
  assert.equal(await codeOf(it.admission.authorise(stream, 't')), 'access_ended');
  it.role = 'member';
  it.grantLives = false;
  assert.equal(await codeOf(it.admission.authorise(createSession, 't')), 'access_ended');
  it.fault = 'no_owner';
  assert.equal(await codeOf(it.admission.authorise(createSession, 't')), 'no_owner');
});

test('admission - identities of other providers and their organizations ask nobody and watch nothing', async (t) => {
  const it = world(t, { sub: 'ann', org: 'acme', grant: undefined });
  await it.admission.authorise(createSession, 't');
  const held = await it.admission.hold(stream, 't', () => undefined);
  assert.deepEqual([it.asked.length, it.subscribed.size, held?.mayWrite()], [0, 0, true]);
});

for (const [what, subject, kind, payload, ends] of [
  ['its login ends', userSubject, 'GrantsEnded', { ids: ['grt_0', 'grt_1'], why: 'revoked', at: 1 }, true],
  ['another login ends', userSubject, 'GrantsEnded', { ids: ['grt_2'], why: 'revoked', at: 1 }, false],
  ['the member is removed', orgSubject, 'MemberRemoved', { user_id: sub, role: 'member', by }, true],
  ['another member is removed', orgSubject, 'MemberRemoved', { user_id: 'usr_01m7y5k0emwn9k1s928k7rjpde', role: 'member', by }, false],
  ['the organization is deleted', orgSubject, 'OrganizationDeleted', { by }, true],
] as const) {
  test(`admission - ${what}: ${ends ? 'its stream ends once, and nothing is watched any more' : 'the stream stays'}`, async (t) => {
    const it = world(t);
    let lost = 0;
    const held = await it.admission.hold(stream, 't', () => { lost += 1; });
    assert.deepEqual([...it.subscribed].toSorted(), [orgSubject, userSubject].toSorted());
    it.commit(subject, 7, 0, kind, payload);
    it.commit(subject, 8, 7, kind, payload);
    assert.equal(lost, ends ? 1 : 0);
    await turns();
    assert.equal(it.subscribed.size, ends ? 0 : 2);
    held?.release();
    await turns();
    assert.equal(it.subscribed.size, 0);
  });
}

test('admission - what ends between the watch and the answer is not missed', async (t) => {
  const it = world(t);
  it.onAsk = () => it.commit(orgSubject, 5, 0, 'MemberRemoved', { user_id: sub, role: 'member', by });
  let lost = 0;
  assert.equal(await codeOf(it.admission.hold(stream, 't', () => { lost += 1; })), 'access_ended');
  assert.equal(lost, 1);
  await turns();
  assert.equal(it.subscribed.size, 0);
});

test('admission - a stream is not opened while the actors cannot be asked, and leaves nothing behind', async (t) => {
  const it = world(t);
  it.fault = 'deadline_exceeded';
  assert.equal(await codeOf(it.admission.hold(stream, 't', () => undefined)), 'deadline_exceeded');
  await turns();
  assert.equal(it.subscribed.size, 0);
});

test('admission - a role that changes says whether the stream may write', async (t) => {
  const it = world(t);
  const held = await it.admission.hold(stream, 't', () => undefined);
  assert.equal(held?.mayWrite(), true);
  it.commit(orgSubject, 5, 0, 'MemberRoleChanged', { user_id: sub, from: 'member', to: 'viewer', by });
  assert.equal(held?.mayWrite(), false);
  it.commit(orgSubject, 6, 5, 'OwnershipTransferred', { from: 'usr_01m7y5k0emwn9k1s928k7rjpde', to: sub, was: 'viewer', by });
  assert.equal(held?.mayWrite(), true);
});

test('admission - a hole in the feed, a lost connection and an unreadable event make it ask again', async (t) => {
  for (const trouble of ['hole', 'gap', 'unreadable'] as const) {
    const it = world(t);
    let lost = 0;
    await it.admission.hold(stream, 't', () => { lost += 1; });
    it.commit(orgSubject, 5, 0, 'KeyRevoked', {});
    await turns();
    assert.equal(lost, 0);
    it.role = undefined;
    if (trouble === 'hole') it.commit(orgSubject, 9, 7, 'KeyRevoked', {});
    else if (trouble === 'gap') it.gap(orgSubject);
    else it.commit(orgSubject, 6, 5, 'MemberRemoved', { somebody: 'else' });
    await turns();
    assert.equal(lost, 1, trouble);
  }
});

test('admission - everything is asked again now and then; a fault leaves the stream open until an answer comes', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const it = world(t);
  let lost = 0;
  await it.admission.hold(stream, 't', () => { lost += 1; });
  it.role = undefined;
  it.fault = 'no_owner';
  t.mock.timers.tick(limits.accessCheckMs);
  await turns();
  assert.equal(lost, 0);
  it.fault = undefined;
  t.mock.timers.tick(limits.accessCheckMs);
  await turns();
  assert.equal(lost, 1);
});

test('admission - streams of one person share a subscription, which ends with the last of them', async (t) => {
  const it = world(t);
  const held = await Promise.all([1, 2, 3].map(() => it.admission.hold(stream, 't', () => undefined)));
  assert.equal(it.subscribed.size, 2);
  for (const one of held.slice(1)) one?.release();
  await turns();
  assert.equal(it.subscribed.size, 2);
  held[0]?.release();
  await turns();
  assert.equal(it.subscribed.size, 0);
});
