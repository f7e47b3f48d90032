/**
 * The configuration of daemon and gateway, written to `.troupe` at each start, checked with the schemas that will read it.
 */
import { join } from 'node:path';
import { stringify } from 'smol-toml';
import type { z } from 'zod';
import { daemonConfig, gatewayConfig, type ModelEntry } from '../../contracts/config.ts';
import { writePrivate } from './folder.ts';

export type DaemonInput = z.input<typeof daemonConfig>;
export type GatewayInput = z.input<typeof gatewayConfig>;

export interface ModelChoice {
  readonly provider: 'openai' | 'anthropic';
  readonly model: string;
  readonly keyPath: string;
  readonly baseUrl?: string;
}

/** The mock model, which needs no account, and the chosen ones; the first chosen one is the default. */
export const modelSections = (choices: readonly ModelChoice[]): Pick<DaemonInput, 'models' | 'providers'> => {
  const registry: z.input<typeof daemonConfig>['models']['registry'] = [{ id: 'mock', provider: 'mock' }];
  const providers: NonNullable<DaemonInput['providers']> = {};
  for (const choice of choices) {
    registry.push({ id: choice.model, provider: choice.provider } satisfies Partial<ModelEntry> & { id: string; provider: string });
    providers[choice.provider] = { api_key_path: choice.keyPath, ...(choice.baseUrl === undefined ? {} : { base_url: choice.baseUrl }) };
  }
  return { models: { default: choices[0]?.model ?? 'mock', registry }, providers };
};

/** Writes a daemon's TOML after checking it. Throws a ZodError (a bug of the writer) for a wrong one. */
export const writeDaemonConfig = (path: string, config: DaemonInput): void => {
  daemonConfig.parse(config);
  writePrivate(path, `# Written by npm start at each start: changes here are lost. Keys: contracts/config.ts\n${stringify(config)}\n`);
};

export const writeGatewayConfig = (path: string, config: GatewayInput): void => {
  gatewayConfig.parse(config);
  writePrivate(path, `# Written by npm start at each start: changes here are lost. Keys: contracts/config.ts\n${stringify(config)}\n`);
};

/** Path of a daemon's socket in a folder of numbered ones. */
export const daemonSocket = (folder: string, index: number): string => join(folder, `d${index}.sock`);
