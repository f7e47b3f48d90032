/** Which tools a session's model is offered and may use: a person's chat those of the installation, a deployment's session its own. */
import type { Tools } from '../tools/tool.ts';
import type { SessionState } from './state.ts';

export interface SessionTools {
  readonly tools: Tools;
  /** Of sessions of deployments, in place of `tools`. Default the same. */
  readonly deploymentTools?: Tools | undefined;
}

/** Of a branch without effects those that act nowhere else. */
export const toolsOf = (deps: SessionTools, { deployment, armed }: Pick<SessionState, 'deployment' | 'armed'>): Tools => {
  const tools = deployment === null ? deps.tools : deps.deploymentTools ?? deps.tools;
  return armed ? tools : new Map([...tools].filter(([, { outward }]) => !outward));
};
