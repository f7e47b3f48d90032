/** The smallest actor: counts. Shows that an actor type is one folder, and is what the runtime's own tests and benchmarks call. */
import { z } from 'zod';
import { defineActor } from '../../../actors/runtime/define.ts';
import { refuse } from '../../../contracts/errors.ts';

export const counter = defineActor({
  type: 'counter',
  events: { added: z.object({ by: z.int() }) },
  initial: () => ({ count: 0 }),
  apply: { added: (state, e) => ({ count: state.count + e.by }) },
  commands: (command) => ({
    add: command({
      input: z.strictObject({ by: z.int() }),
      output: z.object({ count: z.int() }),
      handle: (turn, { by }) => {
        if (by === 0) throw refuse('nothing_to_add');
        turn.emit('added', { by });
        return { count: turn.state.count };
      },
    }),
    read: command({
      input: z.strictObject({}),
      output: z.object({ count: z.int() }),
      handle: (turn) => ({ count: turn.state.count }),
    }),
  }),
});
