/**
 * A model's call of one of our tools, whichever actor's loop it is in: what is offered, what may run, what the model is told.
 *
 * Guarantees: a call that runs has arguments of its tool's schema and of bounded size. What the model is told of a failure has a code and a
 * safe sentence; a bug's words stay here. One agent command repeated within a call takes effect once over every attempt of it.
 */
import { coded, errorEntry, errors } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { sessionCommands } from '../../contracts/session.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';
import type { ToolOffer } from '../providers/provider.ts';
import type { EffectContext } from '../runtime/define.ts';
import type { ToolDeployment, Tools } from './tool.ts';

/** Why a call has no result. */
export interface CallProblem {
  readonly code: string;
  readonly message: string;
}

/** A call that a person did not allow, for the reason they gave, if any. */
export const deniedCall = (reason = ''): CallProblem =>
  ({ code: 'cancelled', message: `The user did not allow this call. It was not run.${reason === '' ? '' : ` Their reason: ${reason}`}` });
/** A call that its turn's end cut off. `ran`: it had begun. */
export const endedCall = (why: string, ran: boolean): CallProblem => ({ code: 'cancelled', message: why + (ran ? ' It may have run.' : ' It was not run.') });

/** The tools as a model sees them. */
export const offersOf = (tools: Tools): ToolOffer[] => [...tools.values()].map(({ name, description, schema: parameters }) => ({ name, description, parameters }));

/** What the model is told of a call that cannot run, or undefined. */
export const callProblem = (tools: Tools, name: string, args: unknown): CallProblem | undefined => {
  const tool = tools.get(name);
  if (tool === undefined) return { code: 'tool_not_found', message: `There is no tool ${name}.` };
  const chars = JSON.stringify(args ?? null).length;
  if (chars > limits.toolArgumentsMaxChars) return { code: 'bad_arguments', message: `The arguments have ${chars} characters; ${limits.toolArgumentsMaxChars} are allowed.` };
  const problem = tool.problem(args);
  return problem === undefined ? undefined : { code: 'bad_arguments', message: problem };
};

/** What the model is told of a tool's effect that failed with this code. */
export const toolFailure = ({ code, message }: CallProblem): CallProblem => {
  if (code === 'interrupted') return { code, message: 'The tool was interrupted by a restart. It may have run.' };
  if (code === 'aborted' || code === 'deadline_exceeded') return { code: 'deadline_exceeded', message: `The tool did not end within ${limits.toolDeadlineMs / 1_000} seconds.` };
  return errorEntry(code).kind === 'bug' ? { code: 'tool_failed', message: errors.tool_failed.message } : { code, message };
};

/** The deployment whose session a call is made in, for its tools. */
const deploymentOf = (context: EffectContext<unknown>, of: { readonly id: string; readonly session_id: string }, stepOf: (name: string) => string): ToolDeployment => ({
  org: context.self.org, id: of.id, session_id: of.session_id,
  remember: async (memory) => {
    const stored = sessionCommands.remember.output.parse(await context.call('remember', { ...memory, id: stepOf(context.id) }));
    return stored.id;
  },
  ask: (target, command, value) => context.ask(target, command, value, stepOf(`${target.type}-${command}`)),
});

/**
 * Runs a call in an actor's effect. `agent`: the one whose memory and reports the tools use. `deployment`: that the session belongs to. Throws
 * `tool_not_found` and what the tool throws.
 */
export const runCall = async (
  tools: Tools, call: { readonly name: string; readonly arguments: unknown }, context: EffectContext<unknown>, agent: ActorAddress,
  deployment?: { readonly id: string; readonly session_id: string } | null,
): Promise<{ result: unknown }> => {
  const tool = tools.get(call.name);
  if (tool === undefined) throw coded('tool_not_found');
  const steps = new Map<string, number>();
  /** The same for the nth of a name over every attempt. */
  const stepOf = (name: string): string => {
    const nth = (steps.get(name) ?? 0) + 1;
    steps.set(name, nth);
    return `${name}-${nth}`;
  };
  const result = await tool.run(call.arguments, {
    signal: context.signal, id: context.id, now: () => Date.now(),
    agent: (command, value) => context.ask(agent, command, value, stepOf(command)),
    ...(deployment === undefined || deployment === null ? {} : { deployment: deploymentOf(context, deployment, stepOf) }),
  });
  return { result: result === undefined ? null : result };
};
