// The built-in tools on their own: arithmetic, the allow-list, the page reader, bounds, and what a model is told of a mistake.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import fc from 'fast-check';
import { limits } from '../../contracts/limits.ts';
import { allowedBy, isSpecialAddress, parseAllow } from '../../actors/tools/allow.ts';
import { decimal, evaluate } from '../../actors/tools/arithmetic.ts';
import { fetchUrl, type Resolve } from '../../actors/tools/fetch.ts';
import { builtinTools } from '../../actors/tools/index.ts';
import { boundResult, cutBytes, type Tool, type ToolContext } from '../../actors/tools/tool.ts';

const context = (changes: Partial<ToolContext> = {}): ToolContext => ({
  signal: new AbortController().signal, id: 'call-1', now: () => Date.UTC(2026, 10, 21, 12, 0, 0),
  agent: async () => assert.fail('no agent here'), ...changes,
});
const tools = builtinTools({ fetchAllow: [] });
const tool = (name: string): Tool => tools.get(name) ?? assert.fail(`no tool ${name}`);
const calculate = (expression: string): string => decimal(evaluate(expression)).text;

describe('tools - arithmetic', () => {
  it('calculates with decimals exactly', () => {
    const cases: Record<string, string> = {
      '0.1 + 0.2': '0.3', '1 - 0.9': '0.1', '2 + 3 * 4': '14', '(2 + 3) * 4': '20', '2 ^ 10': '1024', '2 ** 3 ** 2': '512', '-2 ^ 2': '-4',
      '2 ^ -2': '0.25', '7 % 4': '3', '-7 % 4': '-3', '5.5 % 2': '1.5', '1e3 + 1_000': '2000', '10 / 4': '2.5', '- -3': '3', '.5 * 2': '1', '0 * -1': '0',
      '99999999999999999999 * 99999999999999999999': '9999999999999999999800000000000000000001', '1.5e-3': '0.0015', '0 ^ 0': '1', '(-1) ^ 1000000000001': '-1',
    };
    for (const [expression, expected] of Object.entries(cases)) assert.equal(calculate(expression), expected, expression);
  });

  it('says when a value has no finite decimal form', () => {
    assert.deepEqual(decimal(evaluate('2 / 3')), { text: '0.666666666666666666666666666667', exact: false });
    assert.deepEqual(decimal(evaluate('1 / 8')), { text: '0.125', exact: true });
  });

  it('agrees with big integers on sums, differences, products and nesting', () => {
    const value = fc.bigInt({ min: -(10n ** 30n), max: 10n ** 30n });
    fc.assert(fc.property(value, value, value, (a, b, c) => {
      assert.equal(calculate(`(${a}) + (${b}) * (${c}) - ((${a}) - (${c}))`), String(a + b * c - (a - c)));
    }));
  });

  it('refuses what is not an expression, with the place', () => {
    for (const expression of ['', '1 +', '(1', '1)', '2 3', 'abc', '1 / 0', '1 % 0', '0 ^ -1', '2 ^ 0.5', 'process.exit()', '1..2', '--', '1e99999']) {
      assert.throws(() => evaluate(expression), { code: 'bad_expression' }, expression);
    }
  });

  it('refuses what would take long or much', () => {
    const deep = '('.repeat(limits.calculationDepthMax + 1);
    for (const expression of ['9 ^ 9 ^ 9 ^ 9', '10 ^ 1000000', '1e1999 * 1e1999', `${deep}1${')'.repeat(deep.length)}`, '-'.repeat(500), '1'.repeat(limits.calculationMaxChars + 1)]) {
      assert.throws(() => evaluate(expression), { code: 'bad_expression' }, expression.slice(0, 40));
    }
  });

  it('ends on any text with a value or a refusal', () => {
    fc.assert(fc.property(fc.string({ unit: fc.constantFrom(...'0123456789.+-*/%^() eE_'), maxLength: 60 }), (text) => {
      try {
        decimal(evaluate(text));
      } catch (error) {
        assert.equal(error instanceof Error && 'code' in error ? error.code : undefined, 'bad_expression', text);
      }
    }), { numRuns: 2_000 });
  });
});

describe('tools - what a model is told of its arguments', () => {
  it('names the field and the problem', () => {
    assert.equal(tool('calculator').problem({ expression: '1' }), undefined);
    assert.match(tool('calculator').problem({}) ?? '', /expression/);
    assert.match(tool('calculator').problem({ expression: '1', more: 1 }) ?? '', /more/);
    assert.notEqual(tool('calculator').problem('not json'), undefined);
    assert.match(tool('fetch_url').problem({ url: 'file:///etc/passwd' }) ?? '', /url/);
    assert.match(tool('send_report').problem({ title: 'x'.repeat(300), body: '' }) ?? '', /title/);
  });

  it('offers every tool a schema of an object', () => {
    for (const offered of tools.values()) {
      assert.equal(offered.schema['type'], 'object', offered.name);
      assert.match(offered.name, /^[a-z0-9_]+$/);
    }
  });

  it('asks a person only for the report, and shows its text', () => {
    assert.deepEqual([...tools.values()].filter((t) => t.needsApproval).map((t) => t.name), ['send_report']);
    assert.match(tool('send_report').preview({ title: 'Q3', body: 'All well.' }), /Q3.*All well\./);
  });
});

describe('tools - clock, memory, report', () => {
  it('tells the time of the context, in a zone on request', async () => {
    assert.deepEqual(await tool('clock').run({}, context()), { utc: '2026-11-21T12:00:00.000Z', unix: 1_795_262_400 });
    const there = await tool('clock').run({ time_zone: 'Asia/Tokyo' }, context());
    assert.match(JSON.stringify(there), /21:00:00/);
    await assert.rejects(tool('clock').run({ time_zone: 'Mars/Base' }, context()), { code: 'unknown_time_zone' });
  });

  it('hands facts, queries and reports to the agent actor', async () => {
    const asked: [string, unknown][] = [];
    const agent = async (command: string, input: unknown): Promise<unknown> => {
      asked.push([command, input]);
      const fact = { id: 'f1', fact: 'likes tea', source: 'conversation', relevance: 0.5, at: 0 };
      return command === 'remember' ? fact : command === 'recall' ? { facts: [fact] } : { report_id: 'r1' };
    };
    assert.deepEqual(await tool('memory_write').run({ fact: 'likes tea' }, context({ agent })), { stored: true, id: 'f1', fact: 'likes tea' });
    assert.deepEqual(await tool('memory_search').run({ query: 'tea' }, context({ agent })), { facts: [{ fact: 'likes tea', source: 'conversation', relevance: 0.5, at: '1970-01-01T00:00:00.000Z' }] });
    assert.deepEqual(await tool('send_report').run({ title: 'T', body: 'B' }, context({ agent })), { filed: true, report_id: 'r1', title: 'T' });
    assert.deepEqual(asked, [['remember', { fact: 'likes tea', source: 'conversation' }], ['recall', { query: 'tea' }], ['report', { title: 'T', body: 'B' }]]);
  });
});

describe('tools - bounds of a result', () => {
  it('leaves what fits and names what was cut', () => {
    assert.deepEqual(boundResult({ a: 1 }, 100), { a: 1 });
    assert.equal(boundResult(undefined, 100), null);
    const cut = boundResult({ text: 'x'.repeat(1_000) }, 400);
    assert.ok(typeof cut === 'object' && cut !== null && 'cut' in cut && 'of_bytes' in cut);
    assert.equal(cut.of_bytes, 1_011);
  });

  it('never exceeds the bound, whatever the text encodes to', () => {
    fc.assert(fc.property(fc.string({ unit: 'binary', maxLength: 3_000 }), fc.integer({ min: 200, max: 2_000 }), (text, max) => {
      assert.ok(Buffer.byteLength(JSON.stringify(boundResult({ text }, max))) <= max);
      assert.ok(Buffer.byteLength(JSON.stringify(boundResult(text, max))) <= max);
    }));
  });

  it('cuts between characters', () => {
    assert.equal(cutBytes('aé€😀', 4), 'aé');
    assert.equal(cutBytes('aé€😀', 6), 'aé€');
    assert.equal(cutBytes('😀', 3), '');
  });
});

describe('tools - allow-list of the page reader', () => {
  it('takes hosts, host:port and origins, and refuses anything else', () => {
    const allow = parseAllow(['example.org', 'api.example.org:8443', 'http://plain.example.org', '127.0.0.1:9', '[::1]:9']);
    const allowed = (url: string): boolean => allowedBy(allow, new URL(url)) !== undefined;
    for (const url of ['https://example.org/a?b', 'https://EXAMPLE.org./', 'https://api.example.org:8443/', 'http://plain.example.org/x', 'https://127.0.0.1:9/', 'https://[::1]:9/']) {
      assert.ok(allowed(url), url);
    }
    for (const url of [
      'http://example.org/', 'https://example.org:8443/', 'https://api.example.org/', 'https://plain.example.org/', 'https://evil.org/', 'https://example.org.evil.org/',
      'https://sub.example.org/', 'https://user:pass@example.org/', 'https://example.org@evil.org/', 'https://127.0.0.2:9/', 'https://2130706433:10/',
    ]) assert.ok(!allowed(url), url);
    for (const entry of ['', 'https://x/path', 'a b', 'https://u:p@x', 'ftp://x']) assert.throws(() => parseAllow([entry]), TypeError, entry);
  });

  it('knows special addresses in both families', () => {
    for (const address of ['10.1.2.3', '127.0.0.1', '169.254.169.254', '172.16.0.1', '172.31.255.255', '192.168.1.1', '100.64.0.1', '0.0.0.0', '224.0.0.1', '255.255.255.255', '::1', '::', 'fe80::1', 'fc00::1', 'ff02::1', '::ffff:10.0.0.1', '64:ff9b::a00:1', '2001:db8::1', '2002:a00:1::', 'nonsense']) {
      assert.ok(isSpecialAddress(address), address);
    }
    for (const address of ['8.8.8.8', '172.32.0.1', '1.1.1.1', '2606:4700::1111', '2a00:1450::1']) assert.ok(!isSpecialAddress(address), address);
  });
});

const page = async (t: TestContext, listener: RequestListener): Promise<number> => {
  const server = createServer(listener);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(async () => {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  });
  return (server.address() as AddressInfo).port;
};

describe('tools - page reader', () => {
  it('reads text of a listed address', async (t) => {
    const port = await page(t, (_, response) => { response.setHeader('content-type', 'text/plain; charset=utf-8').end('hello'); });
    const reader = fetchUrl(parseAllow([`http://127.0.0.1:${port}`]));
    assert.deepEqual(await reader.run({ url: `http://127.0.0.1:${port}/x` }, context()), { status: 200, content_type: 'text/plain; charset=utf-8', text: 'hello' });
  });

  it('connects to the address that was checked and looks up no second time', async (t) => {
    let host = '';
    const port = await page(t, (request, response) => {
      host = request.headers.host ?? '';
      response.setHeader('content-type', 'text/plain').end('pinned');
    });
    let looked = 0;
    const resolve: Resolve = async () => {
      looked++;
      return [{ address: '127.0.0.1', family: 4 }];
    };
    const reader = fetchUrl(parseAllow([`http://localhost:${port}`]), resolve);
    assert.deepEqual(await reader.run({ url: `http://localhost:${port}/` }, context()), { status: 200, content_type: 'text/plain', text: 'pinned' });
    assert.equal(looked, 1);
    assert.equal(host, `localhost:${port}`);
  });

  it('does not follow a listed name to a private address', async (t) => {
    let reached = 0;
    const port = await page(t, (_, response) => {
      reached++;
      response.end('secret');
    });
    for (const address of ['127.0.0.1', '::1', '169.254.169.254', '10.0.0.8']) {
      const reader = fetchUrl(parseAllow([`http://metadata.example:${port}`]), async () => [{ address: '93.184.216.34', family: 4 }, { address, family: address.includes(':') ? 6 : 4 }]);
      await assert.rejects(reader.run({ url: `http://metadata.example:${port}/` }, context()), { code: 'host_not_allowed' });
    }
    assert.equal(reached, 0);
  });

  it('shows a redirect without following it', async (t) => {
    let reached = 0;
    const port = await page(t, (_, response) => {
      reached++;
      response.writeHead(302, { location: 'http://169.254.169.254/' }).end();
    });
    const got = await fetchUrl(parseAllow([`http://127.0.0.1:${port}`])).run({ url: `http://127.0.0.1:${port}/` }, context());
    assert.deepEqual(got, { status: 302, location: 'http://169.254.169.254/', note: 'Redirects are not followed.' });
    assert.equal(reached, 1);
  });

  it('cuts an endless page and closes its connection', async (t) => {
    let closed = (): void => undefined;
    const gone = new Promise<void>((resolve) => { closed = resolve; });
    const port = await page(t, (_, response) => {
      response.setHeader('content-type', 'text/html');
      response.on('close', closed);
      const more = (): void => { while (!response.destroyed && response.write('x'.repeat(16_384))); };
      response.on('drain', more);
      more();
    });
    const got = await fetchUrl(parseAllow([`http://127.0.0.1:${port}`])).run({ url: `http://127.0.0.1:${port}/` }, context());
    await gone;
    assert.ok(typeof got === 'object' && got !== null && 'cut' in got && 'text' in got && typeof got.text === 'string');
    assert.equal(got.text.length, limits.fetchMaxBytes);
  });

  it('refuses what is not text, not listed, or not there', async (t) => {
    const port = await page(t, (_, response) => { response.setHeader('content-type', 'image/png').end('x'); });
    const reader = fetchUrl(parseAllow([`http://127.0.0.1:${port}`, 'http://127.0.0.1:1']));
    await assert.rejects(reader.run({ url: `http://127.0.0.1:${port}/` }, context()), { code: 'not_text' });
    await assert.rejects(reader.run({ url: 'http://127.0.0.1:2/' }, context()), { code: 'host_not_allowed' });
    await assert.rejects(reader.run({ url: 'http://127.0.0.1:1/' }, context()), { code: 'fetch_failed' });
  });

  it('stops when it is aborted', async (t) => {
    const abort = new AbortController();
    const port = await page(t, () => { abort.abort(); });
    await assert.rejects(fetchUrl(parseAllow([`http://127.0.0.1:${port}`])).run({ url: `http://127.0.0.1:${port}/` }, context({ signal: abort.signal })), { code: 'aborted' });
  });
});
