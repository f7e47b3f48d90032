/**
 * Charges an ended turn to its payer: the part that every actor type shares whose turns cost something.
 *
 * Guarantee: the tell is in the commit that ends the turn, and `wake` names a reminder that makes an activation to send it if the host is
 * lost before it did; so a turn that was journaled is charged, once (wallet.ts K1).
 */
import { limits } from '../../contracts/limits.ts';
import type { usage } from '../../contracts/stream.ts';
import type { walletCommands } from '../../contracts/wallet.ts';
import type { z } from 'zod';
import type { Turn } from '../runtime/define.ts';
import { walletAddress } from './address.ts';

/** What it needs of a turn. */
export type MeteredTurn = Pick<Turn<unknown, Record<never, never>, Record<never, never>>, 'self' | 'now' | 'tell' | 'remind'>;

export interface EndedTurn {
  readonly id: string;
  /** Who asked. */
  readonly by: string;
  readonly model: string;
  readonly usage: z.output<typeof usage>;
}

/** Nothing is to be paid for a turn that cost nothing, nor by an org token that is not ours. */
export const charge = (turn: MeteredTurn, { id, by, model, usage: used }: EndedTurn, wake: string): void => {
  const wallet = walletAddress(turn.self.org);
  if (wallet === undefined || used.cost_cents === 0) return;
  const input: z.input<typeof walletCommands.charge.input> = {
    turn_id: id, cents: used.cost_cents, model, by, input_tokens: used.input_tokens, output_tokens: used.output_tokens, at: turn.now,
  };
  turn.tell(wallet, 'charge', input);
  turn.remind(wake, { inMs: limits.turnWakeMs });
};
