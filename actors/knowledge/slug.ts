/**
 * The node id of a document's path (KNO-011).
 *
 * The path without `.md`, in lower case, every run of other characters than a-z and 0-9 a hyphen; accents are taken off. Where that loses letters
 * of another script, or is too long, eight hex digits of the path's SHA-256 follow, so that such paths do not all become one id. Two paths may still
 * have one slug (`a b.md`, `a-b.md`): the ledger then gives the later one `distinctId`.
 */
import { createHash } from 'node:crypto';
import { limits } from '../../contracts/limits.ts';

const digest = (path: string): string => createHash('sha256').update(path, 'utf8').digest('hex').slice(0, 8);
const withDigest = (slug: string, path: string): string => {
  const head = slug.slice(0, limits.knowledgeIdMaxChars - 9).replace(/-+$/, '');
  return head === '' ? `note-${digest(path)}` : `${head}-${digest(path)}`;
};

const asciiOf = (path: string): { readonly slug: string; readonly lost: boolean } => {
  const plain = path.replace(/\.(?:md|markdown)$/i, '').normalize('NFKD').replace(/\p{M}+/gu, '').toLowerCase();
  return { slug: plain.replace(/[^a-z0-9]+/g, '-').replace(/^-+|-+$/g, ''), lost: /[\p{L}\p{N}]/u.test(plain.replace(/[a-z0-9]+/g, '')) };
};

/** The id that a path gets if it is free. */
export const slugOf = (path: string): string => {
  const { slug, lost } = asciiOf(path);
  return lost || slug === '' || slug.length > limits.knowledgeIdMaxChars ? withDigest(slug, path) : slug;
};

/** The id of a path whose slug another path has. */
export const distinctId = (path: string): string => withDigest(asciiOf(path).slug, path);
