/** Knowledge of a deployment on the real actor, handlers, reader and index thread, over memory stores. A crash is a thread that ends; a restart is another reader. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { z } from 'zod';
import { emptyLedger, holds, idFor, indexed, isKnown, removed, type Ledger } from '../../actors/knowledge/ledger.ts';
import { knowledge } from '../../actors/knowledge/knowledge.ts';
import { encodeText } from '../../actors/knowledge/shelf.ts';
import { distinctId } from '../../actors/knowledge/slug.ts';
import { builtinTools } from '../../actors/tools/index.ts';
import { knowledgeTools } from '../../actors/tools/knowledge.ts';
import { askBy } from '../../actors/daemon/platform/ask.ts';
import { knowledgeAddress } from '../../contracts/deployment.ts';
import { documentPath, documentsBody, graphAnswer, graphQuery, indexedDocument, knowledgeCommands, knowledgeDocument, searchAnswer, searchQuery } from '../../contracts/knowledge.ts';
import { limits } from '../../contracts/limits.ts';
import { deploymentId, knowledgeWorld, organizationId, type KnowledgeWorld, type TestKnowledge } from '../harness/knowledge.ts';
import { codeOf, createCluster, createHost } from '../harness/memory-host.ts';
import { draw, runSeed } from '../harness/seed.ts';
import { queryOf, vaultOf } from '../harness/vault.ts';

const listAnswer = z.object({ documents: z.array(z.object({ id: z.string(), path: z.string(), status: z.string() })) });
type Use = (daemon: TestKnowledge, world: KnowledgeWorld) => Promise<void>;
/** Runs a test with a daemon, and ends every daemon that was started. */
const withKnowledge = (use: Use, options: Parameters<KnowledgeWorld['start']>[0] = {}) => async (): Promise<void> => {
  const world = knowledgeWorld();
  const started: TestKnowledge[] = [];
  const tracked: KnowledgeWorld = {
    ...world,
    start: (more) => {
      const daemon = world.start(more);
      started.push(daemon);
      return daemon;
    },
  };
  try {
    await use(tracked.start(options), tracked);
  } finally {
    for (const daemon of started) await daemon.close();
  }
};
const post = async ({ call }: TestKnowledge, path: string, content: string) => {
  const { status, body } = await call('knowledge_index', { body: { path, content } });
  return { status, ...indexedDocument.parse(body) };
};
const postAll = async ({ call }: TestKnowledge, documents: readonly object[]) => {
  const { status, body } = await call('knowledge_index', { body: { documents } });
  return { status, ...listAnswer.parse(body) };
};
const search = async ({ call }: TestKnowledge, q: string, limit?: number, caller = {}) =>
  searchAnswer.parse((await call('knowledge_search', { query: { q, ...(limit === undefined ? {} : { limit: String(limit) }) }, caller })).body).results;
const found = async (daemon: TestKnowledge, q: string): Promise<string[]> => (await search(daemon, q)).map(({ id }) => id);

test('knowledge - a document that was posted is found at once, on any daemon, with title, score and excerpt [KNO-001] [KNO-008]', withKnowledge(async (daemon, world) => {
  const other = world.start();
  assert.deepEqual(await found(other, 'heron'), []);
  const posted = await post(daemon, 'birds/Grey Heron.md', '---\ntitle: The heron\n---\nIt stands in *shallow* water.');
  assert.deepEqual([posted.status, posted.id, posted.title, posted.indexed], [201, 'birds-grey-heron', 'The heron', true]);
  for (const one of [daemon, other]) {
    const [result, ...more] = await search(one, 'shallow heron');
    assert.deepEqual(more, []);
    assert.deepEqual({ ...result, score: 0 }, { id: 'birds-grey-heron', title: 'The heron', score: 0, excerpt: 'It stands in shallow water.' });
    assert.ok((result?.score ?? 0) > 0);
  }
}));

test('knowledge - indexing journals KnowledgeIndexed once for each change; the same again changes nothing [KNO-019]', withKnowledge(async (daemon, world) => {
  await post(daemon, 'a.md', 'one');
  const again = await post(daemon, './a.md', 'one');
  assert.deepEqual([again.status, again.indexed], [200, false]);
  await post(daemon, 'a.md', 'two');
  const events = (await world.events()).filter(({ k }) => !k.startsWith('$'));
  assert.deepEqual(events.map(({ k, d }) => [k, d['id'], d['path'], d['size']]), [['KnowledgeIndexed', 'a', 'a.md', 3], ['KnowledgeIndexed', 'a', 'a.md', 3]]);
  assert.deepEqual(await found(daemon, 'one'), []);
  assert.deepEqual(await found(daemon, 'two'), ['a']);
}));

test('knowledge - search gives 10 results by default, as many as asked for up to 100, and refuses more and an empty query [KNO-002] [KNO-003]', withKnowledge(async (daemon) => {
  for (let n = 0; n < 120; n += 60) await postAll(daemon, Array.from({ length: 60 }, (_, i) => ({ path: `n${n + i}.md`, content: 'apple' })));
  assert.equal((await search(daemon, 'apple')).length, 10);
  assert.equal((await search(daemon, 'apple', 3)).length, 3);
  assert.equal((await search(daemon, 'apple', 100)).length, 100);
  for (const query of [{}, { q: '' }, { q: 'a', limit: '101' }, { q: 'a', limit: '0' }, { q: 'a', limit: '1.5' }, { q: 'a', more: '1' }, { q: 'x'.repeat(1_001) }]) assert.equal(searchQuery.safeParse(query).success, false, JSON.stringify(query));
}));

test('knowledge - graph has depth 1 by default and at most 5; an unknown node is node_not_found [KNO-012] [KNO-015] [KNO-018]', withKnowledge(async (daemon) => {
  await postAll(daemon, Array.from({ length: 8 }, (_, i) => ({ path: `n${i}.md`, content: `[[n${i + 1}#Part|next]]` })));
  const graph = async (query: object) => graphAnswer.parse((await daemon.call('knowledge_graph', { query })).body);
  assert.deepEqual((await graph({ node: 'n0' })).nodes.map(({ id }) => id), ['n0', 'n1']);
  assert.deepEqual((await graph({ node: 'n0.md', depth: '5' })).nodes.map(({ depth }) => depth), [0, 1, 2, 3, 4, 5]);
  assert.equal(await codeOf(daemon.call('knowledge_graph', { query: { node: 'nobody' } })), 'node_not_found');
  for (const query of [{ node: 'n0', depth: '6' }, { node: 'n0', depth: '0' }, { node: 'n0', depth: 'x' }, {}]) assert.equal(graphQuery.safeParse(query).success, false, JSON.stringify(query));
}));

test('knowledge - a document can be read as it was posted, and removed; then it is nowhere, and its text is gone', withKnowledge(async (daemon) => {
  const content = '---\ntags: [t]\naliases: [Al]\nstatus: new\n---\n# A\ntext';
  await post(daemon, 'a.md', content);
  const { body } = await daemon.call('knowledge_read', { params: ['a'] });
  const document = knowledgeDocument.parse(body);
  assert.deepEqual([document.content, document.tags, document.aliases, document.facts, document.title], [content, ['t'], ['Al'], ['status: new'], 'A']);
  assert.equal((await daemon.call('knowledge_remove', { params: ['a'] })).status, 204);
  assert.deepEqual(await found(daemon, 'text'), []);
  assert.equal(await codeOf(daemon.call('knowledge_read', { params: ['a'] })), 'node_not_found');
  assert.equal(await codeOf(daemon.call('knowledge_remove', { params: ['a'] })), 'node_not_found');
  assert.equal(await codeOf(daemon.call('knowledge_read', { params: ['../a'] })), 'node_not_found');
  assert.equal(daemon.counts.drops.length, 1);
  assert.equal((await post(daemon, 'a.md', content)).status, 201);
}));

test('knowledge - several at once: new ones are indexed, known ones told, those whose content is not there are missing', withKnowledge(async (daemon) => {
  const first = await post(daemon, 'a.md', 'alpha');
  const { status, documents } = await postAll(daemon, [{ path: 'a.md', hash: first.hash }, { path: 'b.md', hash: first.hash }, { path: 'c.md', content: 'gamma' }, { path: 'x/a.md', content: 'alpha' }]);
  assert.deepEqual([status, ...documents.map(({ id, status: became }) => [id, became])], [201, ['a', 'known'], ['b', 'missing'], ['c', 'indexed'], ['x-a', 'indexed']]);
  assert.equal((await postAll(daemon, [{ path: 'a.md', hash: first.hash }])).status, 200);
  assert.deepEqual((await found(daemon, 'alpha')).toSorted(), ['a', 'x-a']);
}));

test('knowledge - paths have one form; what is no path, too much or named twice is refused before anything is done', async () => {
  for (const [from, to] of [['./a.md', 'a.md'], ['/a/b.md', 'a/b.md'], ['a\\b.md', 'a/b.md'], ['e\u0301.md', '\u00e9.md']] as const) assert.equal(documentPath.parse(from), to);
  for (const path of ['', '.', '/', 'a/../b.md', 'a//b.md', '../a.md', 'a\nb.md', 'x'.repeat(513), '\ud800.md']) assert.equal(documentPath.safeParse(path).success, false, JSON.stringify(path));
  const one = { path: 'a.md', content: '' };
  for (const body of [{}, { path: 'a.md' }, { ...one, more: 1 }, { documents: [] }, { documents: [one, { ...one, path: './a.md' }] }, { documents: [{ path: 'a.md', hash: 'sha256:1' }] }, { path: 'a.md', content: '\udc00' },
    { documents: Array.from({ length: 65 }, (_, i) => ({ path: `${i}.md`, content: '' })) }]) assert.equal(documentsBody.safeParse(body).success, false, JSON.stringify(body).slice(0, 80));
  await withKnowledge(async (daemon, world) => {
    assert.equal(await codeOf(daemon.call('knowledge_index', { body: { path: 'a.md', content: 'x'.repeat(limits.knowledgeDocumentMaxBytes + 1) } })), 'payload_too_large');
    assert.equal(await codeOf(daemon.call('knowledge_index', { body: { documents: [one, { path: 'b.md', content: 'é'.repeat(limits.knowledgeDocumentMaxBytes / 2 + 1) }] } })), 'payload_too_large');
    assert.deepEqual(await world.events(), []);
    assert.equal((await post(daemon, 'a.md', 'x'.repeat(limits.knowledgeDocumentMaxBytes))).size, limits.knowledgeDocumentMaxBytes);
  })();
});

test('knowledge - two paths of one slug get two ids, and keep them [KNO-011]', withKnowledge(async (daemon, world) => {
  assert.equal((await post(daemon, 'a b.md', 'first')).id, 'a-b');
  assert.equal((await post(daemon, 'a-b.md', 'second')).id, distinctId('a-b.md'));
  assert.equal((await post(daemon, 'a b.md', 'first again')).id, 'a-b');
  await daemon.call('knowledge_remove', { params: ['a-b'] });
  assert.equal((await post(daemon, 'a-b.md', 'second again')).id, distinctId('a-b.md'));
  assert.equal((await post(daemon, 'A_b.md', 'third')).id, 'a-b');
  const ids = (await world.events()).filter(({ k }) => k === 'KnowledgeIndexed').map(({ d }) => `${String(d['path'])} ${String(d['id'])}`);
  assert.equal(new Set(ids).size, 3);
}));

test('knowledge - a markdown blob is indexed under its X-Document-Path, else under its hash; one that is too large or no text is not [KNO-007]', withKnowledge(async (daemon) => {
  const whose = { organizationId, deploymentId };
  const hash = `sha256:${'ab'.repeat(32)}`;
  assert.equal(await daemon.markdown(whose, hash, 'walrus one', undefined), true);
  assert.equal(await daemon.markdown(whose, hash, 'walrus two', 'sea/F%C3%BC%C3%9Fe.md'), true);
  assert.equal(await daemon.markdown(whose, hash, 'walrus three', '../bad%'), true);
  assert.deepEqual((await found(daemon, 'walrus')).toSorted(), ['ab'.repeat(32), `sea-fu-e-${distinctId('sea/Füße.md').slice(-8)}`].toSorted());
  assert.equal(await daemon.markdown(whose, hash, undefined, 'a.md'), false);
  assert.equal(await daemon.markdown(whose, hash, 'x'.repeat(limits.knowledgeDocumentMaxBytes + 1), 'a.md'), false);
}));

test('knowledge - one deployment sees nothing of another, nor one organization of another\'s', withKnowledge(async (daemon) => {
  await post(daemon, 'a.md', 'secret');
  const others = [{ deploymentId: 'dep_01jd0000000000000000000001' }, { organizationId: 'org_01jd0000000000000000000001' }];
  for (const caller of others) {
    assert.deepEqual(await search(daemon, 'secret', 10, caller), []);
    assert.equal(await codeOf(daemon.call('knowledge_read', { params: ['a'], caller })), 'node_not_found');
    assert.equal(await codeOf(daemon.call('knowledge_graph', { query: { node: 'a' }, caller })), 'node_not_found');
    assert.equal(await codeOf(daemon.call('knowledge_remove', { params: ['a'], caller })), 'node_not_found');
  }
  assert.deepEqual(await found(daemon, 'secret'), ['a']);
}));

test('knowledge - a restart reads no document again that the snapshot holds, and of the others the last version of each', withKnowledge(async (daemon, world) => {
  for (let n = 0; n < 120; n += 60) await postAll(daemon, Array.from({ length: 60 }, (_, i) => ({ path: `n${n + i}.md`, content: `apple ${n + i}` })));
  await daemon.reader.flush();
  assert.equal(daemon.counts.saves, 1);
  const second = world.start();
  assert.equal((await search(second, 'apple', 100)).length, 100);
  assert.deepEqual(await found(second, '77'), ['n77']);
  assert.equal(second.counts.reads, 0);
  await post(daemon, 'n1.md', 'pear one');
  await post(daemon, 'n1.md', 'pear two');
  await post(daemon, 'new.md', 'pear three');
  await daemon.call('knowledge_remove', { params: ['n2'] });
  await daemon.close();
  const third = world.start();
  assert.deepEqual((await found(third, 'pear')).toSorted(), ['n1', 'new']);
  assert.deepEqual(await found(third, 'one'), []);
  assert.equal(third.counts.reads, 2);
  assert.equal(await codeOf(third.call('knowledge_read', { params: ['n2'] })), 'node_not_found');
}));

test('knowledge - a snapshot is written by itself after enough changes; one that is damaged is made anew', withKnowledge(async (daemon, world) => {
  const shelf = world.shelves(organizationId, deploymentId);
  await postAll(daemon, Array.from({ length: 20 }, (_, i) => ({ path: `n${i}.md`, content: 'apple' })));
  await daemon.saved;
  const bytes = await shelf.load();
  assert.ok(bytes !== undefined);
  await shelf.save(bytes.with(100, (bytes[100] ?? 0) ^ 255));
  const second = world.start();
  assert.equal((await search(second, 'apple', 100)).length, 20);
  assert.equal(second.counts.reads, 20);
  assert.deepEqual(second.log.lines.map(({ level, text }) => [level, text]), [['warn', 'a snapshot of an index cannot be read; it is made anew']]);
}, { snapshotEvery: 10 }));

test('knowledge - texts that were replaced are deleted, the others are not', withKnowledge(async (daemon, world) => {
  await post(daemon, 'a.md', 'one');
  await post(daemon, 'b.md', 'kept');
  await found(daemon, 'one');
  await post(daemon, 'a.md', 'two');
  await post(daemon, 'a.md', 'three');
  await found(daemon, 'three');
  const refs = (await world.events()).filter(({ k }) => k === 'KnowledgeIndexed').map(({ d }) => String(d['ref']));
  const [one, kept, two, three] = refs;
  assert.deepEqual(daemon.counts.drops.toSorted(), [one, two].toSorted());
  const shelf = world.shelves(organizationId, deploymentId);
  assert.ok(await shelf.get(kept ?? '') !== undefined && await shelf.get(three ?? '') !== undefined);
}));

test('knowledge - what is lost of a text is said, and its document is found by its title', withKnowledge(async (daemon, world) => {
  await post(daemon, 'Title words.md', 'body words');
  await post(daemon, 'b.md', 'body words');
  await post(daemon, 'Altered.md', 'body words');
  assert.equal((await found(daemon, 'body')).length, 3);
  const [lost = '', , altered = ''] = (await world.events()).filter(({ k }) => k === 'KnowledgeIndexed').map(({ d }) => String(d['ref']));
  const shelf = world.shelves(organizationId, deploymentId);
  await shelf.drop(lost);
  await shelf.put(altered, await encodeText('body of another'));
  const second = world.start();
  assert.deepEqual(await found(second, 'body'), ['b']);
  assert.deepEqual(await found(second, 'title'), ['title-words']);
  assert.deepEqual(await found(second, 'altered another'), ['altered']);
  assert.deepEqual(second.log.lines.map(({ level, text }) => [level, text]), [['error', 'the text of a document is lost'], ['error', 'the text of a document is lost']]);
  for (const id of ['title-words', 'altered']) assert.equal(await codeOf(second.call('knowledge_read', { params: [id] })), 'journal_unavailable');
}));

test('knowledge - a thread that does not answer in time is ended, and who waits is refused', withKnowledge(async (daemon) => {
  // No thread begins and answers within a millisecond.
  assert.equal(await codeOf(daemon.indexer.ask('titles', { documents: [{ path: 'a.md', content: 'x'.repeat(1_000_000) }] })), 'overloaded');
  assert.equal(daemon.indexer.generation, 1);
  assert.deepEqual(daemon.log.lines.map(({ level, text }) => [level, text]), [['error', 'the index thread ended; its indexes are read again']]);
}, { askMs: 1 }));

test('knowledge - a snapshot is written while other asks keep coming', withKnowledge(async ({ indexer }) => {
  const event = { id: 'a', path: 'a.md', title: 'a', hash: `sha256:${'0'.repeat(64)}`, size: 1, ref: '01jd0000000000000000000000' };
  await indexer.ask('apply', { index: 'x', removed: [], changes: [{ event, content: 'apple' }] });
  let saved = false;
  let served = 0;
  const saving = indexer.ask('save', { index: 'x', place: { seq: 1, number: 1 } }).then(() => { saved = true; });
  // Each is work enough for the next to wait when it is done, as in an import.
  const documents = [{ path: 'a.md', content: '- a: b [[c]]\n'.repeat(8_000) }];
  await Promise.all(Array.from({ length: 4 }, async () => {
    for (; !saved && served < 400; served++) await indexer.ask('titles', { documents });
  }));
  await saving;
  assert.ok(served < 400, `${served} other asks were served first`);
}));

test('knowledge - an index that is lost with its thread is there again for the next search', withKnowledge(async (daemon) => {
  await post(daemon, 'a.md', 'apple');
  assert.deepEqual(await found(daemon, 'apple'), ['a']);
  await daemon.indexer.end('as if it had hung');
  assert.equal(daemon.indexer.generation, 1);
  assert.deepEqual(await found(daemon, 'apple'), ['a']);
  assert.equal(daemon.log.lines.filter(({ level }) => level === 'error').length, 1);
}));

test('knowledge - above their bound indexes are dropped, the least recently used first, and come back from their snapshots', withKnowledge(async (daemon) => {
  const callers = Array.from({ length: 3 }, (_, i) => ({ deploymentId: `dep_01jd000000000000000000000${i}` }));
  for (const caller of callers) {
    await daemon.call('knowledge_index', { body: { documents: Array.from({ length: 20 }, (_, i) => ({ path: `n${i}.md`, content: `apple ${caller.deploymentId}` })) }, caller });
    assert.equal((await search(daemon, 'apple', 100, caller)).length, 20);
  }
  const before = daemon.counts.loads;
  for (const caller of callers) assert.equal((await search(daemon, caller.deploymentId, 100, caller)).length, 20);
  // Each was dropped when the next one came.
  assert.equal(daemon.counts.loads - before, 3);
}, { indexesMaxBytes: 1 }));

test('knowledge ledger - keeps count and bytes, and 20,000 documents stay far below a snapshot\'s bound', () => {
  let ledger: Ledger = emptyLedger();
  const document = (n: number, content: string) => ({ id: idFor(ledger, `folder ${n}/note.md`), path: `folder ${n}/note.md`, hash: `sha256:${Buffer.from(content.padEnd(32)).toString('hex').slice(0, 64)}`, size: content.length });
  for (let n = 0; n < limits.knowledgeDocumentsMax; n++) ledger = indexed(ledger, document(n, 'x'));
  assert.deepEqual([ledger.documents, ledger.bytes], [20_000, 20_000]);
  assert.ok(JSON.stringify(ledger).length < limits.commitMaxBytes - 100_000);
  const one = document(7, 'x');
  assert.equal(isKnown(ledger, one.id, one.path, one.hash), true);
  assert.equal(isKnown(ledger, one.id, 'folder-7/note.md', one.hash), false);
  ledger = indexed(ledger, { ...document(7, 'other'), size: 1_000_000 });
  assert.deepEqual([ledger.documents, ledger.bytes], [20_000, 1_019_999]);
  assert.equal(isKnown(ledger, one.id, one.path, one.hash), false);
  ledger = removed(removed(ledger, one.id), one.id);
  assert.deepEqual([ledger.documents, ledger.bytes, holds(ledger, one.id)], [19_999, 19_999, false]);
});

test('knowledge actor - no more documents and bytes than a deployment may hold; a refused list changes nothing', async () => {
  const host = createHost(createCluster(), { definitions: [knowledge()] });
  const ask = askBy({ ask: (message) => host.engine.deliver(message) }, knowledgeCommands);
  const address = knowledgeAddress(organizationId, deploymentId);
  const document = (n: number, size = 1) => ({ path: `${n}.md`, title: '', hash: `sha256:${String(n).padStart(64, '0')}`, size, ref: '01jd0000000000000000000000' });
  for (let n = 0; n < limits.knowledgeDocumentsMax; n += 50) await ask(address, 'index', { documents: Array.from({ length: 50 }, (_, i) => document(n + i)) });
  assert.equal(await codeOf(ask(address, 'index', { documents: [document(1, 2), document(20_000)] })), 'payload_too_large');
  assert.deepEqual(await ask(address, 'measure', {}), { documents: 20_000, bytes: 20_000 });
  assert.deepEqual((await ask(address, 'index', { documents: [{ ...document(1), hash: `sha256:${'f'.repeat(64)}`, size: 9 }] })).documents, [{ id: '1', indexed: true }]);
  assert.deepEqual(await ask(address, 'measure', {}), { documents: 20_000, bytes: 20_008 });
  // Twice at once: the second is told that it is there.
  assert.deepEqual((await ask(address, 'index', { documents: [{ ...document(1), hash: `sha256:${'f'.repeat(64)}`, size: 9 }] })).documents, [{ id: '1', indexed: false }]);
});

test('knowledge tools - search and read what their own deployment knows, and are no tools elsewhere', withKnowledge(async (daemon) => {
  await post(daemon, 'a.md', `# Apple\n${'word '.repeat(10_000)}`);
  const [searching, reading] = knowledgeTools(daemon.reader);
  assert.ok(searching !== undefined && reading !== undefined);
  const context = { signal: new AbortController().signal, id: 'call', now: () => 0, agent: () => Promise.reject(new Error('not asked')) };
  const deployment = { org: organizationId, id: deploymentId, session_id: 's', remember: () => Promise.resolve(''), ask: () => Promise.reject(new Error('not asked')) };
  const { results } = searchAnswer.parse(await searching.run({ query: 'apple' }, { ...context, deployment }));
  assert.deepEqual(results.map(({ id }) => id), ['a']);
  const read = z.object({ content: z.string(), cut: z.boolean(), of_bytes: z.int() }).parse(await reading.run({ id: 'a' }, { ...context, deployment }));
  assert.equal(Buffer.byteLength(read.content), limits.knowledgeReadMaxBytes);
  assert.equal(read.of_bytes, 50_008);
  assert.equal(await codeOf(searching.run({ query: 'apple' }, context)), 'tool_not_found');
  assert.equal(await codeOf(reading.run({ id: 'b' }, { ...context, deployment })), 'node_not_found');
  assert.equal(builtinTools({ fetchAllow: [] }).has('knowledge_search'), false);
}));

test('knowledge - 3,000 notes of installed packages\' text: those drawn are found by title and tag, and a restart answers alike without reading one', { timeout: 240_000 }, async (t) => {
  const random = draw(runSeed());
  t.diagnostic(`TROUPE_SEED=${random.seed}`);
  const { notes } = vaultOf(3_000, random.seed);
  await withKnowledge(async (daemon, world) => {
    for (let at = 0; at < notes.length; at += limits.knowledgeBatchMax) assert.equal((await postAll(daemon, notes.slice(at, at + limits.knowledgeBatchMax))).status, 201);
    await daemon.reader.flush();
    const second = world.start();
    for (let n = 0; n < 100; n++) {
      const i = random.int(0, notes.length - 1);
      // Its number stands in no other title; in a text it counts less.
      assert.equal((await search(second, `note ${i}`))[0]?.title, `Note ${i}`);
      assert.ok((await search(second, `topic${i % 401}`, 10)).every(({ title }) => Number(title.slice('Note '.length)) % 401 === i % 401));
      const query = queryOf(notes, random);
      assert.deepEqual(await search(second, query, 50), await search(daemon, query, 50), query);
    }
    // Links are drawn: a note may reach few others, twenty notes do not all.
    const graphs: z.output<typeof graphAnswer>[] = [];
    for (const { path } of notes.slice(0, 20)) graphs.push(graphAnswer.parse((await second.call('knowledge_graph', { query: { node: path, depth: '5' } })).body));
    assert.ok(graphs.some(({ nodes }) => nodes.length > 20) && graphs.every(({ nodes }) => nodes.every(({ depth, edge }) => (depth === 0) === (edge === undefined))));
    assert.equal(second.counts.reads, 0);
  })();
});
