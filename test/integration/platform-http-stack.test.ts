/** The platform's surface on a real stack: gateway, daemon, NATS, Postgres, mail; what only the two together can show. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startPlatform } from '../harness/platform.ts';

test('platform stack - a person signs up by mail and is known by cookie and by token on every gateway', async (t) => {
  const platform = await startPlatform(t, { gateways: 2 });
  const ada = await platform.signUp('ada@example.com');
  for (const gateway of [0, 1]) {
    const me = await platform.api('GET', '/api/auth/me', { token: ada.accessToken, gateway });
    assert.equal(me.status, 200, me.body);
    const session = await platform.api('GET', '/api/auth/session', { cookie: ada.cookie, gateway });
    assert.deepEqual([session.status, session.headers['content-type'], session.headers['cache-control']], [200, 'application/json', 'no-store']);
  }
});
