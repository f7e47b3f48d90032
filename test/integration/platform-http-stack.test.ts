/** The platform's surface on a real stack: gateways, daemon, NATS, Postgres, mail; what only all of them together can show. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { z } from 'zod';
import { startPlatform, type ApiReply, type Person, type TestPlatform } from '../harness/platform.ts';

const access = z.object({ access_token: z.string() });
const refused = (reply: ApiReply, status: number, code: string): void => {
  assert.equal(reply.status, status, reply.body);
  assert.equal(z.strictObject({ error: z.object({ code: z.string(), message: z.string() }) }).parse(reply.json).error.code, code);
};

describe('platform stack', () => {
  let platform: TestPlatform;
  let ada: Person;
  before(async () => {
    platform = await startPlatform(undefined, { gateways: 2 });
    ada = await platform.signUp('ada@example.com');
  });
  after(() => platform.stop());

  test('platform stack - a person who signed up by mail is known by cookie and by token on every gateway', async () => {
    for (const gateway of [0, 1]) {
      const me = await platform.api('GET', '/api/auth/me', { token: ada.accessToken, gateway });
      assert.equal(me.status, 200, me.body);
      assert.equal(z.object({ id: z.string() }).parse(me.json).id, ada.userId);
      const session = await platform.api('GET', '/api/auth/session', { cookie: ada.cookie, gateway });
      assert.deepEqual([session.status, session.headers['content-type'], session.headers['cache-control']], [200, 'application/json', 'no-store']);
    }
  });

  test('platform stack - the daemon refuses in the envelope what the gateway let through [ERR-001] [ERR-003] [ERR-004] [ERR-005]', async () => {
    refused(await platform.api('GET', '/api/auth/me', { token: `trp_sk_${'a'.repeat(43)}` }), 401, 'unauthorized');
    refused(await platform.api('POST', '/api/auth/signout', { cookie: `${ada.userId}.${'a'.repeat(43)}`, csrf: ada.csrf, json: {} }), 401, 'unauthorized');
    refused(await platform.api('POST', '/api/auth/signout', { cookie: ada.cookie, csrf: 'guessed', json: {} }), 403, 'forbidden');
    refused(await platform.api('POST', '/api/auth/signout', { cookie: ada.cookie, json: {} }), 403, 'forbidden');
    refused(await platform.api('GET', '/api/organization?orgId=org_00000000000000000000000000', { token: ada.accessToken }), 404, 'not_found');
  });

  test('platform stack - a token of the platform is believed at the edge of every gateway, and ends there with its login [TOK-046]', async () => {
    const made = await platform.api('POST', '/api/auth/gateway-token', { token: ada.accessToken, json: {} });
    assert.equal(made.status, 200, made.body);
    const token = access.parse(made.json).access_token;
    const bootstrap = (gateway: number, bearer: string): Promise<ApiReply> =>
      platform.api('POST', '/troupe/v1/auth/bootstrap', { token: bearer, json: { user_id: ada.userId }, gateway });
    const create = (gateway: number): Promise<ApiReply> =>
      platform.api('POST', '/v1/agent/create_session', { token, json: { user_id: ada.userId, project_id: 'p' }, gateway });
    for (const gateway of [0, 1]) {
      assert.equal((await bootstrap(gateway, token)).status, 200);
      assert.equal((await create(gateway)).status, 201);
      assert.equal((await bootstrap(gateway, ada.accessToken)).status, 403);
    }
    const again = await platform.signUp('ada@example.com');
    const revoked = await platform.api('POST', '/api/auth/revoke', { token: again.accessToken, json: { all: true } });
    assert.equal(revoked.status, 200, revoked.body);
    for (const gateway of [0, 1]) {
      assert.equal((await create(gateway)).status, 401);
      refused(await platform.api('GET', '/api/auth/me', { token: ada.accessToken, gateway }), 401, 'unauthorized');
    }
  });
});
