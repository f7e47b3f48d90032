/** The built-in tools, as one set. */
import { parseAllow } from './allow.ts';
import { calculator } from './calculator.ts';
import { clock } from './clock.ts';
import { fetchUrl } from './fetch.ts';
import { memorySearch, memoryWrite } from './memory.ts';
import { remember } from './remember.ts';
import { sendReport } from './report.ts';
import { toolSet, type Tool, type Tools } from './tool.ts';

/** Tools of an installation. `fetchAllow`: configuration `tools.fetch_allow`. Throws a TypeError for a malformed entry. */
export const builtinTools = (options: { readonly fetchAllow: readonly string[] }): Tools =>
  toolSet([clock, calculator, memoryWrite, memorySearch, fetchUrl(parseAllow(options.fetchAllow)), sendReport]);

/** Those tools of an installation that are named (configuration `tools.chat`). Throws a TypeError for a name that is none. */
export const chosenTools = (tools: Tools, names: readonly string[]): Tools => toolSet([...new Set(names)].map((name) => {
  const tool = tools.get(name);
  if (tool === undefined) throw new TypeError(`tools.chat: there is no tool ${name}; there are ${[...tools.keys()].join(', ')}`);
  return tool;
}));

/** What the model is offered in a deployment's session: those of the installation, `remember`, and the deployments' further ones. */
export const deploymentTools = (tools: Tools, further: readonly Tool[] = []): Tools => toolSet([...tools.values(), remember, ...further]);

export { defineTool, toolSet, type Tool, type ToolContext, type Tools } from './tool.ts';
