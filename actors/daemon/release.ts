/** What this process calls itself: to gateways, to NATS, in logs. */
import { createRequire } from 'node:module';
import { z } from 'zod';

const manifest = z.object({ version: z.string() });

/** Product version, of package.json. */
export const releaseOf = (): string => manifest.parse(createRequire(import.meta.url)('../../package.json')).version;

/** Shown by NATS' own monitoring. */
export const connectionName = (host: string): string => `troupe daemon ${host}`;
