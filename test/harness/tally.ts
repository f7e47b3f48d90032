/**
 * An actor made for attacking the runtime: it adds, tells others, runs an effect with a visible trace, refuses and breaks.
 * Each addition carries a name, so that a test can say which were lost and which were counted twice.
 */
import { appendFileSync } from 'node:fs';
import { z } from 'zod';
import { defineActor } from '../../actors/runtime/define.ts';
import { refuse } from '../../contracts/errors.ts';

export interface TallyOptions {
  /** Written into every trace: which host ran the effect. */
  readonly host: string;
  /** File that the effect `trace` appends `<host> <name>` to. */
  readonly tracePath: string;
  /** Reads a switch at each call: while it gives true, `fragile` refuses. */
  readonly broken?: () => boolean;
}

// oxlint-disable-next-line typescript/explicit-function-return-type -- the inferred type is what references are typed by
export const tallyActor = ({ host, tracePath, broken = () => false }: TallyOptions) => defineActor({
  type: 'tally',
  events: { added: z.object({ by: z.int(), name: z.string() }), planned: z.object({ name: z.string() }) },
  initial: () => ({ total: 0, names: [] as readonly string[] }),
  apply: {
    added: (state, e) => ({ total: state.total + e.by, names: [...state.names, e.name] }),
    planned: (state) => state,
  },
  effects: (effect) => ({
    trace: effect({
      input: z.object({ name: z.string() }), output: z.object({}), once: 'at-least',
      run: async (_context, input) => {
        appendFileSync(tracePath, `${host} ${input.name}\n`);
        return {};
      },
      done: () => undefined,
    }),
  }),
  commands: (command) => ({
    add: command({
      input: z.strictObject({ by: z.int(), name: z.string() }), output: z.object({ total: z.int() }),
      handle: (turn, input) => {
        turn.emit('added', input);
        return { total: turn.state.total };
      },
    }),
    get: command({
      input: z.strictObject({}), output: z.object({ total: z.int(), names: z.array(z.string()) }),
      handle: (turn) => ({ total: turn.state.total, names: [...turn.state.names] }),
    }),
    /** Adds, and runs the effect that leaves a trace outside. */
    traced: command({
      input: z.strictObject({ name: z.string() }), output: z.object({ total: z.int() }),
      handle: (turn, input) => {
        turn.emit('added', { by: 1, name: input.name });
        turn.effect('trace', input);
        return { total: turn.state.total };
      },
    }),
    /** Tells another tally, durably. */
    forward: command({
      input: z.strictObject({ to: z.string(), by: z.int(), name: z.string() }), output: z.object({}),
      handle: (turn, input) => {
        turn.emit('planned', { name: input.name });
        turn.tell({ org: turn.self.org, type: 'tally', key: input.to }, 'add', { by: input.by, name: input.name });
        return {};
      },
    }),
    /** Refuses with a code of its own while the switch is on, else adds. */
    fragile: command({
      input: z.strictObject({ by: z.int(), name: z.string() }), output: z.object({ total: z.int() }),
      handle: (turn, input) => {
        if (broken()) throw refuse('out_of_order', 'This tally is out of order.');
        turn.emit('added', input);
        return { total: turn.state.total };
      },
    }),
    internal: command({
      input: z.strictObject({}), output: z.object({}), access: 'system',
      handle: () => ({}),
    }),
  }),
});
