/**
 * What a request for a blob wants of it: the whole, one range, nothing because it has it, and in which coding (RFC 9110 sections 12.5.3, 13, 14).
 *
 * A blob has two representations, its content and its content in zstd, each with a strong ETag of its own. A range is always one of the content
 * (BLB-012): who asks for one gets no zstd. Several ranges, and what cannot be read, count as none (section 14.2).
 */
import { coded } from '../../../contracts/errors.ts';

export type Headers = Readonly<Record<string, string>>;

export type Wanted =
  | { readonly kind: 'same'; readonly etag: string }
  | { readonly kind: 'packed'; readonly etag: string }
  /** `from` included, `to` not. */
  | { readonly kind: 'content'; readonly etag: string; readonly range?: { readonly from: number; readonly to: number } };

export const tagsOf = (hash: string) => ({ content: `"${hash}"`, packed: `"${hash}-zstd"` }) as const;

/** True if the header accepts zstd by name. */
export const takesZstd = (accept: string): boolean => accept.toLowerCase().split(',').some((entry) => {
  const [coding = '', ...parameters] = entry.split(';').map((part) => part.trim());
  return coding === 'zstd' && !parameters.some((parameter) => /^q=0(\.0{0,3})?$/.test(parameter));
});

const bytesRange = /^bytes=\s*(?:(\d{1,15})-(\d{0,15})|-(\d{1,15}))\s*$/i;

/** The range of a blob of `size` bytes; undefined = none. Throws `range_not_satisfiable`. */
const rangeOf = (header: string, size: number): { readonly from: number; readonly to: number } | undefined => {
  const found = bytesRange.exec(header);
  if (found === null) return undefined;
  const [, first, last = '', suffix] = found;
  if (first === undefined) {
    const length = Math.min(Number(suffix), size);
    if (length === 0) throw unsatisfiable(size);
    return { from: size - length, to: size };
  }
  const from = Number(first);
  const to = last === '' ? size : Math.min(Number(last) + 1, size);
  if (last !== '' && Number(last) < from) return undefined;
  if (from >= size) throw unsatisfiable(size);
  return { from, to };
};

const unsatisfiable = (size: number): Error => coded('range_not_satisfiable', undefined, { details: { size } });

/** Throws `range_not_satisfiable` with the blob's size. */
export const wantedOf = (headers: Headers, blob: { readonly hash: string; readonly size: number }): Wanted => {
  const tags = tagsOf(blob.hash);
  const { 'if-range': ifRange, range: asked = '', 'if-none-match': ifNoneMatch = '', 'accept-encoding': accept = '' } = headers;
  const packed = takesZstd(accept);
  const known = ifNoneMatch.split(',').map((tag) => tag.trim().replace(/^W\//, ''));
  if (known.includes('*') || known.includes(tags.content) || known.includes(tags.packed)) return { kind: 'same', etag: known.includes(tags.content) || !packed ? tags.content : tags.packed };
  // Of another representation than the one it names the rest would not fit (section 13.1.5).
  const range = asked !== '' && (ifRange === undefined || ifRange.trim() === tags.content) ? rangeOf(asked, blob.size) : undefined;
  if (range !== undefined) return { kind: 'content', etag: tags.content, range };
  return packed ? { kind: 'packed', etag: tags.packed } : { kind: 'content', etag: tags.content };
};

const mediaType = /^[!#$%&'*+.^_`|~A-Za-z0-9-]+\/[!#$%&'*+.^_`|~A-Za-z0-9-]+(?:\s*;[\t\x20-\x7e]*)?$/;
/** A content type as it may be kept and sent again. */
export const keptType = (header: string | undefined, maxChars: number): string =>
  (header !== undefined && header.length <= maxChars && mediaType.test(header) ? header : 'application/octet-stream');

/** Types that a browser shows without running anything of them. */
const shownTypes = /^(?:image\/(?:png|jpeg|gif|webp|avif|bmp)|audio\/[^;]+|video\/[^;]+|text\/(?:plain|markdown|csv)|application\/json)\s*(?:;|$)/i;
/** False: a browser saves it instead, so that what somebody uploaded never runs with this site's rights. */
export const isShown = (type: string): boolean => shownTypes.test(type);
