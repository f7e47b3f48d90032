/** Names that people give: what may stand on a page, in a mail or on a terminal as somebody's name. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { displayName } from '../../contracts/ids.ts';

test('names - a name shows something, on one line, in the order it is written [ORG-023]', () => {
  for (const name of ['Acme', 'Ünïcödé', 'שלום', '日本', '👩‍👩‍👧‍👦', '🏴󠁧󠁢󠁥󠁮󠁧󠁿', 'نویسه‌ها', 'a'.repeat(128), '😀'.repeat(128), '<script>alert(1)</script>', '=1+1']) assert.equal(displayName.parse(` ${name} `), name);
  assert.equal(displayName.parse('e\u0301'), 'é');
  const unseen = ['', ' ', '\u200b', '\u200d', '\u2060\ufeff', '\u00ad', '\u3164', '\u115f', '\u2800', '\u0301', '\ufe0f', '\u{e0041}'];
  const commands = ['a\nb', 'a\rb', 'a\u001b[31m', 'a\u009b31m', 'a\u0000', 'a\u2028b', 'a\u2029b', 'a\u202eb', 'a\u2066b', 'a\u200fb', 'a\u200eb', 'a\u061cb', 'a\ud800'];
  for (const name of [...unseen, ...commands, 'a'.repeat(129)]) assert.ok(!displayName.safeParse(name).success, JSON.stringify(name));
});
