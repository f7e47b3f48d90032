// Type tests: checked by `tsc`, never run. Each `@ts-expect-error` is an assertion that the line below does not compile.
import { z } from 'zod';
import { defineActor, type ActorReference } from '../../actors/runtime/define.ts';
import { refuse } from '../../contracts/errors.ts';

const account = defineActor({
  type: 'account',
  events: { deposited: z.object({ cents: z.int() }), withdrawn: z.object({ cents: z.int() }) },
  initial: () => ({ cents: 0 }),
  apply: {
    deposited: (state, e) => ({ cents: state.cents + e.cents }),
    withdrawn: (state, e) => ({ cents: state.cents - e.cents }),
  },
  effects: (effect) => ({
    notify: effect({
      input: z.object({ to: z.string() }), output: z.object({ sent: z.boolean() }), once: 'at-most',
      run: async (context, input) => ({ sent: input.to.length > context.state().cents }),
      done: (turn, outcome) => { if (outcome.ok && outcome.output.sent) turn.emit('deposited', { cents: 1 }); },
    }),
  }),
  commands: (command) => ({
    withdraw: command({
      input: z.object({ cents: z.int() }), output: z.object({ balance: z.int() }),
      handle: (turn, input) => {
        if (turn.state.cents < input.cents) throw refuse('insufficient_funds');
        turn.emit('withdrawn', { cents: input.cents });
        turn.effect('notify', { to: 'x' });
        // @ts-expect-error no such event
        turn.emit('stolen', {});
        // @ts-expect-error wrong payload
        turn.emit('withdrawn', { cents: 'x' });
        // @ts-expect-error no such effect
        turn.effect('missing', {});
        // @ts-expect-error wrong effect input
        turn.effect('notify', { to: 1 });
        return { balance: turn.state.cents };
      },
    }),
  }),
});

type Commands = NonNullable<typeof account.types>['commands'];
export const use = async (ref: ActorReference<Commands>): Promise<number> => {
  // @ts-expect-error wrong input
  await ref.ask.withdraw({ cents: 'x' });
  // @ts-expect-error no such command
  await ref.ask.steal({});
  const { balance } = await ref.ask.withdraw({ cents: 5 }, { idempotencyKey: 'k', deadlineMs: 1 });
  return balance;
};
