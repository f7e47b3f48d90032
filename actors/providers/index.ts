/** Model providers: the interface, the vendors, and the registry a daemon builds at start. */
import type { ModelEntry } from '../../contracts/config.ts';
import { anthropic } from './anthropic.ts';
import { mock } from './mock.ts';
import { openai } from './openai.ts';
import { createRegistry, type Registry } from './registry.ts';

/** A vendor's credentials: the key itself, read by the daemon from its file. */
export interface Credentials {
  readonly apiKey: string;
  readonly baseUrl?: string | undefined;
}

/** The registry of a configuration (`models`) with the vendors that have credentials; `mock` is always there. */
export const modelRegistry = (
  models: { readonly default: string; readonly registry: readonly ModelEntry[] },
  credentials: { readonly openai?: Credentials | undefined; readonly anthropic?: Credentials | undefined },
): Registry => createRegistry(models, {
  mock: mock(),
  ...(credentials.openai === undefined ? {} : { openai: openai(credentials.openai) }),
  ...(credentials.anthropic === undefined ? {} : { anthropic: anthropic(credentials.anthropic) }),
});

export { anthropic } from './anthropic.ts';
export { mock, scripted } from './mock.ts';
export { openai } from './openai.ts';
export { createRegistry, type RegisteredModel, type Registry } from './registry.ts';
export type { Part, PromptMessage, Provider, ProviderCall } from './provider.ts';
