// A turn of a session followed from the journal and its live end: every event once and in order, wherever one passes into the other.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { withId } from '../../actors/daemon/deployment/chat-formats-turn.ts';
import { conversationOf, formatOf, lastEventOf, modelOf } from '../../actors/daemon/deployment/conversation.ts';
import { followTurn } from '../../actors/daemon/deployment/follow.ts';
import { openTail, type TailSource } from '../../actors/daemon/tail.ts';
import { mock } from '../../actors/providers/mock.ts';
import { createRegistry } from '../../actors/providers/registry.ts';
import { encodeCommit } from '../../actors/runtime/commit.ts';
import { createMemoryStores } from '../../actors/runtime/memory/stores.ts';
import { modelEntry } from '../../contracts/config.ts';
import type { Commit } from '../../contracts/event.ts';
import { runtimeChatBody, type RuntimeChatBody } from '../../contracts/runtime-routes.ts';
import { journalSubject, partitionOf } from '../../contracts/subjects.ts';

const partitions = 4;
const address = { org: 'o', type: 'session', key: 's' };
const subject = journalSubject(partitionOf(address, partitions), address);
const idOf = (n: number): string => `01${String(n).padStart(24, '0')}`;

describe('runtime follow', () => {
  it('gives the turn\'s events once and in order, however many commits came before, between and after the tail was opened', async () => {
    await fc.assert(fc.asyncProperty(fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 2, maxLength: 20 }), fc.nat(), fc.nat(), fc.nat(), async (sizes, openAt, readAt, startAt) => {
      const { journal, feed } = createMemoryStores();
      const source: TailSource = { journal, feed, partitions };
      const all = sizes.reduce((sum, size) => sum + size, 0);
      const from = 1 + (startAt % all);
      let n = 1;
      let seq = 0;
      const commit = async (size: number): Promise<void> => {
        const first = n;
        n += size;
        const ev = Array.from({ length: size }, (_, i): Commit['ev'][number] =>
          (first + i === all ? { id: idOf(all), k: 'RunFinished', d: { run_id: 'r' } } : { id: idOf(first + i), k: (first + i) % 3 === 0 ? '$epoch' : 'TextDelta', d: { run_id: 'r' } }));
        seq = await journal.append(subject, encodeCommit({ v: 1, e: 1, n: first, f: 1, c: 0, m: 0, p: seq, h: '', t: first, ev }), seq);
      };
      const opened = openAt % sizes.length;
      const read = opened + (readAt % (sizes.length - opened));
      for (const size of sizes.slice(0, opened)) await commit(size);
      const end = new AbortController();
      const tail = await openTail(source, address, end.signal);
      for (const size of sizes.slice(opened, read)) await commit(size);
      const got: string[] = [];
      const following = (async () => {
        for await (const events of followTurn(source, tail, address, { run_id: 'r', from: idOf(from), resumed: true })) got.push(...events.map(({ event }) => event.id));
      })();
      for (const size of sizes.slice(read)) await commit(size);
      await following;
      end.abort();
      const expected = Array.from({ length: all - from + 1 }, (_, i) => from + i).filter((number) => number === all || number % 3 !== 0).map(idOf);
      assert.deepEqual(got, expected);
    }), { numRuns: 200, seed: Number(process.env['SEED'] ?? 20_261_121) });
  });
});

describe('runtime request', () => {
  const registry = createRegistry({
    default: 'b', registry: ['a', 'b'].map((id) => modelEntry.parse({ id, provider: 'mock' })).concat(modelEntry.parse({ id: 'c', provider: 'openai' })),
  }, { mock: mock(), openai: mock() });

  it('names a model, a provider, both or none [RUN-005] [RUN-006]', () => {
    const of = (provider?: RuntimeChatBody['provider'], model?: string): string => modelOf(registry, { provider, model }).id;
    assert.deepEqual([of(), of('mock'), of('openai'), of(undefined, 'a'), of('mock', 'a'), of('openai', 'c')], ['b', 'b', 'c', 'a', 'a', 'c']);
    for (const [provider, model] of [['anthropic', undefined], ['openai', 'a'], [undefined, 'x']] as const) assert.throws(() => of(provider, model), { code: 'invalid_argument' });
  });

  it('names its format by query before Accept, by weight, else native [RUN-009] [RUN-010] [RUN-037]', () => {
    const type = (format: string): string => `application/vnd.troupe.${format}+event-stream`;
    assert.equal(formatOf('openai', type('anthropic')), 'openai');
    assert.equal(formatOf(undefined, type('anthropic')), 'anthropic');
    assert.equal(formatOf(undefined, `text/event-stream, ${type('openai')};q=0.5, ${type('ui_sdk')} ; q=0.9`), 'ui_sdk');
    assert.equal(formatOf(undefined, `${type('openai')};q=0, ${type('native')};q=0.1`), 'native');
    for (const accept of ['', '*/*', 'text/event-stream', `${type('openai')};q=0`]) assert.equal(formatOf(undefined, accept), 'native', accept);
    assert.throws(() => formatOf(undefined, type('xml')), { code: 'invalid_argument' });
  });

  it('takes what follows the last answer as new, systems as instructions, parts as texts', () => {
    const of = (messages: unknown) => conversationOf(runtimeChatBody.parse({ session_id: 's', messages }));
    const said = (role: string, content: unknown) => ({ role, content });
    assert.deepEqual(of([said('user', 'a')]), { earlier: [], content: 'a', system: undefined });
    assert.deepEqual(of([said('system', 'x'), said('developer', 'y'), said('user', 'a'), said('assistant', 'b'), said('user', 'c'), said('user', [{ type: 'text', text: 'd' }])]), {
      earlier: [{ role: 'user', text: 'a' }, { role: 'assistant', text: 'b', calls: [] }], content: 'c\n\nd', system: 'x\n\ny',
    });
    assert.deepEqual(of([
      said('user', 'a'), { role: 'assistant', content: null, tool_calls: [{ id: 't', type: 'function', function: { name: 'f', arguments: '{"n":1}' } }] }, { role: 'tool', tool_call_id: 't', content: 'r' }, said('user', 'b'),
    ]).earlier.slice(1), [
      { role: 'assistant', text: '', calls: [{ call_id: 't', name: 'f', arguments: { n: 1 } }] }, { role: 'tool', call_id: 't', name: 'f', text: 'r', is_error: false },
    ]);
    assert.equal(of([{ id: 'm', role: 'user', parts: [{ type: 'text', text: 'from parts' }] }]).content, 'from parts');
  });

  it('names its last event by a ULID or not at all', () => {
    assert.equal(lastEventOf(undefined), undefined);
    assert.equal(lastEventOf({ 'last-event-id': ' ' }), undefined);
    assert.equal(lastEventOf({ 'last-event-id': '01ARZ3NDEKTSV4RRFFQ69G5FAV' }), '01ARZ3NDEKTSV4RRFFQ69G5FAV');
    for (const bad of ['x', '81ARZ3NDEKTSV4RRFFQ69G5FAV', '01arz3ndektsv4rrffq69g5fav']) assert.throws(() => lastEventOf({ 'last-event-id': bad }), { code: 'invalid_argument' });
  });

  it('gets ids on the last frame of what an event says', () => {
    assert.equal(withId('data: a\n\n', 'I'), 'id: I\ndata: a\n\n');
    assert.equal(withId('event: x\ndata: a\n\ndata: b\n\n', 'I'), 'event: x\ndata: a\n\nid: I\ndata: b\n\n');
    assert.equal(withId('', 'I'), '');
  });
});
