/** How deep a JSON value may nest. What is deeper than this process's stack can be parsed, but neither checked nor written again. */
import { limits } from './limits.ts';

/** Nested no deeper than `max`. Not recursive: what it is asked about may be deeper than any stack. */
export const isNoDeeper = (value: unknown, max: number): boolean => {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > max) return false;
    const next: unknown[] = [];
    for (const item of level) {
      if (typeof item !== 'object' || item === null) continue;
      for (const inner of Object.values(item)) next.push(inner);
    }
    level = next;
  }
  return true;
};

/** Nested no deeper than what a tool takes and gives: `limits.chatDepthMax`. */
export const isShallow = (value: unknown): boolean => isNoDeeper(value, limits.chatDepthMax);
