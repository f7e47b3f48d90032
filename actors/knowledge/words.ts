/**
 * Text as the words an index knows: lower case, without accents, a plural s taken off.
 *
 * A word is a run of letters and digits; what is written without spaces (Chinese, Japanese) becomes its pairs of characters, so that any part of it is
 * found. The same rules hold for documents and queries, so what they conflate is conflated on both sides. Linear in the text.
 */

/** Longer words are cut: nobody types them. */
const wordMaxChars = 64;
const wordForm = /[\p{L}\p{N}]+/gu;
const unspaced = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]/u;
// Nothing to fold: most text.
const ascii = /^[\t\n\r -~]*$/;

/**
 * Lower case without accents. The length may change. Marks are taken off before, too: to bring a run of them into canonical order takes the square of its
 * length, minutes for a megabyte.
 */
export const fold = (text: string): string =>
  (ascii.test(text) ? text.toLowerCase() : text.replace(/\p{M}+/gu, '').normalize('NFKD').replace(/\p{M}+/gu, '').toLowerCase());

const singular = (word: string): string => (word.length > 3 && word.endsWith('s') && !word.endsWith('ss') ? word.slice(0, -1) : word);

/** Calls `take` with each word, in order. */
export const eachWord = (text: string, take: (word: string) => void): void => {
  for (const [run] of fold(text).matchAll(wordForm)) {
    if (unspaced.test(run)) {
      const characters = [...run];
      if (characters.length === 1) take(run);
      for (let i = 0; i + 1 < characters.length; i++) take(`${characters[i] ?? ''}${characters[i + 1] ?? ''}`);
    } else {
      take(singular(run.length > wordMaxChars ? run.slice(0, wordMaxChars) : run));
    }
  }
};

/** The different words of a query, the first `most`. */
export const wordsOf = (text: string, most: number): readonly string[] => {
  const words = new Set<string>();
  eachWord(text, (word) => {
    if (words.size < most) words.add(word);
  });
  return [...words];
};
