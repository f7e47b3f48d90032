/**
 * A client that reads slowly stops the vendor too: a real daemon and a vendor that counts what is taken of its stream, with the test in the
 * gateway's place, so that it decides about every byte of credit.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { chatRoutes } from '../../contracts/chat-routes.ts';
import { closeCodes } from '../../contracts/close.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import { connectLink, type Link } from '../../gateway/link.ts';
import { chatWorld, say, type ChatWorld } from '../harness/chat.ts';
import { silent } from '../harness/log.ts';
import { modelServer, openaiChunk, openaiDone, openaiUsage, sse, type Answer, type ModelServer } from '../harness/model-server.ts';
import { startPlatform, type Person, type TestPlatform } from '../harness/platform.ts';

const mebibyte = 1024 * 1024;
/** A piece of text whose event on the vendor's wire is so much longer. */
const padded = (content: string, bytes: number): string => `data: ${JSON.stringify({ id: 'c1', object: 'chat.completion.chunk', created: 1, model: 'm', padding: 'p'.repeat(bytes), choices: [{ index: 0, delta: { content }, finish_reason: null }] })}\n\n`;
/** Writes what the other side takes. */
const write = async (response: ServerResponse, text: string): Promise<void> => {
  if (!response.write(text)) await once(response, 'drain');
};

describe('slow chat client', () => {
  let platform: TestPlatform;
  let world: ChatWorld;
  let ada: Person;
  let vendor: ModelServer;
  let folder: string;
  let link: Link;
  let answer: Answer = () => assert.fail('the vendor was not to be asked');
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'troupe-chat-slow-'));
    await writeFile(join(folder, 'key'), 'vendor-key', { mode: 0o600 });
    vendor = await modelServer((request, response) => answer(request, response), (request, response) => answer(request, response));
    platform = await startPlatform(undefined, {
      daemons: 1, gateways: 1,
      daemon: { models: { default: 'm', registry: [{ id: 'm', provider: 'openai' }] }, providers: { openai: { base_url: `${vendor.url}/v1`, api_key_path: join(folder, 'key') } } },
    });
    world = await chatWorld(platform);
    ada = await world.person('ada@example.com');
    const [daemon] = platform.daemons;
    assert.ok(daemon !== undefined);
    const connected = Promise.withResolvers<void>();
    link = connectLink({ socketPath: daemon.socketPath, release: 'test', log: silent });
    link.onState((state) => { if (state.connected === 1) connected.resolve(); });
    if (link.state().connected !== 1) await connected.promise;
  });
  after(async () => {
    link.close();
    await world.stop();
    await platform.stop();
    await vendor.stop();
    await rm(folder, { recursive: true, force: true });
  });

  const ofKind = async (kind: string): Promise<StoredEvent[]> => (await world.journaled(`u-${ada.userId}`)).filter(({ k }) => k === kind);

  test('slow chat client - without credit the vendor\'s stream is not read on; with credit everything comes, in order', async () => {
    // More than the stream's window; then what may be read before the model is held; then events so large that no buffer on the way takes them all.
    const filling = Array.from({ length: 100 }, (_, i) => String.fromCodePoint(0x4e00 + i).repeat(1_000));
    const buffered = Array.from({ length: 135 }, (_, i) => `${String(i).padStart(4, '0')}${'b'.repeat(996)}`);
    const large = Array.from({ length: 24 }, (_, i) => `${String(i).padStart(4, '0')}${'c'.repeat(996)}`);
    const held = Promise.withResolvers<void>();
    let taken = 0;
    const told = Promise.withResolvers<void>();
    answer = async (_, response) => {
      sse(response);
      for (const text of filling) await write(response, openaiChunk({ content: text }));
      await held.promise;
      for (const text of buffered) await write(response, openaiChunk({ content: text }));
      for (const text of large) {
        await write(response, padded(text, mebibyte));
        taken += 1;
      }
      response.end(openaiChunk({}, 'stop') + openaiUsage(3, 4) + openaiDone);
      told.resolve();
    };
    let text = '';
    let owed = 0;
    let flows = false;
    const ended = Promise.withResolvers<number>();
    const stream = link.open(chatRoutes.completions, {
      token: ada.accessToken,
      body: JSON.stringify({ context: { ip: '127.0.0.1', user_agent: 'test' }, body: { model: 'm', messages: say('much'), stream: true } }),
      onTexts: (texts, bytes) => {
        for (const one of texts) text += one.toString('utf8');
        if (flows) stream.credit(bytes);
        else owed += bytes;
      },
      onClose: (code) => { ended.resolve(code); },
    });
    while ((await ofKind('CompletionPaced')).length === 0) await platform.api('GET', '/healthz');
    held.resolve();
    // Seen by asking something else, many times: nothing is taken any more.
    let standing = 0;
    for (let before = -1; standing < 100;) {
      await platform.api('GET', '/healthz');
      standing = before === taken ? standing + 1 : 0;
      before = taken;
    }
    assert.ok(taken <= 16, `${taken} MiB were taken for a client that reads nothing`);
    assert.ok(Buffer.byteLength(text) <= limits.linkInitialCreditBytes, `${Buffer.byteLength(text)} bytes without credit`);
    assert.equal((await ofKind('CompletionFinished')).length, 0);

    flows = true;
    stream.credit(owed);
    await told.promise;
    assert.equal(await ended.promise, closeCodes.normal.code);
    const chunks = text.slice(text.indexOf('data: ')).split('\n\n').filter((event) => event.startsWith('data: {')).map((event) => JSON.parse(event.slice(6)) as { choices: { delta: { content?: string } }[] });
    assert.equal(chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join(''), [...filling, ...buffered, ...large].join(''));
    assert.match(text, /data: \[DONE\]\n\n$/);
    const paced = (await ofKind('CompletionPaced')).map(({ d }) => d['held']);
    assert.deepEqual([paced[0], paced.at(-1), paced.every((one, i) => one !== paced[i - 1])], [true, false, true]);
    assert.equal((await ofKind('UsageMetered')).length, 1);
  });
});
