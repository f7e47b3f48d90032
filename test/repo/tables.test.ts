/**
 * The repository's tables against each other: READMEs, configuration keys, packages, error codes, limits, rule ids, lock file.
 */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { z } from 'zod';
import { daemonConfig, gatewayConfig } from '../../contracts/config.ts';
import { errors } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { read, root, sources, topFolders } from './source.ts';

const files = sources();
const readmes = ['README.md', ...topFolders.map((folder) => `${folder}/README.md`)];
const packageFile = z.object({
  dependencies: z.record(z.string(), z.string()), devDependencies: z.record(z.string(), z.string()), optionalDependencies: z.record(z.string(), z.string()),
  scripts: z.record(z.string(), z.string()), bin: z.record(z.string(), z.string()),
}).parse(JSON.parse(read('package.json')));
const docs = (): string => readmes.filter((path) => existsSync(join(root, path))).map(read).join('\n');

test('tables - the root and each top folder have a README; a folder\'s decisions are numbered from 1', () => {
  assert.deepEqual(readmes.filter((path) => !existsSync(join(root, path))), []);
  for (const folder of topFolders) {
    const [, decisions = ''] = read(`${folder}/README.md`).split(/^## Decisions$/m);
    const numbers = [...decisions.split(/^## /m)[0]?.matchAll(/^(\d+)\. /gm) ?? []].map(([, n]) => Number(n));
    assert.ok(numbers.length > 0, `${folder}/README.md has no decisions`);
    assert.deepEqual(numbers, numbers.map((_, i) => i + 1), `${folder}/README.md`);
  }
});

/** Dotted paths of a schema's keys with their defaults; an array or leaf ends a path. */
const keysOf = (schema: z.ZodType, at = ''): [key: string, fallback: unknown][] => {
  if (schema instanceof z.ZodDefault || schema instanceof z.ZodPrefault) {
    const inner = schema.unwrap() as z.ZodType;
    return inner instanceof z.ZodObject ? keysOf(inner, at) : [[at, schema.def.defaultValue]];
  }
  if (schema instanceof z.ZodOptional) {
    const inner = schema.unwrap() as z.ZodType;
    return inner instanceof z.ZodObject ? keysOf(inner, at) : [[at, undefined]];
  }
  if (schema instanceof z.ZodObject) {
    return Object.entries(schema.shape as Record<string, z.ZodType>).flatMap(([name, inner]) => keysOf(inner, at === '' ? name : `${at}.${name}`));
  }
  return [[at, undefined]];
};

/** The default as the table writes it. */
const written = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value));

for (const [name, schema] of [['gateway', gatewayConfig], ['daemon', daemonConfig]] as const) {
  test(`tables - every ${name} configuration key stands in deploy/README.md with its default, and no other does`, () => {
    const section = read('deploy/README.md').split(`### ${name}.toml`)[1]?.split(/^##/m)[0] ?? '';
    const rows = new Map([...section.matchAll(/^\| `([^`]+)` \|([^|]*)\|/gm)].map(([, key, fallback]) => [key, fallback?.trim()]));
    const keys = keysOf(schema);
    assert.ok(keys.length > 10);
    assert.deepEqual([...rows.keys()].map(String).toSorted(), keys.map(([key]) => key).toSorted());
    for (const [key, fallback] of keys) {
      if (fallback !== undefined) assert.equal(rows.get(key), `\`${written(fallback)}\``, key);
    }
  });
}

test('tables - every package we depend on is named in a README', () => {
  const text = docs();
  const names = Object.keys({ ...packageFile.dependencies, ...packageFile.devDependencies, ...packageFile.optionalDependencies });
  assert.deepEqual(names.filter((name) => !text.includes(`\`${name}\``)), []);
});

test('tables - every package imported is one we depend on, and every version is exact', () => {
  const known = new Set(Object.keys({ ...packageFile.dependencies, ...packageFile.devDependencies, ...packageFile.optionalDependencies }));
  const strangers = files.flatMap((file) => file.imports.filter((i) => i.package !== undefined && !i.package.startsWith('node:') && !known.has(i.package)).map((i) => `${file.path} → ${i.from}`));
  assert.deepEqual(strangers, []);
  const runtime = new Set(Object.keys({ ...packageFile.dependencies, ...packageFile.optionalDependencies }));
  const product = files.filter((file) => !file.path.startsWith('test/'));
  const devOnly = product.flatMap((file) => file.imports.filter((i) => !i.typeOnly && i.package !== undefined && !i.package.startsWith('node:') && !runtime.has(i.package)).map((i) => `${file.path} → ${i.from}`));
  assert.deepEqual(devOnly, [], 'product code needs a package that only tests get');
  const loose = Object.entries({ ...packageFile.dependencies, ...packageFile.devDependencies, ...packageFile.optionalDependencies }).filter(([, version]) => !/^(npm:(@[\w-]+\/)?[\w.-]+@)?\d+\.\d+\.\d+(-[\w.]+)?$/.test(version));
  assert.deepEqual(loose, []);
});

test('tables - the lock file lets npm ci pass on every platform and on Node 20', () => {
  const lock = z.object({ packages: z.record(z.string(), z.looseObject({
    optionalDependencies: z.record(z.string(), z.string()).optional(), engines: z.unknown().optional(),
  })) }).parse(JSON.parse(read('package-lock.json'))).packages;
  // A package the registry in use lacks must still have its line, else npm ci calls the lock file out of step.
  const missing = Object.entries(lock).flatMap(([path, entry]) => Object.keys(entry.optionalDependencies ?? {})
    .filter((name) => lock[`node_modules/${name}`] === undefined && lock[`${path}/node_modules/${name}`] === undefined));
  assert.deepEqual(missing, []);
  // npm skips an optional package in silence when its engines field does not fit; a native binary needs no engine.
  for (const name of Object.keys(packageFile.optionalDependencies)) {
    const fits = lock[`node_modules/${name}`]?.engines as { node?: string } | undefined;
    assert.equal(fits?.node, undefined, name);
  }
});

test('tables - scripts and commands name files that exist', () => {
  for (const path of Object.values(packageFile.bin)) assert.ok(existsSync(join(root, path)), path);
  const scripts = Object.values(packageFile.scripts).flatMap((script) => [...script.matchAll(/node (\S+\.mjs)/g)].map(([, path = '']) => path));
  assert.ok(scripts.length > 0);
  for (const path of scripts) assert.ok(existsSync(join(root, path)), path);
});

const product = files.filter((file) => !file.path.startsWith('test/'));

test('tables - every error code of the table is thrown or answered somewhere', () => {
  const text = product.filter((file) => file.path !== 'contracts/errors.ts').map((file) => file.code).join('\n');
  assert.deepEqual(Object.keys(errors).filter((code) => !text.includes(`'${code}'`)), []);
});

test('tables - every code given to coded() is in the table', () => {
  const unknown = product.flatMap((file) => [...file.code.matchAll(/\bcoded\(\s*'([a-z_]+)'/g)].filter(([, code = '']) => !Object.hasOwn(errors, code)).map(([, code]) => `${file.path}: ${code}`));
  assert.deepEqual(unknown, []);
});

test('tables - every limit is used by name', () => {
  const text = product.filter((file) => file.path !== 'contracts/limits.ts').map((file) => file.code).join('\n');
  assert.deepEqual(Object.keys(limits).filter((name) => !new RegExp(`\\blimits\\.${name}\\b`).test(text)), []);
});

test('tables - every rule id in a test title is a rule of the specification', (t) => {
  const path = join(root, '..', 'shared', 'spec', 'rules.tsv');
  if (!existsSync(path)) {
    t.diagnostic('the specification is not beside this checkout: only the form of the ids is checked');
  }
  const known = existsSync(path) ? new Set(readFileSync(path, 'utf8').split('\n').map((line) => line.split('\t')[0])) : undefined;
  const named = files.filter((file) => file.path.endsWith('.test.ts') && !file.path.startsWith('test/repo/'))
    .flatMap((file) => [...file.text.matchAll(/\[([A-Z]{2,4}-\d+)\]/g)].map(([, id = '']) => ({ id, path: file.path })));
  assert.deepEqual(named.filter(({ id }) => !/^[A-Z]{2,4}-\d{3}$/.test(id) || known?.has(id) === false), []);
});
