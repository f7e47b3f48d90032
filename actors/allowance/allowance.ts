/**
 * The allowance actor: how many requests of one organization, person or address have passed this minute and this day. Key: see
 * `address.ts`; contract: contracts/allowance.ts; arithmetic: `windows.ts`.
 *
 * Guarantees: grants are journaled before they are answered, refusals journal nothing. The limits come with each ask, so a changed
 * plan counts at once. It does not know who asks for what: the daemon (actors/daemon/allowances.ts) asks for many requests at a time.
 */
import { allowanceCommands, allowanceEvents } from '../../contracts/allowance.ts';
import { limits } from '../../contracts/limits.ts';
import { defineActor } from '../runtime/define.ts';
import { noAllowance, take, taken, type AllowanceState } from './windows.ts';

/** The allowance actor's definition. It needs nothing from outside. */
export const allowance = () => defineActor({
  type: 'allowance',
  // The last window it counted in is a day long.
  forgetAfterMs: limits.allowanceForgetMs,
  events: allowanceEvents,
  initial: (): AllowanceState => noAllowance,
  apply: { AllowanceTaken: taken },
  commands: (command) => ({
    take: command({
      ...allowanceCommands.take, access: 'system',
      handle: (turn, input) => {
        const { output, event } = take(turn.state, input, turn.now);
        if (event !== undefined) turn.emit('AllowanceTaken', event);
        return output;
      },
    }),
  }),
});

export type AllowanceCommands = NonNullable<ReturnType<typeof allowance>['types']>['commands'];
