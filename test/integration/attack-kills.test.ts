/** What a kill of a daemon in the middle does to what may happen once only: renewed tokens, mailed codes, device approvals. Real daemons, asked over the link. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { z } from 'zod';
import { deviceGrant, tokenAnswer } from '../../contracts/auth-routes.ts';
import { got, startAccounts } from '../harness/accounts.ts';

test('attack kills - daemons killed under renewals, sign-ins and polls: nothing is granted twice, and nobody who was told everything loses a login', { timeout: 240_000 }, async (t) => {
  const accounts = await startAccounts(t, { count: 2 });
  const people = await Promise.all(Array.from({ length: 6 }, (_, i) => accounts.signUp(`p${i}@example.com`)));
  let over = false;
  const counts = { renewed: 0, unclear: 0, signedIn: 0, approved: 0 };
  let ip = 0;
  const nextIp = (): string => `198.51.${(ip >> 8) & 255}.${ip++ & 255}`;

  /** Renews one after the other. A refusal after an answer that came is a lost login; after one that did not it is the price of rotation. */
  const renewing = async (person: (typeof people)[number]): Promise<void> => {
    let { refreshToken } = await accounts.apiToken(person);
    let clear = true;
    while (!over) {
      const reply = await accounts.call('refresh', { body: { refresh_token: refreshToken }, ip: nextIp() }).catch(() => undefined);
      if (reply === undefined || reply.status >= 500) {
        clear = false;
        counts.unclear += 1;
        continue;
      }
      if (reply.status !== 200) {
        assert.equal(clear, false, `a login was lost: ${reply.status} ${String(reply.code)}`);
        const again = await accounts.apiToken(person).catch(() => undefined);
        if (again === undefined) continue;
        refreshToken = again.refreshToken;
      } else {
        refreshToken = got(reply, 200, tokenAnswer).refresh_token ?? '';
        counts.renewed += 1;
      }
      clear = true;
    }
  };

  /** Tries a mailed code on both daemons at once, several times. */
  const signingIn = async (n: number): Promise<void> => {
    for (let i = 0; !over; i++) {
      const email = `code-${n}-${i}@example.com`;
      const code = await accounts.code(email, nextIp()).catch(() => undefined);
      if (code === undefined) continue;
      const replies = await Promise.all(Array.from({ length: 4 }, (_, k) => accounts.call('email_verify', { body: { email, code }, daemon: k % 2, ip: nextIp() }).catch(() => undefined)));
      const passed = replies.filter((reply) => reply?.status === 200).length;
      assert.ok(passed <= 1, `a code signed in ${passed} times`);
      counts.signedIn += passed;
    }
  };

  const polling = async (person: (typeof people)[number]): Promise<void> => {
    const begun = z.object({ device_code: z.string(), user_code: z.string() });
    while (!over) {
      const start = await accounts.call('device_code', { ip: nextIp() }).catch(() => undefined);
      if (start?.status !== 200) continue;
      const { device_code, user_code } = begun.parse(start.json);
      const decision = await accounts.call('device_authorize', { token: person.cookie, csrf: person.csrf, body: { user_code, action: 'approve' } }).catch(() => undefined);
      const polls = await Promise.all(Array.from({ length: 4 }, (_, k) => accounts.call('device_token', { body: { grant_type: deviceGrant, device_code }, daemon: k % 2, ip: nextIp() }).catch(() => undefined)));
      const passed = polls.filter((poll) => poll?.status === 200).length;
      assert.ok(passed <= 1, `an approval gave ${passed} pairs of tokens`);
      if (passed === 0 && decision?.status === 200) {
        const codes = polls.map((poll) => (poll === undefined ? 'none' : poll.code ?? ''));
        assert.ok(codes.some((code) => !['authorization_pending', 'invalid_grant'].includes(code)), `an approval came to nothing: ${codes.join(' ')}`);
      }
      counts.approved += passed;
    }
  };

  const [a, b, c, d, e, f] = people;
  assert.ok(a && b && c && d && e && f);
  const working = Promise.all([renewing(a), renewing(b), renewing(c), signingIn(0), signingIn(1), polling(d), polling(e)]);
  const killing = (async (): Promise<void> => {
    for (let round = 0; round < 4; round++) {
      const at = counts.renewed + 30;
      while (counts.renewed < at) await accounts.call('me', { token: f.accessToken }).catch(() => undefined);
      const daemon = accounts.daemons[round % 2];
      await daemon?.kill('SIGKILL');
      await daemon?.start();
      await accounts.reached(round % 2);
    }
    over = true;
  })();
  await Promise.all([working, killing.finally(() => { over = true; })]);
  t.diagnostic(JSON.stringify(counts));
  assert.ok(counts.renewed > 100 && counts.signedIn > 0 && counts.approved > 0, JSON.stringify(counts));
});
