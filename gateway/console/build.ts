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
const bundles: Readonly<Record<string, string>> = {
  '/console.js': 'main.tsx', '/console.css': 'console.css',
  '/platform.js': 'platform/main.tsx', '/platform.css': 'platform/platform.css',
  '/pages.js': '../pages/comfort.ts', '/pages.css': '../pages/pages.css',
};

/** The files by path. Throws esbuild's error when a source does not compile. */
export const buildConsole = async (): Promise<ConsoleFiles> => {
  const target = ['chrome119', 'firefox121', 'safari17.4'];
  const options = {
    bundle: true, minify: true, write: false as const, legalComments: 'none' as const, logLevel: 'silent' as const, target,
    format: 'esm' as const, platform: 'browser' as const, jsx: 'automatic' as const, jsxImportSource: 'preact',
  } satisfies BuildOptions & { write: false };
  const bundle = async ([path, entry]: [string, string]): Promise<[string, ConsoleFile]> => {
    const { outputFiles: [file, ...more] } = await build({ ...options, entryPoints: [source(entry)] });
    if (file === undefined || more.length > 0) throw new TypeError(`${entry} must build to one file`);
    return [path, { type: path.endsWith('.css') ? 'text/css; charset=utf-8' : 'text/javascript; charset=utf-8', body: file.contents }];
  };
  const html = async (name: string): Promise<ConsoleFile> => ({ type: 'text/html; charset=utf-8', body: await readFile(source(name)) });
  try {
    const [chat, platform, icon, ...built] = await Promise.all([
      html('page.html'), html('platform/page.html'), readFile(source('icon.svg')), ...Object.entries(bundles).map(bundle),
    ]);
    return new Map<string, ConsoleFile>([
      ['/', chat], ...consolePaths.map((path): [string, ConsoleFile] => [path, platform]), ...built, ['/icon.svg', { type: 'image/svg+xml', body: icon }],
    ]);
  } finally {
    // The compiler is a process of its own; a gateway must not keep it.
    await stop();
  }
};
