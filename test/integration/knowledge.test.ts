/**
 * Knowledge over the real surface: gateway, two daemons, NATS, the listener of deployments. What a post on one daemon changes is found through the
 * other; a killed daemon's index is there again without a document being lost; markdown blobs; refusals; other deployments; erasure.
 */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { z } from 'zod';
import { graphAnswer, indexedDocument, knowledgeDocument, searchAnswer } from '../../contracts/knowledge.ts';
import { startDeployment, type ServiceCall, type TestDeployment } from '../harness/deployment.ts';
import { envelopesOf } from '../harness/runtime.ts';

const refused = z.object({ error: z.object({ code: z.string(), message: z.string(), details: z.looseObject({ field: z.string().optional() }).optional() }) });

suite('knowledge over HTTP', { timeout: 240_000 }, () => {
  let on: TestDeployment;
  before(async () => {
    on = await startDeployment(undefined, { daemons: 2 });
  });
  after(() => on.stop());

  const post = async (path: string, content: string, call: ServiceCall = {}) => {
    const reply = await on.service('POST', '/v1/knowledge/documents', { json: { path, content }, ...call });
    assert.ok(reply.status === 201 || reply.status === 200, `${reply.status} ${reply.body}`);
    return { status: reply.status, ...indexedDocument.parse(reply.json) };
  };
  const search = async (q: string, call: ServiceCall & { limit?: number } = {}) => {
    const reply = await on.service('GET', `/v1/knowledge/search?q=${encodeURIComponent(q)}${call.limit === undefined ? '' : `&limit=${call.limit}`}`, call);
    assert.equal(reply.status, 200, reply.body);
    return searchAnswer.parse(reply.json).results;
  };
  const codeAt = async (method: 'GET' | 'POST' | 'DELETE', path: string, call: ServiceCall = {}): Promise<[number, string]> => {
    const reply = await on.service(method, path, call);
    return [reply.status, refused.parse(reply.json).error.code];
  };

  test('knowledge - a posted document is found by the next search, whichever daemon answers [KNO-001] [KNO-008]', async () => {
    for (let n = 0; n < 20; n++) {
      const { status, id } = await post(`turns/Turn ${n}.md`, `---\ntitle: Turn number ${n}\n---\nThe marker${n} stands here.`);
      assert.deepEqual([status, id], [201, `turns-turn-${n}`]);
      // The connection is new each time; the daemon that answers need not be the same.
      const results = await search(`marker${n}`);
      assert.deepEqual(results.map(({ id: found, title, excerpt }) => [found, title, excerpt]), [[id, `Turn number ${n}`, `The marker${n} stands here.`]]);
    }
    assert.equal((await post('turns/Turn 3.md', '---\ntitle: Turn number 3\n---\nThe marker3 stands here.')).status, 200);
    assert.equal((await search('marker3 stands', { limit: 5 })).length, 5);
  });

  test('knowledge - the graph of posted documents, by id and by path [KNO-012] [KNO-013]', async () => {
    await post('graph/A.md', '[[B#part|b]] and [[C]]');
    await post('graph/B.md', '[[C]]');
    await post('graph/C.md', '---\nrelated: "[[A]]"\n---\n');
    for (const node of ['graph-a', 'graph/A.md']) {
      const reply = await on.service('GET', `/v1/knowledge/graph?node=${encodeURIComponent(node)}&depth=2`);
      assert.deepEqual(graphAnswer.parse(reply.json), { root: 'graph-a', depth: 2, nodes: [
        { id: 'graph-a', title: 'A', depth: 0 }, { id: 'graph-b', title: 'B', depth: 1, edge: 'references' }, { id: 'graph-c', title: 'C', depth: 1, edge: 'references' },
      ] });
    }
  });

  test('knowledge - a document is read as it was posted and removed; malformed requests are invalid_argument [KNO-002] [KNO-003] [KNO-015] [KNO-018]', async () => {
    const content = '---\ntags: [x]\n---\n# Café\nno\u0000nsense \u2028 "quoted"\r\n';
    const { id } = await post('to/remove.md', content);
    const read = await on.service('GET', `/v1/knowledge/documents/${id}`);
    assert.equal(knowledgeDocument.parse(read.json).content, content);
    assert.equal((await on.service('DELETE', `/v1/knowledge/documents/${id}`)).status, 204);
    assert.deepEqual(await codeAt('GET', `/v1/knowledge/documents/${id}`), [404, 'node_not_found']);
    assert.deepEqual(await codeAt('DELETE', `/v1/knowledge/documents/${id}`), [404, 'node_not_found']);
    assert.deepEqual(await codeAt('GET', '/v1/knowledge/graph?node=nobody'), [404, 'node_not_found']);
    for (const path of ['search', 'search?q=', 'search?q=a&limit=101', 'search?q=a&limit=x', 'search?q=a&q=b', 'search?q=a&other=1', 'graph', 'graph?node=a&depth=6', 'graph?node=a&depth=0']) {
      assert.deepEqual(await codeAt('GET', `/v1/knowledge/${path}`), [400, 'invalid_argument'], path);
    }
    for (const json of [{}, [], { path: 'a.md' }, { path: '../a.md', content: '' }, { documents: [] }, { path: 'a.md', content: 1 }]) {
      assert.deepEqual(await codeAt('POST', '/v1/knowledge/documents', { json }), [400, 'invalid_argument'], JSON.stringify(json));
    }
    assert.deepEqual(await codeAt('POST', '/v1/knowledge/documents', { body: '{' }), [400, 'invalid_argument']);
    assert.deepEqual(await codeAt('POST', '/v1/knowledge/documents', { json: { path: 'a.md', content: 'x'.repeat(1024 * 1024 + 1) } }), [413, 'payload_too_large']);
    assert.deepEqual(await codeAt('GET', '/v1/knowledge/search?q=a', { token: null }), [401, 'unauthorized']);
  });

  test('knowledge - a blob of text/markdown is indexed under X-Document-Path, else under its hash; other blobs are not [KNO-007]', async () => {
    const headers = { 'content-type': 'text/markdown; charset=utf-8' };
    assert.equal((await on.service('POST', '/v1/blobs', { body: '# Puffin\nblobword', headers: { ...headers, 'x-document-path': 'birds/Puffin.md' } })).status, 201);
    const plain = await on.service('POST', '/v1/blobs', { body: 'another blobword', headers });
    assert.equal((await on.service('POST', '/v1/blobs', { body: 'third blobword', headers: { 'content-type': 'text/plain' } })).status, 201);
    const { hash } = z.object({ hash: z.string() }).parse(plain.json);
    assert.deepEqual((await search('blobword')).map(({ id }) => id).toSorted(), ['birds-puffin', hash.slice('sha256:'.length)].toSorted());
  });

  test('knowledge - another deployment finds and reads nothing of it', async () => {
    const other = await on.provision();
    const { id } = await post('private.md', 'hidden treasure');
    assert.deepEqual(await search('treasure', { token: other.key }), []);
    assert.deepEqual(await codeAt('GET', `/v1/knowledge/documents/${id}`, { token: other.key }), [404, 'node_not_found']);
    assert.equal((await search('treasure')).length, 1);
  });

  test('knowledge - the agent of a session searches and reads what its deployment knows', async () => {
    await post('handbook/Refunds.md', '# Refunds\nA quokka is refunded within 30 days.');
    const reply = await on.service('POST', '/v1/chat', {
      json: { session_id: 'asking', messages: [{ role: 'user', content: '/tool knowledge_search {"query":"quokka"}\n/tool knowledge_read {"id":"handbook-refunds"}' }] },
    });
    assert.equal(reply.status, 200, reply.body);
    const results = envelopesOf(reply.body).filter(({ kind }) => kind === 'ToolResult').map(({ payload }) => payload);
    assert.deepEqual(results.map((payload) => payload['is_error']), [false, false], JSON.stringify(results));
    assert.match(JSON.stringify(results), /"id":"handbook-refunds","title":"Refunds","score":[\d.]+,"excerpt":"Refunds A quokka is refunded within 30 days\."/);
    assert.match(JSON.stringify(results), /"path":"handbook\/Refunds\.md","content":"# Refunds\\nA quokka/);
  });

  test('knowledge - documents of many sizes, and of bytes that do not compress, come back as they went', async () => {
    const noise = Array.from({ length: 700_000 }, (_, i) => String.fromCharCode(33 + ((i * 7_919 + (i >> 3) * 104_729) % 90))).join('');
    for (const content of ['', 'x', noise]) {
      const { id } = await post(`sizes/${content.length}.md`, content);
      assert.equal(knowledgeDocument.parse((await on.service('GET', `/v1/knowledge/documents/${id}`)).json).content === content, true, String(content.length));
    }
  });

  test('knowledge - after both daemons were killed every document that was answered is found again', async () => {
    const documents = Array.from({ length: 200 }, (_, i) => ({ path: `kill/n${i}.md`, content: `surviving word${i}` }));
    for (let at = 0; at < documents.length; at += 50) {
      const reply = await on.service('POST', '/v1/knowledge/documents', { json: { documents: documents.slice(at, at + 50) } });
      assert.equal(reply.status, 201, reply.body);
    }
    assert.equal((await search('surviving', { limit: 100 })).length, 100);
    await Promise.all(on.daemons.map((daemon) => daemon.kill()));
    await Promise.all(on.daemons.map((daemon) => daemon.start()));
    for (const i of [0, 77, 199]) assert.deepEqual((await found(`word${i}`)).map(({ id }) => id), [`kill-n${i}`]);
  });
  /** Asked until the daemons are there again. */
  const found = async (q: string) => {
    for (;;) {
      const reply = await on.service('GET', `/v1/knowledge/search?q=${q}`);
      if (reply.status === 200) return searchAnswer.parse(reply.json).results;
      assert.ok(reply.status === 503 || reply.status === 504, reply.body);
    }
  };
});
