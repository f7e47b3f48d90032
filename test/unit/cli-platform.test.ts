/** What a hostile or broken server can say to the command, and what of it reaches a terminal or a timer. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { z } from 'zod';
import { CodedError } from '../../contracts/errors.ts';
import { exportAudit } from '../../gateway/cli/audit.ts';
import { runLogin, type AuthWorld } from '../../gateway/cli/auth.ts';
import { audit, listKeys, showOrganization, type OrgWorld } from '../../gateway/cli/org.ts';
import { createPlatform, type PlatformClient } from '../../gateway/cli/platform.ts';

const url = 'https://platform.example';
/** A title, a cursor movement, a C1 introducer, an override of the reading direction. */
const hostile = '\u001b]0;owned\u0007\u001b[2J\u009b31m\u202eevil';
// oxlint-disable-next-line no-control-regex
const obeyed = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/;

const serving = (answers: Readonly<Record<string, readonly [status: number, text: string]>>): PlatformClient => createPlatform({
  url,
  fetch: (asked) => {
    const path = Object.keys(answers).filter((known) => asked.startsWith(`${url}${known}`)).toSorted((a, b) => b.length - a.length)[0] ?? '';
    const [status, text] = answers[path] ?? [404, '{}'];
    return Promise.resolve(new Response(text, { status }));
  },
});
const refused = async (status: number, text: string): Promise<CodedError> => {
  const error: unknown = await serving({ '/x': [status, text] }).call({ route: { method: 'GET', path: '/x' }, answer: z.object({}) }).then(() => undefined, (e: unknown) => e);
  assert.ok(error instanceof CodedError);
  return error;
};

const listed = { id: `org_${hostile}`, name: hostile, slug: `a${hostile}`, plan: 'free', role: 'owner', memberCount: 1, createdAt: '2030-01-01T00:00:00.000Z' };
const onTerminal = (platform: PlatformClient, json: boolean): { readonly world: OrgWorld; readonly said: () => string } => {
  let said = '';
  const out = { write: (text: string) => { said += text; }, isTTY: true };
  return { world: { platform, token: 't', json, out, err: out }, said: () => said };
};

test('cli - an error\'s code and message are printable whatever the server says [CLI-008]', async () => {
  for (const body of [{ error: { code: 'forbidden', message: `no${hostile}` } }, { error: 'access_denied', error_description: `no${hostile}` }]) {
    const { code, message } = await refused(403, JSON.stringify(body));
    assert.match(code, /^(?:forbidden|access_denied)$/);
    assert.match(message, /^no/);
    assert.doesNotMatch(message, obeyed);
  }
  for (const body of [{ error: { code: `x${hostile}`, message: 'm' } }, { error: hostile }, { error: 7 }, [], null, 'text']) assert.equal((await refused(403, JSON.stringify(body))).code, 'upstream_error');
  assert.equal((await refused(502, '<html>')).code, 'upstream_error');
  assert.ok((await refused(403, JSON.stringify({ error: { code: 'forbidden', message: 'x'.repeat(1_000_000) } }))).message.length < 1_000);
});

test('cli - what members named, and what the server says, moves no cursor of a terminal [CLI-001]', async () => {
  const one = { ...listed, settings: { defaultModel: hostile, sharedMemory: false, webhookUrl: hostile, retentionDays: null } };
  const { role: _role, ...organization } = one;
  const platform = serving({
    '/api/organization': [200, JSON.stringify({ organizations: [listed] })],
    '/api/organization?': [200, JSON.stringify(organization)],
    '/api/organization/audit': [200, `id,userAgent\r\n1,${hostile}\r\n`],
    '/api/organization/api-keys': [200, JSON.stringify({ keys: [{ id: hostile, name: hostile, keyPrefix: hostile, scopes: [hostile], createdBy: 'u', lastUsedAt: null, revokedAt: null, createdAt: listed.createdAt }] })],
  });
  for (const json of [false, true]) {
    for (const command of [(world: OrgWorld) => showOrganization(world, undefined), (world: OrgWorld) => listKeys(world, undefined), (world: OrgWorld) => audit(world, undefined, 'csv')]) {
      const { world, said } = onTerminal(platform, json);
      await command(world);
      assert.match(said(), /evil/);
      assert.doesNotMatch(said(), obeyed);
    }
  }
});

test('cli - an audit log is exported in parts, each after the one before was taken, with quoted line ends and one header; a part too large is asked for smaller [AUD-002]', async () => {
  const count = 2_345;
  const rows = Array.from({ length: count }, (_, i) => ({ id: `id${count - i}`, agent: i % 3 === 0 ? 'a "quoted"\r\nline, with\n\nends' : 'plain' }));
  const asked: number[] = [];
  for (const format of ['csv', 'jsonl'] as const) {
    const text = ({ query = {} }: { readonly query?: Readonly<Record<string, string>> }): Promise<string> => {
      const limit = Number(query['limit']);
      asked.push(limit);
      if (limit > 600) return Promise.reject(new CodedError('payload_too_large'));
      const from = query['cursor'] === undefined ? 0 : rows.findIndex(({ id }) => id === query['cursor']) + 1;
      const page = rows.slice(from, from + limit);
      return Promise.resolve(format === 'jsonl' ? page.map((row) => `${JSON.stringify(row)}\n`).join('')
        : ['id,agent\r\n', ...page.map(({ id, agent }) => `${id},"${agent.replaceAll('"', '""')}"\r\n`)].join(''));
    };
    const parts: string[] = [];
    let waiting = 0;
    const write = async (part: string): Promise<void> => {
      waiting += 1;
      assert.equal(waiting, 1, 'the next part is not written before this one was taken');
      await new Promise((resolve) => { setImmediate(resolve); });
      waiting -= 1;
      parts.push(part);
    };
    await exportAudit({ platform: { text }, token: 't', orgId: 'o', format, write });
    const whole = format === 'jsonl' ? rows.map((row) => `${JSON.stringify(row)}\n`).join('') : ['id,agent\r\n', ...rows.map(({ id, agent }) => `${id},"${agent.replaceAll('"', '""')}"\r\n`)].join('');
    assert.ok(parts.join('') === whole, format);
    assert.equal(parts.length, 5);
  }
  assert.deepEqual(asked.slice(0, 3), [1_000, 500, 500]);
  // A platform that says the same again and again is not asked for ever.
  const stuck = { text: () => Promise.resolve(`id\r\n${'same\r\n'.repeat(1_000)}`) };
  await assert.rejects(exportAudit({ platform: stuck, token: 't', orgId: 'o', format: 'csv', write: () => undefined }), { code: 'upstream_error' });
});

test('cli - no server makes the command poll without a pause or wait beyond a timer [CLI-009]', async () => {
  const code = { device_code: 'd', user_code: 'A', verification_uri: `${url}/device`, expires_in: 900, interval: 5 };
  for (const bad of [{ interval: 0 }, { interval: -5 }, { interval: 1e12 }, { expires_in: -1 }, { expires_in: 1e12 }]) {
    let waits = 0;
    const out = { write: () => undefined };
    const world: AuthWorld = {
      env: { HOME: '/nonexistent' }, cwd: '/', platform: serving({ '/api/auth/device/code': [200, JSON.stringify({ ...code, ...bad })] }), out, err: out,
      now: () => 0, wait: () => { waits += 1; return Promise.resolve(); }, spin: () => () => undefined, ask: () => Promise.resolve(undefined), openBrowser: () => undefined,
    };
    await assert.rejects(runLogin(world, { manual: false, browser: false, json: false }), { code: 'not_signed_in' }, 'it asks for a token by hand instead');
    assert.equal(waits, 0, JSON.stringify(bad));
  }
});
