/**
 * Finds a name that stands twice in one object of a JSON text (RFC 8259 section 4 leaves open which counts).
 *
 * One pass over text that `JSON.parse` has accepted; without that it promises nothing. Names are compared as they are read, not as they are
 * written: `"a"` and `"\u0061"` are one.
 */

const white: ReadonlySet<string | undefined> = new Set([' ', '\t', '\n', '\r']);

/** The first name given again; undefined if none is. */
export const repeatedKey = (json: string): string | undefined => {
  /** Names of the objects that are open, the innermost last. */
  const open: Set<string>[] = [];
  for (let i = 0; i < json.length; i++) {
    const c = json[i];
    if (c === '{') open.push(new Set());
    else if (c === '}') open.pop();
    if (c !== '"') continue;
    const start = i;
    for (i += 1; json[i] !== '"'; i++) if (json[i] === '\\') i += 1;
    let after = i + 1;
    while (white.has(json[after])) after += 1;
    // Only a name is followed by a colon.
    if (json[after] !== ':') continue;
    const written = json.slice(start + 1, i);
    const name = written.includes('\\') ? String(JSON.parse(`"${written}"`)) : written;
    const names = open.at(-1);
    if (names?.has(name) === true) return name;
    names?.add(name);
  }
  return undefined;
};
