/**
 * Strips from a continued reply what was already said. Models that are asked to go on often begin with the last words again,
 * or with the whole text; on the wire no token may come twice (design G3).
 *
 * Rule: the longest overlap between the end of `said` and the start of what comes is removed, if it is the whole of `said` or at
 * least `overlapMinChars` long (shorter ones are as likely to be the text itself). Text is held back only while an overlap is
 * still possible, at most `said.length` characters. Not for providers that continue exactly.
 */
const overlapMinChars = 16;
/** How far back an overlap may start, other than at the very beginning. */
const overlapWindowChars = 4_096;

export interface Stripper {
  /** What may be passed on now, possibly ''. */
  push(text: string): string;
  /** What was held back and is not an overlap after all. */
  end(): string;
}

export const stripper = (said: string): Stripper => {
  // Starts in `said` from which everything seen so far matches; `seen` is what is held back.
  let alive: number[] | undefined = said === '' ? undefined : starts(said);
  let seen = '';
  let overlap = 0;
  const settle = (): string => {
    alive = undefined;
    const rest = seen.slice(overlap);
    seen = '';
    return rest;
  };
  return {
    push: (text) => {
      if (alive === undefined) return text;
      for (let k = 0; k < text.length; k++) {
        const at = seen.length;
        const unit = text.charAt(k);
        const still: number[] = [];
        let complete = false;
        for (const start of alive) {
          if (said.charAt(start + at) !== unit) continue;
          if (start + at + 1 === said.length) complete = true;
          else still.push(start);
        }
        seen += unit;
        if (complete) overlap = seen.length;
        alive = still;
        if (still.length === 0) return settle() + text.slice(k + 1);
      }
      return '';
    },
    end: () => (alive === undefined ? '' : settle()),
  };
};

const starts = (said: string): number[] => {
  const from = Math.max(1, said.length - overlapWindowChars);
  const found = [0];
  for (let i = from; i <= said.length - overlapMinChars; i++) found.push(i);
  return found;
};
