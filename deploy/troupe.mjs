#!/usr/bin/env node
/** The `troupe` command: installs where needed, then the command line client on Node 22 (see bootstrap.mjs). */
import { bootstrap, runEntry } from './bootstrap.mjs';

await bootstrap();
await runEntry('gateway/cli/main.ts', process.argv.slice(2));
