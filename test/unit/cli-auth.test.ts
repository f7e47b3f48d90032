/** The sign-in of the command, poll by poll, with its waits recorded: no clock runs here. */
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { CodedError, coded, refuse } from '../../contracts/errors.ts';
import { runLogin, type AuthWorld } from '../../gateway/cli/auth.ts';
import type { PlatformCallInput, PlatformClient } from '../../gateway/cli/platform.ts';
import type { z } from 'zod';

const url = 'https://platform.example';
const code = {
  device_code: 'd'.repeat(64), user_code: 'ABCD-2345', verification_uri: `${url}/device`, verification_uri_complete: `${url}/device?code=ABCD-2345`, expires_in: 900, interval: 5,
};
const account = { id: 'usr_1', email: 'ada@example.com', name: 'Ada', orgs: [], expiresAt: '2030-01-01T00:00:00.000Z' };

interface Run {
  readonly world: AuthWorld;
  readonly waits: number[];
  readonly calls: string[];
  readonly text: () => string;
  readonly config: () => Promise<unknown>;
}

/** `polls`: what the token endpoint says, one after the other. */
const setUp = async (t: TestContext, polls: readonly (CodedError | 'token')[], options: { readonly code?: CodedError | typeof code; readonly pasted?: string; readonly bad?: boolean } = {}): Promise<Run> => {
  const home = await mkdtemp(join(tmpdir(), 'troupe-auth-'));
  t.after(() => rm(home, { recursive: true, force: true }));
  const waits: number[] = [];
  const calls: string[] = [];
  let said = '';
  let at = 0;
  let now = 0;
  const answer = (path: string): unknown => {
    if (path === '/api/auth/device/code') return options.code ?? code;
    if (path === '/api/auth/me') return options.bad === true ? new CodedError('unauthorized', undefined, { details: { status: 401 } }) : account;
    const next = polls[at++];
    assert.ok(next !== undefined, 'one poll too many');
    return next === 'token' ? { access_token: 'the-token', token_type: 'Bearer', expires_in: 86_400 } : next;
  };
  const platform: PlatformClient = {
    url,
    text: () => Promise.reject(new Error('not here')),
    call: async <S extends z.ZodType>(input: PlatformCallInput<S>) => {
      calls.push(`${input.route.method} ${input.route.path}`);
      const value = answer(input.route.path);
      if (value instanceof CodedError) throw value;
      return input.answer.parse(value);
    },
  };
  const write = { write: (text: string) => { said += text; } };
  return {
    waits, calls, text: () => said,
    config: async () => JSON.parse(await readFile(join(home, '.troupe', 'config.json'), 'utf8')) as unknown,
    world: {
      env: { HOME: home }, cwd: home, platform, out: write, err: write, now: () => now,
      wait: async (ms) => {
        waits.push(ms);
        now += ms;
      },
      spin: () => () => undefined,
      ask: async () => options.pasted,
      openBrowser: () => undefined,
    },
  };
};
const login = { manual: false, browser: false, json: false };
const nothingStored = async (run: Run): Promise<void> => {
  await assert.rejects(stat(join(run.world.env['HOME'] ?? '', '.troupe', 'config.json')));
};

test('cli - device sign-in shows code and address, waits the interval before each poll, stores the token with the address it came from, also where no refresh token comes with it [TOK-003] [CLI-008] [CLI-009] [CLI-010] [CLI-014] [CLI-004]', async (t) => {
  const run = await setUp(t, [coded('authorization_pending'), coded('authorization_pending'), 'token']);
  assert.equal(await runLogin(run.world, login), 0);
  assert.ok(run.text().includes('ABCD-2345') && run.text().includes(`${url}/device`));
  assert.deepEqual(run.waits, [5_000, 5_000, 5_000]);
  assert.deepEqual(await run.config(), { token: 'the-token', apiBase: url });
});

test('cli - the server\'s interval is the one that is waited; without one it is 5 seconds [CLI-009]', async (t) => {
  const slower = await setUp(t, [coded('authorization_pending'), 'token'], { code: { ...code, interval: 9 } });
  await runLogin(slower.world, login);
  assert.deepEqual(slower.waits, [9_000, 9_000]);
  const { interval: _, ...without } = code;
  const usual = await setUp(t, ['token'], { code: without as typeof code });
  await runLogin(usual.world, login);
  assert.deepEqual(usual.waits, [5_000]);
});

test('cli - each slow_down makes the interval 5 seconds longer for good; a network that is gone does too [CLI-011]', async (t) => {
  const run = await setUp(t, [coded('slow_down'), coded('slow_down'), coded('authorization_pending'), coded('upstream_unavailable'), 'token']);
  assert.equal(await runLogin(run.world, login), 0);
  assert.deepEqual(run.waits, [5_000, 10_000, 15_000, 15_000, 20_000]);
});

const refusedBy = async (t: TestContext, word: 'access_denied' | 'expired_token'): Promise<void> => {
  const run = await setUp(t, [coded('authorization_pending'), coded(word)]);
  await assert.rejects(runLogin(run.world, login), (error) => error instanceof CodedError && error.code === word);
  await nothingStored(run);
};
test('cli - access_denied ends the sign-in with an error and stores nothing [CLI-012]', (t) => refusedBy(t, 'access_denied'));
test('cli - expired_token ends the sign-in with an error and stores nothing [CLI-013]', (t) => refusedBy(t, 'expired_token'));

test('cli - polling ends some time after the code has expired, whatever the server says', async (t) => {
  const run = await setUp(t, Array.from({ length: 400 }, () => coded('authorization_pending')));
  await assert.rejects(runLogin(run.world, login));
  assert.equal(run.waits.length, 182);
});

const fallsBack = async (t: TestContext, error: CodedError): Promise<void> => {
  const run = await setUp(t, [], { code: error, pasted: ' pasted-token \n' });
  assert.equal(await runLogin(run.world, login), 0);
  assert.ok(run.text().includes(`${url}/api/auth/api-token`));
  assert.deepEqual(await run.config(), { token: 'pasted-token', apiBase: url });
};
test('cli - an unreachable server makes the sign-in a manual one [CLI-015]', (t) => fallsBack(t, coded('upstream_unavailable')));
test('cli - a server without the device-code endpoint, or limiting it, makes the sign-in a manual one [CLI-016]', async (t) => {
  await fallsBack(t, refuse('not_found'));
  await fallsBack(t, refuse('rate_limit_exceeded'));
});

test('cli - manual sign-in asks no device code, shows the page, checks the token before it stores it [CLI-017] [CLI-018]', async (t) => {
  const run = await setUp(t, [], { pasted: 'pasted-token' });
  assert.equal(await runLogin(run.world, { ...login, manual: true }), 0);
  assert.deepEqual(run.calls, ['GET /api/auth/me']);
  assert.ok(run.text().includes(`${url}/api/auth/api-token`));
  assert.deepEqual(await run.config(), { token: 'pasted-token', apiBase: url });
});

test('cli - a pasted token that the server does not know, or none, is not stored [CLI-019]', async (t) => {
  for (const options of [{ pasted: 'bad', bad: true }, { pasted: '  ' }, {}]) {
    const run = await setUp(t, [], options);
    await assert.rejects(runLogin(run.world, { ...login, manual: true }));
    await nothingStored(run);
  }
});
