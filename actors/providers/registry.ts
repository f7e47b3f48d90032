/**
 * The model registry: id → provider, the vendor's name, context size and price. Built once at start from the configuration;
 * a model whose provider has no credentials is a start-up error, not a surprise in a turn.
 */
import type { ModelEntry } from '../../contracts/config.ts';
import { priceOf, type Price } from './price.ts';
import type { Provider } from './provider.ts';

export interface RegisteredModel {
  readonly id: string;
  /** Whose it is. */
  readonly vendor: ModelEntry['provider'];
  readonly provider: Provider;
  /** The vendor's name of the model. */
  readonly upstream: string;
  readonly contextTokens: number;
  readonly maxOutputTokens: number;
  readonly price: Price;
}

export interface Registry {
  /** Id of the model of a session that names none. */
  readonly defaultModel: string;
  readonly ids: readonly string[];
  get(id: string): RegisteredModel | undefined;
}

export type Providers = Partial<Readonly<Record<ModelEntry['provider'], Provider>>>;

/** Throws a TypeError whose sentence names the configuration key when a provider is missing, an id is double, or the default unknown. */
export const createRegistry = (models: { readonly default: string; readonly registry: readonly ModelEntry[] }, providers: Providers): Registry => {
  const byId = new Map<string, RegisteredModel>();
  for (const entry of models.registry) {
    const provider = providers[entry.provider];
    if (provider === undefined) throw new TypeError(`models.registry: model ${entry.id} needs [providers.${entry.provider}] with an api_key_path`);
    if (byId.has(entry.id)) throw new TypeError(`models.registry: model ${entry.id} is listed twice`);
    byId.set(entry.id, {
      id: entry.id, vendor: entry.provider, provider, upstream: entry.upstream_model ?? entry.id,
      contextTokens: entry.context_tokens, maxOutputTokens: entry.max_output_tokens, price: priceOf(entry),
    });
  }
  if (!byId.has(models.default)) throw new TypeError(`models.default: ${models.default} is not in models.registry`);
  return { defaultModel: models.default, ids: [...byId.keys()], get: (id) => byId.get(id) };
};
