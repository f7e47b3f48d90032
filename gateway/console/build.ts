/**
 * Builds what browsers get in memory: the chat page, the console, and style and comfort of the server-rendered pages. No source maps,
 * nothing fetched. Takes some 100 ms, so the gateway does it at start; there is no build step to forget.
 */
import { build, stop, type BuildOptions } from 'esbuild';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import type { ConsoleFile, ConsoleFiles } from './files.ts';
import { consolePaths } from './platform/place.ts';

const source = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

/** Path → source of each bundle. */
const consoleBundles: Readonly<Record<string, string>> = {
  '/console.js': 'main.tsx', '/console.css': 'console.css',
  '/platform.js': 'platform/main.tsx', '/platform.css': 'platform/platform.css',
};
const pageBundles: Readonly<Record<string, string>> = { '/pages.js': '../pages/comfort.ts', '/pages.css': '../pages/pages.css' };

const options = {
  bundle: true, minify: true, write: false as const, legalComments: 'none' as const, logLevel: 'silent' as const, target: ['chrome119', 'firefox121', 'safari17.4'],
  format: 'esm' as const, platform: 'browser' as const, jsx: 'automatic' as const, jsxImportSource: 'preact',
} satisfies BuildOptions & { write: false };

const bundle = async ([path, entry]: [string, string]): Promise<[string, ConsoleFile]> => {
  const { outputFiles: [file, ...more] } = await build({ ...options, entryPoints: [source(entry)] });
  if (file === undefined || more.length > 0) throw new TypeError(`${entry} must build to one file`);
  return [path, { type: path.endsWith('.css') ? 'text/css; charset=utf-8' : 'text/javascript; charset=utf-8', body: file.contents }];
};
const kept = async (path: string, name: string, type: string): Promise<[string, ConsoleFile]> => [path, { type, body: await readFile(source(name)) }];
const html = 'text/html; charset=utf-8';

const built = async (files: readonly Promise<[string, ConsoleFile]>[]): Promise<ConsoleFiles> => {
  try {
    return new Map(await Promise.all(files));
  } finally {
    // The compiler is a process of its own; a gateway must not keep it.
    await stop();
  }
};

/** Chat page and console by path. Throws esbuild's error when a source does not compile. */
export const buildConsole = (): Promise<ConsoleFiles> => built([
  kept('/', 'page.html', html), ...consolePaths.map((path) => kept(path, 'platform/page.html', html)),
  ...Object.entries(consoleBundles).map(bundle), kept('/icon.svg', 'icon.svg', 'image/svg+xml'),
]);

/** What the server-rendered pages refer to, by path. */
export const buildPageFiles = (): Promise<ConsoleFiles> => built([...Object.entries(pageBundles).map(bundle), kept('/pages.svg', 'icon.svg', 'image/svg+xml')]);
