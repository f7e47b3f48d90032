/** The user actor under drawn schedules: what a simple model says lives is believed, all else is not, whoever owns the actor. */
import assert from 'node:assert/strict';
import { createHash, randomInt } from 'node:crypto';
import { test } from 'node:test';
import { CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { userCommands, type GrantKind } from '../../contracts/user.ts';
import { askBy } from '../../actors/daemon/platform/ask.ts';
import { userAddress } from '../../actors/user/address.ts';
import { user } from '../../actors/user/user.ts';
import { createCluster, createHost, type Host } from '../harness/memory-host.ts';
import { draw } from '../harness/seed.ts';

const address = userAddress('usr_01m7y5k0emwn9k1s928k7rjpdr');
const email = 'ann@example.com';
const sha = (text: string): string => createHash('sha256').update(text).digest('hex');
const hourMs = 3_600_000;

/** A login as the test knows it. */
interface Login {
  readonly id: string;
  readonly kind: GrantKind;
  secret: string;
  secretEnds: number;
  accessEnds: number;
  /** Replaced secrets and until when each was good. */
  former: { readonly secret: string; readonly ends: number }[];
  used: number;
  ended: boolean;
  /** jti → until when the token would have been good. */
  readonly revoked: Set<string>;
}

const seed = Number(process.env['TROUPE_SEED'] ?? randomInt(1_000_000));

test(`user schedules - logins, renewals, thefts, revocations, waits and lost hosts in any order agree with the model (seed ${seed}) [TOK-019] [TOK-020] [TOK-031] [TOK-032] [TOK-033]`, async () => {
  for (let round = 0; round < 30; round++) {
    const { int, pick } = draw(seed + round);
    const cluster = createCluster();
    let epoch = 1;
    let host: Host = createHost(cluster, { definitions: [user()], epoch });
    const ask = askBy({ ask: (message) => host.engine.deliver(message) }, userCommands);
    const now = (): number => cluster.clock.now();
    const logins: Login[] = [];
    let made = 0;
    const fresh = (): string => `secret-${++made}`;
    const lives = (l: Login): boolean => !l.ended && Math.max(l.secretEnds, l.accessEnds) > now();
    const accepted = async (work: Promise<unknown>): Promise<boolean> => {
      try {
        await work;
        return true;
      } catch (error) {
        if (error instanceof CodedError && error.code === 'unauthorized') return false;
        throw error;
      }
    };
    const open = async (): Promise<void> => {
      const kind = logins.length === 0 ? 'browser' : pick(['browser', 'device', 'api-token'] as const);
      const login: Login = {
        id: `grt_${logins.length}`, kind, secret: fresh(), secretEnds: now() + limits.refreshTtlMs, accessEnds: now() + (kind === 'browser' ? limits.refreshTtlMs : kind === 'device' ? 24 * hourMs : limits.apiTokenTtlMs),
        former: [], used: now(), ended: false, revoked: new Set(),
      };
      const grant = { id: login.id, kind, client_id: '', secret_sha256: sha(login.secret), expires_at: login.secretEnds, access_expires_at: login.accessEnds, ip: '', user_agent: '' };
      if (kind === 'browser') await ask(address, 'sign_in', { email, name: '', provider: 'email', provider_id: email, grant });
      else await ask(address, 'open_grant', { grant });
      logins.push(login);
    };
    const refresh = async (): Promise<void> => {
      const login = pick(logins);
      const stolen = login.former.length > 0 && int(0, 3) === 0 ? pick(login.former) : undefined;
      const next = fresh();
      const { state } = await ask(address, 'refresh', { secret_sha256: sha(stolen?.secret ?? login.secret), next_sha256: sha(next), expires_at: now() + limits.refreshTtlMs, access_expires_at: now() + 24 * hourMs });
      const known = !login.ended && login.kind !== 'browser';
      if (stolen !== undefined) {
        // Past its own end a replaced token may have been forgotten: refused all the same.
        if (state === 'reused') login.ended = true;
        else assert.ok(!known || stolen.ends <= now(), `a replaced token is ${state}`);
        return;
      }
      if (!known || !lives(login)) assert.ok(state === 'unknown' || state === 'expired', state);
      else if (login.secretEnds <= now()) assert.equal(state, 'expired');
      else {
        assert.equal(state, 'rotated');
        login.former.push({ secret: login.secret, ends: login.secretEnds });
        Object.assign(login, { secret: next, secretEnds: now() + limits.refreshTtlMs, accessEnds: Math.max(login.accessEnds, now() + 24 * hourMs), used: now() });
      }
    };
    const steps: (() => Promise<void>)[] = [
      open, refresh, refresh, refresh,
      async () => {
        const login = pick(logins);
        const jti = `j${int(0, 3)}`;
        const { revoked } = await ask(address, 'revoke_token', { grant_id: login.id, jti: `${login.id}${jti}`, expires_at: now() + limits.apiTokenTtlMs });
        assert.equal(revoked, lives(login) && !login.revoked.has(jti) ? 1 : 0);
        if (revoked === 1) login.revoked.add(jti);
      },
      async () => {
        const login = pick(logins);
        const { revoked } = await ask(address, 'revoke_grant', { grant_id: login.id, why: 'revoked' });
        assert.equal(revoked, lives(login) ? 1 : 0);
        login.ended = true;
      },
      async () => {
        const login = pick(logins);
        const { revoked } = await ask(address, 'revoke_refresh', { secret_sha256: sha(login.secret) });
        assert.equal(revoked, lives(login) && login.kind !== 'browser' ? 1 : 0);
        if (login.kind !== 'browser') login.ended = true;
      },
      async () => {
        if (int(0, 9) > 0) return;
        assert.equal((await ask(address, 'revoke_all', {})).revoked, logins.filter(lives).length);
        for (const login of logins) login.ended = true;
      },
      async () => cluster.clock.jump(pick([1, hourMs, 24 * hourMs, 6 * 24 * hourMs, limits.refreshTtlMs])),
      async () => {
        host.engine.close();
        host = createHost(cluster, { definitions: [user()], epoch: ++epoch });
      },
    ];
    await open();
    for (let i = 0; i < 60; i++) {
      await pick(steps)();
      for (const login of logins) {
        if (login.kind === 'browser') {
          const good = !login.ended && login.secretEnds > now();
          assert.equal(await accepted(ask(address, 'check_cookie', { secret_sha256: sha(login.secret) })), good, `${login.id} cookie, round ${round}, step ${i}`);
          if (good && now() - login.used >= limits.grantTouchMs) Object.assign(login, { secretEnds: now() + limits.browserSessionTtlMs, used: now() });
        }
        for (const jti of ['j0', 'other']) {
          assert.equal(await accepted(ask(address, 'check', { grant_id: login.id, jti: `${login.id}${jti}` })), lives(login) && !login.revoked.has(jti), `${login.id} ${jti}, round ${round}, step ${i}`);
        }
      }
    }
    host.engine.close();
  }
});
