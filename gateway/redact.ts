/**
 * Makes text from upstream safe to show (decisions, Edge gateway: words that start with `/` are redacted, cut at 256).
 *
 * Stricter than the rule: a path is also found behind punctuation (`unix:/run/x`, `"/etc/y"`, `(/tmp/z)`), because error
 * texts of the system are written so. Relative paths and `and/or` stay.
 */
import { limits } from '../contracts/limits.ts';

const path = /(^|[^\p{L}\p{N}_.\-~])\/\S*/gu;

export const redact = (text: string): string => {
  const safe = text.replace(path, '$1[redacted]');
  const chars = [...safe];
  return chars.length <= limits.upstreamTextMaxChars ? safe : chars.slice(0, limits.upstreamTextMaxChars).join('');
};
