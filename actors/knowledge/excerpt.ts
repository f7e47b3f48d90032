/**
 * The part of a text that shows why it was found: the window in which the most weight of different query words stands, the earliest of equals, cut
 * between words. Without a match in the text (a title's, say) its beginning.
 */
import { limits } from '../../contracts/limits.ts';
import type { WordStats } from './inverted.ts';
import { fold } from './words.ts';

/** Places of one word that are looked at. */
const placesMax = 32;

/** Folded text, and for each place of it the place in the text. */
const folded = (text: string): { readonly low: string; readonly at: (i: number) => number } => {
  const low = fold(text);
  if (low.length === text.length) return { low, at: (i) => i };
  let whole = '';
  const places: number[] = [];
  /** Texts have few different characters, and folding one is dear. */
  const parts = new Map<string, string>();
  let i = 0;
  for (const character of text) {
    const part = parts.get(character) ?? fold(character);
    parts.set(character, part);
    for (let n = 0; n < part.length; n++) places.push(i);
    whole += part;
    i += character.length;
  }
  return { low: whole, at: (place) => places[place] ?? text.length };
};

const isWord = (character: string | undefined): boolean => character !== undefined && /[\p{L}\p{N}]/u.test(character);

export const excerptOf = (text: string, stats: readonly WordStats[], most: number = limits.knowledgeExcerptMaxChars): string => {
  const flat = text.replace(/\s+/g, ' ').trim();
  if (flat.length <= most) return flat;
  const { low, at } = folded(flat);
  const places: { readonly at: number; readonly word: number; readonly weight: number }[] = [];
  for (const [word, { word: looked, weight }] of stats.entries()) {
    let from = 0;
    for (let n = 0; n < placesMax; n++) {
      const found = low.indexOf(looked, from);
      if (found === -1) break;
      from = found + looked.length;
      const place = at(found);
      // Unless it is cut out of a word; where no spaces are written, it always is.
      if (looked.charCodeAt(0) > 0x2e80 || !isWord(flat[place - 1])) places.push({ at: place, word, weight });
    }
  }
  places.sort((x, y) => x.at - y.at);
  const lead = Math.floor(most / 4);
  const reach = most - lead;
  let best = { at: 0, weight: 0 };
  for (const [i, first] of places.entries()) {
    const words = new Set<number>();
    let weight = 0;
    for (let j = i; j < places.length; j++) {
      const place = places[j];
      if (place === undefined || place.at - first.at > reach) break;
      if (!words.has(place.word)) weight += place.weight;
      words.add(place.word);
    }
    if (weight > best.weight) best = { at: first.at, weight };
  }
  let start = Math.max(0, Math.min(best.at - lead, flat.length - most + 1));
  if (best.weight === 0) start = 0;
  // Whole words at both ends, where there are any near.
  if (start > 0) {
    const space = flat.indexOf(' ', start);
    if (space !== -1 && space < best.at) start = space + 1;
  }
  const room = most - (start > 0 ? 1 : 0);
  let end = start + room;
  if (end < flat.length) {
    end -= 1;
    const space = flat.lastIndexOf(' ', end);
    if (space > start + room / 2) end = space;
  }
  return `${start > 0 ? '…' : ''}${flat.slice(start, end).toWellFormed().trim()}${end < flat.length ? '…' : ''}`;
};
