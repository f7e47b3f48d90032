/** The gateway's HTTP routes over real TLS, with a fake daemon behind the link: bodies, statuses, error envelopes, upstream faults. */
import assert from 'node:assert/strict';
import { connect } from 'node:tls';
import { after, before, describe, test } from 'node:test';
import { frameType } from '../../contracts/link.ts';
import { errors } from '../../contracts/errors.ts';
import { systemClock } from '../../gateway/clock.ts';
import { linked, startEdge, type Edge, type Reply } from '../harness/gateway.ts';
import type { PeerRequest } from '../harness/peer.ts';

const bootstrapPath = '/troupe/v1/auth/bootstrap';
const createPath = '/v1/agent/create_session';
const wide = { limits: { per_user_capacity: 10_000, per_ip_capacity: 10_000 } };

const bodyOf = (reply: Reply): Record<string, unknown> => {
  assert.ok(typeof reply.json === 'object' && reply.json !== null, `not an object: ${reply.text}`);
  return { ...reply.json };
};
const fails = (reply: Reply, status: number, code: string): Record<string, unknown> => {
  assert.equal(reply.status, status, reply.text);
  const body = bodyOf(reply);
  assert.equal(body['error'], code);
  return body;
};

describe('gateway http', () => {
  let edge: Edge;
  let token: string;
  let asked: PeerRequest[] = [];

  before(async () => {
    edge = await startEdge({ config: wide });
    token = await edge.issuer.token('alice');
    edge.peer.on.request = (request) => {
      asked.push(request);
      if (request.route?.id === 'health') request.answer(200, 'OK');
      else if (request.route?.id === 'mint_session_cap') request.answer(200, {});
      else if (request.route?.id === 'create_session') request.answer(201, { sid: 'a'.repeat(26) });
      else request.answer(200, {});
    };
  });
  after(() => edge.stop());

  const create = (body: unknown): Promise<Reply> => {
    asked = [];
    return edge.call(createPath, { token, body });
  };
  const bootstrap = (body: unknown): Promise<Reply> => edge.call(bootstrapPath, { token, body });

  test('gateway http - healthz asks the daemon and answers OK without a token [GWH-001]', async () => {
    asked = [];
    const reply = await edge.call('/healthz');
    assert.deepEqual([reply.status, reply.text], [200, 'OK']);
    assert.deepEqual(asked.map((request) => [request.route?.id, request.token]), [['health', '']]);
  });

  test('gateway http - bootstrap gives a capability of 900 s whose expires_at is its exp [GWH-003] [GWH-004]', async () => {
    const reply = await bootstrap({ user_id: 'alice' });
    assert.equal(reply.status, 200);
    const body = bodyOf(reply);
    assert.deepEqual(Object.keys(body).sort(), ['access_token', 'expires_at', 'expires_in', 'token_type', 'user_id']);
    assert.equal(body['token_type'], 'Bearer');
    assert.equal(body['user_id'], 'alice');
    assert.equal(body['expires_in'], 900);
    const claims: unknown = JSON.parse(Buffer.from(String(body['access_token']).split('.')[1] ?? '', 'base64url').toString('utf8'));
    assert.ok(typeof claims === 'object' && claims !== null && 'exp' in claims && typeof claims.exp === 'number');
    assert.equal(body['expires_at'], new Date(claims.exp * 1_000).toISOString());
  });

  test('gateway http - bootstrap for another user is refused and mints nothing [GWH-005]', async () => {
    const body = fails(await bootstrap({ user_id: 'bob' }), 403, 'user_id_mismatch');
    assert.equal(body['access_token'], undefined);
  });

  test('gateway http - bootstrap refuses unknown, missing and ill-typed fields with 422 [GWH-006]', async () => {
    for (const body of [{ user_id: 'alice', extra: 1 }, {}, { user_id: 7 }, [], null, 'alice', { user_id: null }]) {
      const reply = await bootstrap(JSON.stringify(body));
      assert.equal(fails(reply, 422, 'validation_error')['access_token'], undefined);
    }
  });

  test('gateway http - bootstrap checks user_id by characters [GWH-032]', async () => {
    for (const id of ['', 'x'.repeat(129), 'a\u0000b', 'a\nb', 'a\u007fb', 'a\u0085b']) {
      assert.equal(fails(await bootstrap({ user_id: id }), 400, 'bad_user_id')['access_token'], undefined);
    }
    for (const id of ['x'.repeat(128), '\u{1F600}'.repeat(128)]) {
      const own = await edge.issuer.token(id);
      assert.equal((await edge.call(bootstrapPath, { token: own, body: { user_id: id } })).status, 200);
    }
  });

  test('gateway http - create_session forwards exactly the checked body, optional strings included [GWH-008]', async () => {
    const body = { user_id: 'alice', project_id: 'p', label: 'l', resume_sid: 'b'.repeat(26), model: 'm' };
    assert.equal((await create(body)).status, 201);
    assert.deepEqual(asked.map((request) => [request.route?.id, request.json]), [['create_session', body]]);
  });

  test('gateway http - create_session with text that is not JSON gets 400 and reaches no daemon [GWH-012]', async () => {
    for (const text of ['{', '', '{"user_id": "alice",}', Buffer.from([0x22, 0xff, 0x22])]) fails(await create(text), 400, 'bad_request');
    assert.deepEqual(asked, []);
  });

  test('gateway http - create_session with an unknown field gets 422 and creates nothing [GWH-013]', async () => {
    fails(await create({ user_id: 'alice', project_id: 'p', admin: true }), 422, 'validation_error');
    fails(await create('{"user_id":"alice","project_id":"p","__proto__":{"x":1}}'), 422, 'validation_error');
    assert.deepEqual(asked, []);
  });

  test('gateway http - create_session with a missing or ill-typed field gets 422 naming it [GWH-014]', async () => {
    for (const [body, path] of [
      [{ user_id: 'alice' }, 'project_id'], [{ project_id: 'p' }, 'user_id'], [{ user_id: 1, project_id: 'p' }, 'user_id'],
      [{ user_id: 'alice', project_id: null }, 'project_id'], [{ user_id: 'alice', project_id: 'p', model: 3 }, 'model'],
      [{ user_id: 'alice', project_id: 'p', label: {} }, 'label'], [{ user_id: 'alice', project_id: 'p', resume_sid: [] }, 'resume_sid'],
    ] as const) {
      const { issues } = fails(await create(body), 422, 'validation_error');
      assert.match(JSON.stringify(issues), new RegExp(`"path":"${path}"`));
    }
    assert.deepEqual(asked, []);
  });

  test('gateway http - create_session for another user gets 403 [GWH-015]', async () => {
    fails(await create({ user_id: 'bob', project_id: 'p' }), 403, 'user_id_mismatch');
    assert.deepEqual(asked, []);
  });

  test('gateway http - create_session checks user_id: empty, length, control characters [GWH-016] [GWH-017] [GWH-018]', async () => {
    for (const id of ['', 'x'.repeat(129), 'a\u0001', 'a\tb', '\u009f']) fails(await create({ user_id: id, project_id: 'p' }), 400, 'bad_user_id');
    const long = 'x'.repeat(128);
    asked = [];
    const reply = await edge.call(createPath, { token: await edge.issuer.token(long), body: { user_id: long, project_id: 'p' } });
    assert.equal(reply.status, 201);
    assert.equal(asked.length, 1);
  });

  test('gateway http - project_id and label are 1-128 characters without control characters [GWH-019]', async () => {
    for (const bad of ['', 'x'.repeat(129), 'a\u0007']) {
      fails(await create({ user_id: 'alice', project_id: bad }), 400, 'bad_request');
      fails(await create({ user_id: 'alice', project_id: 'p', label: bad }), 400, 'bad_request');
    }
    for (const good of ['x', 'x'.repeat(128), 'é'.repeat(128)]) assert.equal((await create({ user_id: 'alice', project_id: good, label: good })).status, 201);
  });

  test('gateway http - a list\'s query is checked and forwarded; the caller cannot name another user', async () => {
    const list = (query: string): Promise<Reply> => {
      asked = [];
      return edge.call(`/v1/agent/sessions${query}`, { method: 'GET', token });
    };
    assert.equal((await list('?limit=100&cursor=a%2Bb')).status, 200);
    assert.deepEqual(asked.map((request) => [request.route?.id, request.json]), [['list_sessions', { limit: '100', cursor: 'a+b' }]]);
    assert.equal((await list('')).status, 200);
    assert.deepEqual(asked.map((request) => request.json), [{}]);
    for (const query of ['?limit=101', '?limit=0', '?limit=ten', '?limit=5&limit=6', '?cursor=', `?cursor=${'c'.repeat(1_025)}`, '?user_id=bob', '?org=acme', '?__proto__=1']) {
      fails(await list(query), 400, 'bad_request');
      assert.deepEqual(asked, [], query);
    }
    assert.equal((await edge.call('/v1/agent/sessions', { method: 'GET' })).status, 401);
  });

  test('gateway http - every error has the edge\'s shape and codes [GWH-026] [GWH-028]', async () => {
    const capability = String(bodyOf(await bootstrap({ user_id: 'alice' }))['access_token']);
    const session = await edge.call('/custody/mint_session_cap', { token: capability, body: { user_id: 'alice' } });
    const narrow = String(bodyOf(session)['token']);
    const seen = new Map<number, Set<unknown>>();
    for (const reply of [
      await edge.call('/nowhere'), await edge.call(createPath, { body: {} }), await create({ user_id: 'bob', project_id: 'p' }),
      await create('{'), await create({}), await edge.call(createPath, { token: capability, body: {} }),
      await edge.call('/custody/mint_session_cap', { token: narrow, body: { user_id: 'alice' } }),
    ]) {
      const body = bodyOf(reply);
      assert.equal(reply.headers['content-type'], 'application/json');
      assert.equal(typeof body['error'], 'string');
      assert.equal(typeof body['message'], 'string');
      seen.set(reply.status, (seen.get(reply.status) ?? new Set()).add(body['error']));
    }
    assert.deepEqual(seen.get(401), new Set(['unauthorized']));
    assert.deepEqual(seen.get(403), new Set(['user_id_mismatch', 'wrong_audience', 'scope_insufficient']));
  });

  test('gateway http - a 400 carries only the six codes of the edge, whatever code upstream gave [GWH-027]', async () => {
    const allowed = new Set(['bad_request', 'bad_user_id', 'bad_digest', 'bad_assertion', 'bad_attestation', 'bad_bearer']);
    const codes = [...Object.entries(errors).filter(([, entry]) => entry.http === 400).map(([code]) => code), 'insufficient_funds'];
    const before = edge.peer.on.request;
    try {
      for (const code of codes) {
        edge.peer.on.request = (request) => request.answer(400, { code, message: 'No.' });
        const reply = await create({ user_id: 'alice', project_id: 'p' });
        assert.equal(reply.status, 400);
        const body = bodyOf(reply);
        assert.ok(allowed.has(String(body['error'])), `${code} became ${String(body['error'])}`);
        if (!allowed.has(code)) assert.equal(body['reason'], code);
      }
    } finally {
      edge.peer.on.request = before;
    }
  });

  test('gateway http - an unknown path or method is 404 not_found [GWH-029]', async () => {
    for (const [path, method] of [['/', 'GET'], ['/v1/agent', 'GET'], ['/v1/agent/create_session/', 'POST'], ['/healthz', 'POST'], [createPath, 'GET'], [createPath, 'DELETE'], ['/metrics', 'GET'], ['/readyz', 'GET']] as const) {
      fails(await edge.call(path, { method }), 404, 'not_found');
    }
  });

  test('gateway http - an unexpected fault is 500 internal without details, with a correlation id in the log [GWH-029]', async () => {
    // A clock that throws stands for any bug in the pipeline.
    const wallMs = (): number => {
      throw new TypeError('secret /etc/passwd');
    };
    const bad = await startEdge({ clock: { ...systemClock, wallMs } });
    try {
      const reply = await bad.call(bootstrapPath, { token: await bad.issuer.token('alice'), body: { user_id: 'alice' } });
      assert.equal(reply.status, 500);
      assert.deepEqual(reply.json, { error: 'internal', message: errors.internal.message });
      const correlation = reply.headers['x-correlation-id'];
      assert.ok(typeof correlation === 'string' && correlation.length > 0);
      assert.ok(bad.logs.some((line) => line.level === 'error' && JSON.stringify(line.fields).includes(correlation)));
    } finally {
      await bad.stop();
    }
  });

  test('gateway http - upstream text is shown without paths and cut at 256 characters [GWH-030] [GWH-031]', async () => {
    const before = edge.peer.on.request;
    try {
      const { socketPath } = edge.peer;
      edge.peer.on.request = (request) => request.answer(500, {
        code: 'internal_error', message: `connect ECONNREFUSED ${socketPath} at (/srv/app/x.ts:1) unix:/run/y.sock "/etc/keys" ${'z'.repeat(400)}`, details: { stack: 'at /srv' },
      });
      const reply = await create({ user_id: 'alice', project_id: 'p' });
      const { message, ...rest } = fails(reply, 502, 'upstream_error');
      assert.deepEqual(Object.keys(rest), ['error']);
      assert.ok(typeof message === 'string');
      assert.equal([...message].length, 256);
      for (const secret of [socketPath, '/srv', '/run', '/etc']) assert.ok(!reply.text.includes(secret), `${secret} is shown: ${reply.text}`);
      assert.match(message, /^connect ECONNREFUSED \[redacted\] at \(\[redacted\] unix:\[redacted\] "\[redacted\]/);
    } finally {
      edge.peer.on.request = before;
    }
  });

  test('gateway http - a daemon bug, a refused capability and an answer without sense are 502 upstream_error [UDS-009]', async () => {
    const before = edge.peer.on.request;
    try {
      for (const [status, body] of [
        [500, { code: 'internal_error', message: 'x' }], [401, { code: 'unauthorized', message: 'x' }], [403, { code: 'wrong_audience', message: 'x' }],
        [500, 'text'], [500, {}], [204, {}], [418, null],
      ] as const) {
        edge.peer.on.request = (request) => request.answer(status, body);
        fails(await create({ user_id: 'alice', project_id: 'p' }), 502, 'upstream_error');
      }
    } finally {
      edge.peer.on.request = before;
    }
  });

  test('gateway http - a refusal of the daemon keeps its code, status and details', async () => {
    const before = edge.peer.on.request;
    try {
      edge.peer.on.request = (request) => request.answer(404, { code: 'session_not_found', message: 'There is no such session.', details: { sid: 's' } });
      const reply = await create({ user_id: 'alice', project_id: 'p' });
      assert.deepEqual([reply.status, reply.json], [404, { error: 'not_found', reason: 'session_not_found', message: 'There is no such session.', sid: 's' }]);
    } finally {
      edge.peer.on.request = before;
    }
  });

  test('gateway http - a body over its bound is 413, one at it is read', async () => {
    const padded = (bytes: number): string => {
      const text = JSON.stringify({ user_id: 'alice', project_id: 'p' });
      return text + ' '.repeat(bytes - text.length);
    };
    assert.equal((await create(padded(64 * 1024))).status, 201);
    fails(await create(padded(64 * 1024 + 1)), 413, 'payload_too_large');
    assert.deepEqual(asked, []);
  });

  test('gateway http - a body that lies about its length or has none is bounded while it is read', async () => {
    const reply = await new Promise<string>((resolve, reject) => {
      const socket = connect({ host: '127.0.0.1', port: edge.port, ca: edge.ca, servername: 'localhost' }, () => {
        socket.write(`POST ${createPath} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${token}\r\ntransfer-encoding: chunked\r\n\r\n`);
        const chunk = `4000\r\n${'x'.repeat(0x4000)}\r\n`;
        for (let i = 0; i < 5; i++) socket.write(chunk);
      });
      let text = '';
      socket.on('data', (data: Buffer) => {
        text += data.toString('utf8');
      });
      socket.on('error', reject);
      socket.on('close', () => resolve(text));
    });
    assert.match(reply, /^HTTP\/1\.1 413/);
    assert.match(reply, /payload_too_large/);
  });

  test('gateway http - a request its client gives up is cancelled upstream', async () => {
    const before = edge.peer.on.request;
    const cancelled = edge.peer.arrival(frameType.cancel);
    const arrived = new Promise<number>((resolve) => {
      edge.peer.on.request = (request) => resolve(request.id);
    });
    const socket = connect({ host: '127.0.0.1', port: edge.port, ca: edge.ca, servername: 'localhost' }, () => {
      const body = JSON.stringify({ user_id: 'alice', project_id: 'p' });
      socket.write(`POST ${createPath} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${token}\r\ncontent-length: ${body.length}\r\n\r\n${body}`);
    });
    const id = await arrived;
    socket.destroy();
    assert.equal((await cancelled).id, id);
    edge.peer.on.request = before;
  });

  test('gateway http - an answer to HEAD ends with its head, so that the next answer of the connection is the next request\'s', async () => {
    const paths = ['/nothing', '/api/nothing', '/healthz', createPath, '/v1/agent/stream', '/console/'];
    const text = await new Promise<string>((resolve, reject) => {
      const requests = [...paths.map((path) => `HEAD ${path} HTTP/1.1\r\nhost: x\r\n\r\n`), 'GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n'];
      let got = '';
      const next = (): void => void socket.write(requests.shift() ?? '');
      const socket = connect({ host: '127.0.0.1', port: edge.port, ca: edge.ca, servername: 'localhost' }, next);
      socket.on('data', (data: Buffer) => {
        got += data.toString('utf8');
        if (requests.length === 0 && !got.endsWith('\r\n\r\n')) socket.destroy();
        else if (got.includes('\r\n\r\n')) next();
      });
      socket.on('error', reject);
      socket.on('close', () => resolve(got));
    });
    const answers = text.split('\r\n\r\n');
    assert.equal(answers.length, paths.length + 2, text);
    assert.ok(answers.slice(0, -1).every((head) => head.startsWith('HTTP/1.1 ')), text);
    assert.equal(answers.at(-1), 'OK');
  });

  test('gateway http - what comes behind a body of doubtful length is never taken for a request', async () => {
    /** Everything the gateway says to these bytes, sent at once, until it ends the connection. */
    const said = (head: string, behind: string): Promise<string> => new Promise((resolve) => {
      let got = '';
      const socket = connect({ host: '127.0.0.1', port: edge.port, ca: edge.ca, servername: 'localhost' }, () => socket.write(`${head}\r\n\r\n${behind}`));
      socket.on('data', (data: Buffer) => { got += data.toString('latin1'); });
      // A connection that is cut may say so.
      socket.on('error', () => undefined);
      socket.on('close', () => resolve(got));
    });
    const hidden = 'GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n';
    const lengths = `content-length: 2\r\ncontent-length: ${2 + hidden.length}`;
    for (const path of [createPath, '/nothing', '/healthz']) {
      const method = path === '/healthz' ? 'GET' : 'POST';
      const head = `${method} ${path} HTTP/1.1\r\nhost: x\r\n${lengths}`;
      assert.doesNotMatch(await said(head, `{}${hidden}`), / 200 OK/, path);
      // Alone it is told what is wrong, and the connection ends with the answer.
      assert.match(await said(head, '{}'), path === '/nothing' ? /^HTTP\/1\.1 404/ : /^HTTP\/1\.1 400[^]*ambiguous/, path);
    }
  });
});

test('gateway http - healthz and routes without a daemon answer 503 [GWH-002] [UDS-008]', async () => {
  const edge = await startEdge({ peer: false });
  try {
    fails(await edge.call('/healthz'), 503, 'upstream_unavailable');
    fails(await edge.call(createPath, { token: await edge.issuer.token('alice'), body: { user_id: 'alice', project_id: 'p' } }), 503, 'upstream_unavailable');
  } finally {
    await edge.stop();
  }
});

test('gateway http - healthz answers 503 when the daemon goes, and when it answers an error [GWH-002]', async () => {
  const edge = await startEdge();
  try {
    assert.equal((await edge.call('/healthz')).status, 200);
    edge.peer.on.request = (request) => request.answer(500, { code: 'journal_unavailable', message: 'x' });
    fails(await edge.call('/healthz'), 503, 'upstream_unavailable');
    const gone = linked(edge.gateway, 0);
    await edge.peer.stop();
    await gone;
    fails(await edge.call('/healthz'), 503, 'upstream_unavailable');
  } finally {
    await edge.stop();
  }
});

test('gateway http - a daemon that does not answer: healthz 503, other routes 504 upstream_timeout [GWH-002] [UDS-007]', async () => {
  const edge = await startEdge({ on: { request: () => undefined }, config: { upstream: { deadline_ms: 100 } } });
  try {
    const token = await edge.issuer.token('alice');
    const [health, created] = await Promise.all([
      edge.call('/healthz'), edge.call(createPath, { token, body: { user_id: 'alice', project_id: 'p' } }),
    ]);
    fails(health, 503, 'upstream_unavailable');
    fails(created, 504, 'upstream_timeout');
  } finally {
    await edge.stop();
  }
});
