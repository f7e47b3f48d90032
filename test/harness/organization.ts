/** Organizations over real HTTP for tests: people by sign-up, an organization of theirs, members by real invitations. */
import assert from 'node:assert/strict';
import { z } from 'zod';
import { apiKey, invitation, organization, organizationCreated } from '../../contracts/organization.ts';
import type { Role } from '../../contracts/permissions.ts';
import { answered, type ApiReply, type Method, type Person, type TestPlatform } from './platform.ts';

export const routeOf = '/api/organization';
const at = (path: string, query: Readonly<Record<string, string>>): string => `${routeOf}${path}?${new URLSearchParams(query).toString()}`;

export interface OrganizationClient {
  /** `who`: a person, or an API key's text. A GET's fields are its query, others' their body. */
  call(method: Method, path: string, who: Person | string, fields?: Readonly<Record<string, unknown>>, gateway?: number): Promise<ApiReply>;
  /** A new organization; gives its id. */
  create(owner: Person, slug?: string): Promise<z.output<typeof organizationCreated>>;
  /** Invites, takes the link's token out of the mail, and accepts. */
  join(orgId: string, inviter: Person, invited: Person, role: Exclude<Role, 'owner'>): Promise<void>;
  /** Invites and gives the link's token out of the mail. */
  invite(orgId: string, inviter: Person, email: string, role?: string): Promise<{ readonly id: string; readonly token: string }>;
  key(orgId: string, by: Person, scopes?: readonly string[]): Promise<{ readonly id: string; readonly key: string }>;
  read(orgId: string, who: Person): Promise<z.output<typeof organization>>;
  /** Role of a member as the member list says it; undefined = no member. */
  roleOf(orgId: string, who: Person, userId: string): Promise<string | undefined>;
}

export const createdKey = apiKey.extend({ key: z.string() });
const memberList = z.object({ members: z.array(z.object({ userId: z.string(), role: z.string() })) });

export const organizationClient = (platform: TestPlatform): OrganizationClient => {
  let made = 0;
  const call: OrganizationClient['call'] = (method, path, who, fields = {}, gateway = 0) => {
    const token = typeof who === 'string' ? who : who.accessToken;
    if (method === 'GET') {
      const query = Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, String(value)]));
      return platform.api(method, Object.keys(query).length === 0 ? `${routeOf}${path}` : at(path, query), { token, gateway });
    }
    return platform.api(method, `${routeOf}${path}`, { token, json: fields, gateway });
  };
  const invite: OrganizationClient['invite'] = async (orgId, inviter, email, role = 'member') => {
    const { invitation: { id } } = answered(await call('POST', '/members', inviter, { orgId, email, role }), 200, z.strictObject({ invitation }));
    const { text } = await platform.outbox.next(email);
    const token = /\/invite\?token=(\S+)/.exec(text)?.[1];
    assert.ok(token !== undefined, `no link in the mail:\n${text}`);
    return { id, token };
  };
  return {
    call, invite,
    create: async (owner, slug = `org-${process.pid}-${made++}`) => answered(await call('POST', '', owner, { name: `Org ${slug}`, slug }), 201, organizationCreated),
    join: async (orgId, inviter, invited, role) => {
      const { token } = await invite(orgId, inviter, invited.email, role);
      const reply = await call('POST', '/invitations/accept', invited, { token });
      assert.equal(reply.status, 200, reply.body);
    },
    key: async (orgId, by, scopes = ['*']) => answered(await call('POST', '/api-keys', by, { orgId, name: 'key', scopes }), 201, createdKey),
    read: async (orgId, who) => answered(await call('GET', '', who, { orgId }), 200, organization),
    roleOf: async (orgId, who, userId) => {
      const { members } = answered(await call('GET', '/members', who, { orgId }), 200, memberList);
      return members.find((member) => member.userId === userId)?.role;
    },
  };
};

/** The error of an envelope: `<status> <code>`. */
export const refusal = (reply: ApiReply): string => {
  const { error } = z.object({ error: z.object({ code: z.string() }) }).parse(reply.json);
  return `${reply.status} ${error.code}`;
};
