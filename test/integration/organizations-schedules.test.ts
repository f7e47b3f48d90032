/**
 * Organizations under drawn schedules: people of every role do everything at once over a real cluster. What must hold whatever was drawn:
 * an organization that lives has an owner; the rows are what the actors say, also when they are made again; each change is one audit entry.
 * `TROUPE_SEED` repeats what was drawn.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { organization } from '../../actors/organization/organization.ts';
import { name } from '../../actors/name/name.ts';
import { webhook } from '../../actors/webhook/webhook.ts';
import { auditProjection, readAudit } from '../../actors/projections/audit.ts';
import { natsJournalSource } from '../../actors/projections/journal.ts';
import { listOrganizations, organizationsProjection } from '../../actors/projections/organizations.ts';
import { startProjections } from '../../actors/projections/projections.ts';
import { upcastBy } from '../../actors/daemon/upcast.ts';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import { CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { organizationCommands } from '../../contracts/organization.ts';
import { roles } from '../../contracts/permissions.ts';
import { by, type By } from '../../contracts/platform.ts';
import { hostHere } from '../harness/cluster.ts';
import { silent } from '../harness/log.ts';
import { startNats } from '../harness/nats.ts';
import { person } from '../harness/organization-actor.ts';
import { startPostgres } from '../harness/postgres.ts';
import { draw, runSeed } from '../harness/seed.ts';

const people = ['ann', 'bob', 'cat', 'dan', 'eve', 'fay', 'gus'] as const;
const ids = Array.from({ length: 5 }, (_, i) => `org_01jd000000000000000000000${i}`);
const config = { partitions: 4, journalStreams: 2, replicas: 1 } as const;
const steps = 1_600;
const atOnce = 8;

/** Commands that change something, each drawn with members, roles and ids that may or may not fit. */
interface Change {
  readonly command: keyof typeof organizationCommands;
  readonly input: Readonly<Record<string, unknown>>;
}
interface Invited {
  readonly org: string;
  readonly id: string;
  readonly who: string;
}

test('organizations - whoever does what at once, owners remain, rows and audit log are what was done, also rebuilt [ORG-054] [AUD-005] [AUD-004]', { timeout: 240_000 }, async (t) => {
  const random = draw(runSeed());
  t.diagnostic(`TROUPE_SEED=${random.seed}`);
  const [nats, postgres] = await Promise.all([startNats(), startPostgres()]);
  const setup = await connectNats({ url: nats.url, name: 'setup' });
  await ensureStreams(setup, config);
  await setup.close();
  const organizations = organization({ mailer: { send: async () => undefined }, invitationLink: () => 'https://troupe.example/invite', now: Date.now, erase: async () => undefined, retain: async () => ({ more: false }) });
  const hooks = webhook({ post: async () => ({ ok: true, status: 200 }), secret: () => 'whsec_x', now: Date.now });
  const here = await hostHere({ url: nats.url, config: { host: 'h', ...config }, definitions: [organizations, name(), hooks] });
  await here.host.ready;
  const broken: unknown[] = [];
  const options = { upcast: upcastBy(organizations.spec), onBroken: (_at: unknown, error: unknown) => { broken.push(error); } };
  const projections = startProjections({
    postgresUrl: postgres.url, host: 'h', log: silent, source: natsJournalSource(here.host.stores.lean, config.journalStreams),
    projections: [organizationsProjection(options), auditProjection(options)],
  });
  t.after(async () => {
    await projections.close();
    await here.stop();
    await Promise.all([nats.stop(), postgres.stop()]);
  });

  const ask = (id: string, command: string, input: Readonly<Record<string, unknown>>): Promise<unknown> =>
    here.host.actors.ask({ address: { org: id, type: 'organization', key: id }, command, input, principal: { kind: 'system' } });
  const users = people.map((who) => `usr_${who}`);
  let made = 0;
  /** Invitations made so far; most are accepted by whom they are for. */
  const invited: Invited[] = [];
  const accept = (org: string, asker: By): Change => {
    const open = invited.filter((one) => one.org === org).slice(-6);
    const one = open.length === 0 ? { id: 'inv_none', who: 'ann' } : random.pick(open);
    return { command: 'accept', input: { invitation_id: one.id, by: random.next() < 0.8 ? person(one.who) : asker } };
  };
  const invite = (org: string, asker: By): Change => {
    const who = random.pick(people);
    const id = `inv_${made++}`;
    invited.push({ org, id, who });
    return { command: 'invite', input: { id, email: `${who}@example.com`, role: random.pick(roles.slice(0, 3)), by: asker } };
  };
  const change = (org: string, asker: By): Change => {
    const userId = random.pick(users);
    const role = random.pick(roles);
    return random.pick<() => Change>([
      () => ({ command: 'update_member', input: { user_id: userId, role, by: asker } }), () => ({ command: 'update_member', input: { user_id: userId, role, by: asker } }),
      () => ({ command: 'remove_member', input: { user_id: userId, by: asker } }), () => ({ command: 'leave', input: { by: asker } }),
      () => (random.next() < 0.6 ? { command: 'transfer', input: { user_id: userId, by: asker } } : accept(org, asker)),
      () => invite(org, asker), () => invite(org, asker), () => invite(org, asker), () => accept(org, asker), () => accept(org, asker), () => accept(org, asker),
      () => ({ command: 'update', input: { name: `Name ${made++}`, settings: { sharedMemory: random.next() < 0.5 }, by: asker } }),
      () => ({ command: 'create_key', input: { id: `key_${made++}`, name: 'k', scopes: ['*'], key_prefix: 'p', key_sha256: `h${made}`, by: asker } }),
      () => (random.next() < 0.03 ? { command: 'remove', input: { by: asker } } : accept(org, asker)),
    ])();
  };

  const done = new Map<string, Change[]>(ids.map((id) => [id, []]));
  const refused = new Map<string, number>();
  /** Who was in an organization at some time: they do most of what is done. */
  const insiders = new Map<string, string[]>(ids.map((id) => [id, []]));
  const somebody = (id: string): By => {
    const inside = insiders.get(id) ?? [];
    return person(inside.length === 0 || random.next() < 0.2 ? random.pick(people) : random.pick(inside));
  };
  const run = async (id: string, drawn: Change): Promise<void> => {
    try {
      await ask(id, drawn.command, drawn.input);
      done.get(id)?.push(drawn);
      const { actor } = by.parse(drawn.input['by']);
      if (drawn.command === 'create' || drawn.command === 'accept') insiders.get(id)?.push(actor.slice('usr_'.length));
    } catch (error) {
      assert.ok(error instanceof CodedError && error.entry.kind === 'refusal', String(error));
      refused.set(error.code, (refused.get(error.code) ?? 0) + 1);
    }
  };
  // All but the last are made; nobody is ever in that one.
  for (const id of ids.slice(0, -1)) {
    await run(id, { command: 'create', input: { name: 'Made', slug: 'slug', default_model: 'mock', by: person(random.pick(people)) } });
    await run(id, { command: 'create', input: { name: 'Made', slug: 'slug', default_model: 'mock', by: person(random.pick(people)) } });
  }
  for (let step = 0; step < steps; step += atOnce) {
    await Promise.all(Array.from({ length: atOnce }, () => {
      const id = random.pick(ids);
      return run(id, change(id, somebody(id)));
    }));
  }
  t.diagnostic(`done ${[...done.values()].flat().length}, refused ${JSON.stringify(Object.fromEntries(refused))}`);

  /** Members as the actors say it: organization → user → role. */
  const told = new Map<string, ReadonlyMap<string, string>>();
  for (const id of ids) {
    for (const who of people) {
      const members = await ask(id, 'members', { by: person(who) }).then((answer) => organizationCommands.members.output.parse(answer).members, () => undefined);
      if (members !== undefined) told.set(id, new Map(members.map(({ userId, role }) => [userId, role])));
    }
    const created = done.get(id)?.some(({ command }) => command === 'create') === true;
    const removed = done.get(id)?.some(({ command }) => command === 'remove') === true;
    assert.equal(told.has(id), created && !removed, id);
    if (told.has(id)) assert.ok([...told.get(id)?.values() ?? []].includes('owner'), `${id} has no owner`);
  }

  const compare = async (): Promise<void> => {
    await projections.caughtUp('organizations', undefined, 60_000);
    await projections.caughtUp('audit', undefined, 60_000);
    for (const userId of users) {
      const rows = await projections.read((sql) => listOrganizations(sql, userId));
      const expected = ids.flatMap((id) => (told.get(id)?.has(userId) === true ? [[id, told.get(id)?.get(userId), told.get(id)?.size]] : []));
      assert.deepEqual(rows.map(({ id, role, memberCount }) => [id, role, memberCount]).toSorted(), expected.toSorted(), userId);
    }
    for (const id of ids) {
      const { entries } = await projections.read((sql) => readAudit(sql, { organizationId: id, limit: limits.auditExportMax, bytes: limits.auditExportMaxBytes }));
      // Newest first; of what was done at once only the actor knows the order.
      assert.deepEqual(entries.map(({ id: entry }) => entry), entries.map(({ id: entry }) => entry).toSorted().toReversed());
      assert.ok(entries.every(({ organizationId }) => organizationId === id));
      const count = (command: string): number => done.get(id)?.filter((one) => one.command === command).length ?? 0;
      const logged = (action: string): number => entries.filter((entry) => entry.action === action).length;
      for (const [command, action] of [['create', 'organization.created'], ['update', 'organization.updated'], ['remove', 'organization.deleted'], ['transfer', 'organization.transferred'], ['invite', 'member.invited'], ['accept', 'member.joined'], ['create_key', 'api_key.created']] as const) {
        assert.equal(logged(action), count(command), `${id} ${command}`);
      }
      assert.equal(logged('member.removed') + logged('member.left'), count('remove_member') + count('leave'), id);
      assert.ok(logged('member.role_changed') <= count('update_member'));
    }
  };
  await compare();
  for (const projection of ['organizations', 'audit']) await projections.rebuild(projection, 60_000);
  await compare();
  assert.deepEqual(broken, []);
});
