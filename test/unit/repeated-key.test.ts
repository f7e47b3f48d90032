/** Names given twice in JSON: found whenever there are some, and never where there are none, over drawn texts. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { repeatedKey } from '../../gateway/repeated-key.ts';
import { runSeed, seeded } from '../harness/seed.ts';

test('repeated key - quotes, colons and braces in strings are text; escapes are read', () => {
  for (const json of ['{}', '[]', '"a:b"', 'null', '7', '{"a":"a"}', '{"a":{"a":{"a":1}}}', '[{"a":1},{"a":1}]', '{"a":"\\"b\\":1","b":"{\\"b\\":1}"}', '{"a\\\\":1,"a":2}', '{"":1," ":2}', '{"a":["b","b"]}']) {
    assert.doesNotThrow(() => JSON.parse(json) as unknown, json);
    assert.equal(repeatedKey(json), undefined, json);
  }
  for (const [json, name] of [['{"a":1,"a":1}', 'a'], ['{"":1,"":2}', ''], ['{"a":1,"b":{"c":[{"d":1,"d" : 2}]}}', 'd'], ['{"\\u0061":1,"a":2}', 'a'], ['{"\\"":1,"\\u0022":2}', '"'], ['[{"__proto__":1,"__proto__":2}]', '__proto__'], ['{"a":{"b":1},"b":2,\n"a"\t:3}', 'a']] as const) {
    assert.doesNotThrow(() => JSON.parse(json) as unknown, json);
    assert.equal(repeatedKey(json), name, json);
  }
});

const seed = runSeed();
test(`repeated key - drawn objects, with and without a name written twice (TROUPE_SEED=${seed})`, () => {
  const names = ['a', 'b', 'é', 'a"', '\\', ':', '{', 'a b', '😀', '\n'];
  for (let run = 0; run < 2_000; run++) {
    const random = seeded(seed + run);
    const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)] as T;
    let twice: string | undefined;
    const written = (name: string): string => (random() < 0.2 ? `"${[...name].map((c) => c.split('').map((u) => `\\u${u.charCodeAt(0).toString(16).padStart(4, '0')}`).join('')).join('')}"` : JSON.stringify(name));
    const space = (): string => pick(['', '', ' ', '\n', '\t ']);
    const value = (depth: number): string => {
      const kind = depth > 3 ? 2 : Math.floor(random() * 4);
      if (kind === 0) {
        const own = names.filter(() => random() < 0.4);
        const again = own.length > 0 && twice === undefined && random() < 0.05 ? pick(own) : undefined;
        const parts = own.map((name) => `${space()}${written(name)}${space()}:${value(depth + 1)}`);
        if (again !== undefined) {
          // Of several the first to end counts: none inside may come after it.
          twice ??= again;
          parts.push(`${written(again)}:0`);
        }
        return `{${parts.join(',')}${space()}}`;
      }
      if (kind === 1) return `[${Array.from({ length: Math.floor(random() * 4) }, () => value(depth + 1)).join(',')}]`;
      return pick(['1', 'null', JSON.stringify(`x${pick(names)}":`), '"{"', '"\\\\"']);
    };
    const json = value(0);
    JSON.parse(json);
    assert.equal(repeatedKey(json), twice, json);
  }
});
