/**
 * Which facts answer a query: those that share words with it, best first. Deterministic, no index, no model: an agent's memory
 * is small and bounded. A word that few facts hold weighs more than one that most hold; a fact's relevance decides between
 * near-equals, then the newer one.
 */
import type { MemoryFact } from '../../contracts/agent.ts';

const wordPattern = /[\p{L}\p{N}]+/gu;

/** Distinct words in lower case, accents folded (NFKD without marks; those that stand there go first, as sorting a run of them takes the square of its length). */
export const wordsOf = (text: string): Set<string> =>
  new Set(text.replace(/\p{M}+/gu, '').normalize('NFKD').replace(/\p{M}+/gu, '').toLowerCase().match(wordPattern) ?? []);

/** Facts with at least one word of the query, best first; all facts, newest first, for a query without words. */
export const rank = (facts: readonly MemoryFact[], query: string): MemoryFact[] => {
  const asked = wordsOf(query);
  if (asked.size === 0) return [...facts].reverse();
  const words = facts.map((f) => wordsOf(f.fact));
  const weight = new Map<string, number>();
  for (const word of asked) {
    const holders = words.filter((w) => w.has(word)).length;
    weight.set(word, Math.log(1 + facts.length / (1 + holders)) + 0.1);
  }
  const scored: { fact: MemoryFact; score: number; nth: number }[] = [];
  for (const [nth, fact] of facts.entries()) {
    let score = 0;
    for (const word of asked) if (words[nth]?.has(word) === true) score += weight.get(word) ?? 0;
    if (score > 0) scored.push({ fact, score: score * (0.75 + fact.relevance / 2), nth });
  }
  return scored.sort((a, b) => b.score - a.score || b.nth - a.nth).map((s) => s.fact);
};
