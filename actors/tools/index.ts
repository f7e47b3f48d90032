/** The built-in tools, as one set. */
import { parseAllow } from './allow.ts';
import { calculator } from './calculator.ts';
import { clock } from './clock.ts';
import { fetchUrl } from './fetch.ts';
import { memorySearch, memoryWrite } from './memory.ts';
import { sendReport } from './report.ts';
import { toolSet, type Tools } from './tool.ts';

/** Tools of an installation. `fetchAllow`: configuration `tools.fetch_allow`. Throws a TypeError for a malformed entry. */
export const builtinTools = (options: { readonly fetchAllow: readonly string[] }): Tools =>
  toolSet([clock, calculator, memoryWrite, memorySearch, fetchUrl(parseAllow(options.fetchAllow)), sendReport]);

export { defineTool, toolSet, type Tool, type ToolContext, type Tools } from './tool.ts';
