/**
 * Asks actors by their contract's table of commands, as the daemon: input and output are typed by it, and the output is checked.
 *
 * `once`: under an id of its own, so that the router may repeat the ask over a hand-over and it takes effect once. What only looks has none,
 * because ids are journaled.
 */
import { randomUUID } from 'node:crypto';
import type { z } from 'zod';
import type { ActorAddress } from '../../../contracts/subjects.ts';
import type { Sender } from '../../runtime/message.ts';

type Commands = Readonly<Record<string, { readonly input: z.ZodType; readonly output: z.ZodType }>>;

/** Throws the actor's coded errors; an output that is not the contract's is a bug. */
export type AskOf<C extends Commands> = <Name extends keyof C & string>(address: ActorAddress, command: Name, input: z.input<C[Name]['input']>, how?: 'once') => Promise<z.output<C[Name]['output']>>;

export const askBy = <const C extends Commands>(actors: Pick<Sender, 'ask'>, commands: C): AskOf<C> => async (address, command, input, how) => {
  const output: C[typeof command]['output'] | undefined = commands[command]?.output;
  if (output === undefined) throw new TypeError(`the contract has no command ${command}`);
  return output.parse(await actors.ask({ address, command, input, principal: { kind: 'system' }, ...(how === 'once' ? { id: randomUUID() } : {}) }));
};
