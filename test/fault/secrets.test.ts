/**
 * Keys never leave (G7): conversations that go well and badly, refusals of every kind, a vendor that quotes the key back, daemons
 * that die and daemons that cannot start; then everything that can be read from outside is searched for every secret there is.
 * What becomes of a user's own private keys is looked at, opened with the master key, by the tests of custody.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { connect } from 'nats';
import { fetch, Agent } from 'undici';
import { WebSocket } from 'ws';
import { writeDaemonConfig } from '../../deploy/start/config-files.ts';
import { signDevToken } from '../../deploy/start/dev-file.ts';
import { faultConfig, within } from '../harness/chaos.ts';
import { modelServer, openaiChunk, openaiDone, openaiUsage, sse, type Answer } from '../harness/model-server.ts';
import { testProcess } from '../harness/process.ts';
import { openJournals } from '../harness/proof.ts';
import { draw } from '../harness/seed.ts';
import { startStack } from '../harness/stack.ts';
import { Talker } from '../harness/talker.ts';

const secret = (): string => randomBytes(24).toString('hex');
/** Any JSON Web Token: no log, journal, metric or error may hold one, whoever's it is. */
const anyToken = /eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{20,}/;

const filesUnder = async (folder: string): Promise<string[]> =>
  (await readdir(folder, { recursive: true, withFileTypes: true })).filter((e) => e.isFile()).map((e) => join(e.parentPath, e.name));

const getText = async (url: string): Promise<string> => new Promise((resolve, reject) => {
  request(url, (response) => {
    let body = '';
    response.setEncoding('utf8').on('data', (chunk: string) => { body += chunk; }).on('end', () => { resolve(body); });
  }).on('error', reject).end();
});

test('secrets - no key, password, bearer or capability is in a log, journal, metric, error or process argument, whatever goes wrong [G7]', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-secrets-'));
  const providerKey = `sk-${secret()}`;
  const natsPassword = secret();
  const wrongPassword = secret();
  const marker = `marker${secret()}`;
  const kept = (name: string): string => join(folder, name);
  await Promise.all([['openai.key', providerKey], ['nats.password', natsPassword], ['wrong.password', wrongPassword]]
    .map(([name, content]) => writeFile(kept(String(name)), String(content), { mode: 0o600 })));
  const quoting = (status: number): Answer => (call, response) => {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ error: { message: `Incorrect API key provided: ${providerKey}, sent as ${call.headers.authorization}`, type: 'invalid_request_error', code: 'invalid_api_key' } }));
  };
  const model = await modelServer(
    quoting(401), quoting(400),
    (call, response) => {
      sse(response);
      response.write(openaiChunk({ content: 'half ' }));
      // The vendor's stream breaks with its own words, and again when it is taken up.
      response.end(`data: ${JSON.stringify({ error: { message: `broken for ${call.headers.authorization}`, type: 'invalid_request_error' } })}\n\n`);
    },
    (_call, response) => {
      sse(response);
      response.end(openaiChunk({ content: 'fine' }) + openaiChunk({}, 'stop') + openaiUsage(1, 1) + openaiDone);
    },
  );
  t.after(async () => {
    await model.stop();
    await rm(folder, { recursive: true });
  });

  const output: string[] = [];
  let natsUrl = '';
  const stack = await startStack(t, {
    natsConfig: `authorization { user: troupe, password: "${natsPassword}" }`,
    onLine: (process, line) => output.push(`${process} ${line}`),
    natsUrl: (url) => (natsUrl = url),
    gateway: { ...faultConfig.gateway, log_level: 'trace' },
    daemon: () => ({
      ...faultConfig.daemon, log_level: 'trace', models: { default: 'gpt', registry: [{ id: 'gpt', provider: 'openai' }] },
      nats: { url: natsUrl, user: 'troupe', password_path: kept('nats.password') },
      providers: { openai: { base_url: `${model.url}/v1`, api_key_path: kept('openai.key') } },
    }),
  });
  const [daemon] = stack.daemons;
  assert.ok(daemon);
  const agent = new Agent({ connect: { ca: stack.ca.toString('utf8') } });
  t.after(() => agent.destroy());

  // Bearers of every kind, all of them secrets from here on.
  const good = await stack.token('ann');
  const expired = await stack.token('ann', undefined, -3_600);
  const elsewhere = await signDevToken(stack.devSecret, { sub: 'ann', audience: 'another', ttlSec: 60 });
  const forged = await signDevToken(secret(), { sub: 'ann', audience: stack.audience, ttlSec: 60 });
  const junk = `junk${secret()}`;
  const bearers = [good, expired, elsewhere, forged, junk];

  // A conversation: the vendor refuses and quotes the key, breaks in the middle, then answers; the daemon dies on the way.
  const talker = new Talker({ stack, sub: 'ann', random: draw(1) });
  t.after(() => talker.leave());
  await talker.begin();
  const turn = async (script: string): Promise<void> => {
    talker.say(script);
    await within(60_000, script, talker.until(() => talker.ends === talker.said.length), () => stack.report());
  };
  await turn(`first ${marker}`);
  await turn('second');
  await daemon.restart();
  await turn('third');
  await turn('fourth');
  assert.ok(talker.events.filter((e) => e.agent_kind === 'ERROR').length >= 2, 'the vendor did not fail as it should');

  // Refusals: each body, and each refused upgrade, is shown to somebody.
  const shown: string[] = [];
  const post = async (path: string, bearer: string, body: unknown): Promise<Record<string, unknown>> => {
    const answer = await fetch(`${stack.url}${path}`, { method: 'POST', dispatcher: agent, headers: { authorization: `Bearer ${bearer}`, 'content-type': 'application/json' }, body: JSON.stringify(body) });
    const text = await answer.text();
    if (answer.status >= 400) shown.push(`${answer.status} ${JSON.stringify([...answer.headers])} ${text}`);
    return JSON.parse(text) as Record<string, unknown>;
  };
  const boot = await post('/troupe/v1/auth/bootstrap', good, { user_id: 'ann' });
  const capability = String(boot['access_token']);
  const minted = String((await post('/custody/mint_session_cap', capability, { user_id: 'ann' }))['token']);
  assert.match(capability, anyToken);
  assert.match(minted, anyToken);
  bearers.push(capability, minted);
  await post('/custody/sign_auth', minted, { user_id: 'ann', digest_b64: randomBytes(32).toString('base64') });
  for (const bearer of bearers) {
    for (const [path, body] of [
      ['/v1/agent/create_session', { user_id: 'eve', project_id: 'p' }], ['/v1/agent/create_session', { user_id: 'ann', project_id: 'p', unknown: bearer }],
      ['/custody/sign_auth', { user_id: 'eve', digest_b64: 'x' }], ['/troupe/v1/auth/bootstrap', { user_id: 'eve' }],
    ] as const) await post(path, bearer, body);
    for (const [sid, options] of [['abcdefghijklmnopqrstuvwxyz', { headers: { authorization: `Bearer ${bearer}` } }], [talker.sid, {}]] as const) {
      await new Promise<void>((resolve) => {
        const socket = new WebSocket(`${stack.wsUrl}/v1/agent/stream?sid=${sid}&last_seq_no=0`, ['troupe.v1', `bearer.${bearer}`], { ca: stack.ca, ...options });
        socket.on('message', (data: Buffer) => { if (data.toString('utf8').includes('"closing"')) shown.push(data.toString('utf8')); });
        socket.on('open', () => { socket.send(`{"kind":"${bearer}"}`); });
        socket.on('unexpected-response', (_request, response) => {
          shown.push(`${response.statusCode} ${JSON.stringify(response.headers)}`);
          response.on('data', (chunk: Buffer) => shown.push(chunk.toString('utf8'))).on('end', resolve);
        });
        socket.on('close', (code, reason) => { shown.push(`${code} ${reason.toString('utf8')}`); resolve(); });
        socket.on('error', (error) => { shown.push(String(error)); });
      });
    }
  }
  assert.ok(shown.length > 30);

  // Daemons that cannot start, each for its own reason, say why without saying what.
  const cannot = async (name: string, nats: { url: string; user?: string; password_path?: string }): Promise<void> => {
    const config = kept(`${name}.toml`);
    writeDaemonConfig(config, {
      host: name, socket_path: kept(`${name}.sock`), master_key_path: join(stack.folder, 'master.key'), log_level: 'trace', nats,
      capability: { public_key_path: join(stack.folder, 'capability.pub') }, models: { default: 'mock', registry: [{ id: 'mock', provider: 'mock' }] },
    });
    const one = testProcess({
      name, args: [fileURLToPath(new URL('../../actors/daemon/main.ts', import.meta.url)), '--config', config], onLine: (line) => output.push(`${name} ${line}`), probe: async () => false,
    });
    await assert.rejects(one.start(), /cannot start: upstream_unavailable/);
  };
  await cannot('wrong', { url: natsUrl, user: 'troupe', password_path: kept('wrong.password') });
  await cannot('nobody', { url: `nats://troupe:${wrongPassword}@127.0.0.1:1` });

  // What can be read from outside.
  const processes = [...stack.daemons, ...stack.gateways];
  const seen = new Map<string, string>();
  for (const one of processes) {
    seen.set(`arguments of ${one.name}`, (await readFile(`/proc/${one.pid}/cmdline`, 'utf8')).replaceAll('\0', ' '));
    seen.set(`environment of ${one.name}`, await readFile(`/proc/${one.pid}/environ`, 'utf8'));
  }
  for (const gateway of stack.gateways) seen.set(`metrics of ${gateway.name}`, await getText(`http://127.0.0.1:${gateway.opsPort}/metrics`));
  const nc = await connect({ servers: natsUrl, user: 'troupe', pass: natsPassword });
  for (const verb of ['INFO', 'STATS', 'PING']) {
    for await (const reply of await nc.requestMany(`$SRV.${verb}`, '', { maxWait: 2_000, strategy: 'stall' })) seen.set(`service ${verb} ${seen.size}`, reply.string());
  }
  await nc.close();
  seen.set('what clients were shown', [...shown, ...talker.events.map((e) => JSON.stringify(e))].join('\n'));
  seen.set('output of all processes', output.join('\n'));
  const journals = await openJournals(natsUrl, faultConfig.daemon.partitions, { user: 'troupe', password: natsPassword });
  t.after(() => journals.close());
  seen.set('journal of the session', JSON.stringify(await journals.commits({ org: talker.org, type: 'session', key: talker.sid })));
  // Everything JetStream has stored, byte for byte: journals, snapshots, inboxes, leases, blobs.
  for (const file of await filesUnder(join(stack.nats.dir, 'store'))) seen.set(file, await readFile(file, 'latin1'));

  // The search finds what is there: a message in the store and the journal, a line of the log, the name of a metric.
  const found = (text: string, where: RegExp): boolean => [...seen].some(([name, content]) => where.test(name) && content.includes(text));
  assert.ok(found(marker, /\.blk$/), 'the store was not searched');
  assert.ok(found(marker, /journal/) && found('"msg":"ready"', /output/) && found('troupe_gateway_requests_total', /metrics/) && found('--config', /arguments/) && found('troupe', /service INFO/));
  assert.ok(output.some((line) => line.startsWith('wrong ')) && output.some((line) => line.startsWith('nobody ')));

  const lines = async (name: string): Promise<string[]> => (await readFile(join(stack.folder, name), 'utf8')).split('\n').filter((line) => line.length >= 32 && !line.startsWith('-----'));
  const secrets = new Map<string, string>([
    ['the provider key', providerKey], ['the NATS password', natsPassword], ['a wrong NATS password', wrongPassword], ['the development secret', stack.devSecret],
    ...bearers.map((bearer, i): [string, string] => [`bearer ${i}`, bearer]),
    // A token cut short is a secret too as long as its signature is there.
    ...bearers.flatMap((bearer, i): [string, string][] => { const signature = bearer.split('.')[2]; return signature === undefined ? [] : [[`signature of bearer ${i}`, signature]]; }),
    ...(await lines('master.key')).map((line): [string, string] => ['the master key', line]),
    ...(await lines('capability.key')).map((line): [string, string] => ['the capability key', line]),
  ]);
  assert.ok(secrets.size >= 18);
  for (const [where, content] of seen) {
    for (const [what, value] of secrets) {
      const at = content.indexOf(value);
      assert.equal(at, -1, `${what} is in ${where}: …${content.slice(Math.max(0, at - 200), at)}[here]`);
    }
    assert.equal(anyToken.exec(content)?.index, undefined, `a token is in ${where}`);
  }
  t.diagnostic(`${seen.size} places, ${[...seen.values()].reduce((sum, content) => sum + content.length, 0)} characters, ${secrets.size} secrets`);
});
