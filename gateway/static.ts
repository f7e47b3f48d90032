/**
 * The web console's files, served from memory.
 *
 * Guarantee: only the given paths exist, so no path from outside touches the file system; an unchanged file answers 304.
 */
import { createHash } from 'node:crypto';
import type { Answer } from './answer.ts';
import { consoleHeaders, type ConsoleFiles } from './console/files.ts';

export interface Files {
  /** undefined = there is no such file. `etag` is the If-None-Match header. */
  answer(method: string, path: string, etag: string): Answer | undefined;
}

export const makeFiles = (files: ConsoleFiles): Files => {
  const ready = new Map([...files].map(([path, file]) => {
    const etag = `"${createHash('sha256').update(file.body).digest('base64url')}"`;
    return [path, { body: file.body, headers: { ...consoleHeaders, 'content-type': file.type, etag } }] as const;
  }));
  return {
    answer: (method, path, etag) => {
      const file = method === 'get' || method === 'head' ? ready.get(path) : undefined;
      if (file === undefined) return undefined;
      if (etag === file.headers.etag) return { status: 304, headers: file.headers, body: '' };
      return { status: 200, headers: file.headers, body: file.body };
    },
  };
};
