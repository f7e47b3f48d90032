/**
 * Money of a model call in whole numbers: prices are micro-USD per million tokens of integer size, so that a sum of tokens has
 * one exact cost. A turn's cost is in US cents, rounded up once per turn (decisions, Billing: 1 credit = 1 cent, rounded up per turn).
 */
import type { ModelEntry } from '../../contracts/config.ts';
import type { TokenCount } from './provider.ts';

/** Micro-USD per million tokens, which is pico-USD per token. */
export interface Price {
  readonly inputMicroUsdPerMtok: bigint;
  readonly outputMicroUsdPerMtok: bigint;
}

const picoUsdPerCent = 10_000_000_000n;

/** The price of a registry entry. A price finer than a micro-USD per million tokens is rounded to it. */
export const priceOf = (entry: Pick<ModelEntry, 'input_usd_per_mtok' | 'output_usd_per_mtok'>): Price => ({
  inputMicroUsdPerMtok: BigInt(Math.round(entry.input_usd_per_mtok * 1_000_000)),
  outputMicroUsdPerMtok: BigInt(Math.round(entry.output_usd_per_mtok * 1_000_000)),
});

/** US cents of a turn's tokens, rounded up. Nothing used, or a free model, costs 0. */
export const costCents = (price: Price, tokens: TokenCount): number => {
  const pico = BigInt(tokens.input_tokens) * price.inputMicroUsdPerMtok + BigInt(tokens.output_tokens) * price.outputMicroUsdPerMtok;
  return Number((pico + picoUsdPerCent - 1n) / picoUsdPerCent);
};

/** Tokens of a text where nobody counted them: four characters each, rounded up. */
export const estimateTokens = (chars: number): number => Math.ceil(chars / 4);

/** Tokens of a call whose vendor did not say (cancelled, interrupted, or a server without usage). */
export const estimateUsage = (promptChars: number, outputChars: number): TokenCount =>
  ({ input_tokens: estimateTokens(promptChars), output_tokens: estimateTokens(outputChars) });
