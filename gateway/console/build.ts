/**
 * Builds the console in memory: one page, one script, one style sheet, one icon. No source maps, nothing fetched.
 * Takes some 50 ms, so the gateway does it at start; there is no build step to forget.
 */
import { build, stop, type BuildOptions } from 'esbuild';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import type { ConsoleFile, ConsoleFiles } from './files.ts';

const source = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

/** The console's files by path. Throws esbuild's error when a source does not compile. */
export const buildConsole = async (): Promise<ConsoleFiles> => {
  const target = ['chrome119', 'firefox121', 'safari17.4'];
  const options = { bundle: true, minify: true, write: false as const, legalComments: 'none' as const, logLevel: 'silent' as const, target } satisfies BuildOptions & { write: false };
  try {
    const [script, style, page, icon] = await Promise.all([
      build({ ...options, entryPoints: [source('main.tsx')], format: 'esm', platform: 'browser', jsx: 'automatic', jsxImportSource: 'preact' }),
      build({ ...options, entryPoints: [source('console.css')] }),
      readFile(source('page.html')),
      readFile(source('icon.svg')),
    ]);
    const only = (result: { outputFiles: { contents: Uint8Array }[] }): Uint8Array => {
      const [file] = result.outputFiles;
      if (file === undefined || result.outputFiles.length !== 1) throw new TypeError('the console must build to one file each');
      return file.contents;
    };
    return new Map<string, ConsoleFile>([
      ['/', { type: 'text/html; charset=utf-8', body: page }],
      ['/console.js', { type: 'text/javascript; charset=utf-8', body: only(script) }],
      ['/console.css', { type: 'text/css; charset=utf-8', body: only(style) }],
      ['/icon.svg', { type: 'image/svg+xml', body: icon }],
    ]);
  } finally {
    // The compiler is a process of its own; a gateway must not keep it.
    await stop();
  }
};
