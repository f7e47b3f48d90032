/**
 * A bank account: refusals, an old event version, an effect that must not happen twice, a transfer as a durable tell, a
 * reminder, a public feed. One folder; nothing else knows it.
 */
import { z } from 'zod';
import { defineActor } from '../../../actors/runtime/define.ts';
import { refuse } from '../../../contracts/errors.ts';

const cents = z.int().positive();

export interface BankState {
  readonly balanceCents: number;
  /** Withdrawals that the bank's clearing has not answered: effect id → cents. */
  readonly clearing: Readonly<Record<string, number>>;
  readonly statements: number;
}

export interface Clearing {
  /** Moves money outside. Throws a coded error if it did not. */
  pay(input: { readonly cents: number; readonly to: string }, idempotencyKey: string): Promise<{ receipt: string }>;
}

/** `clearing` is the outside world. */
export const defineBankAccount = (clearing: Clearing) =>
  defineActor({
    type: 'bank-account',
    events: {
      deposited: { version: 2, schema: z.object({ cents, from: z.string() }), upcast: { 1: (old) => ({ ...old, from: 'unknown' }) } },
      withdrawn: z.object({ cents, to: z.string(), payment: z.string() }),
      cleared: z.object({ payment: z.string(), receipt: z.string() }),
      returned: z.object({ payment: z.string(), code: z.string() }),
      sent: z.object({ cents, to: z.string() }),
      stated: z.object({ balanceCents: z.int() }),
    },
    initial: (): BankState => ({ balanceCents: 0, clearing: {}, statements: 0 }),
    apply: {
      deposited: (state, e) => ({ ...state, balanceCents: state.balanceCents + e.cents }),
      withdrawn: (state, e) => ({ ...state, balanceCents: state.balanceCents - e.cents, clearing: { ...state.clearing, [e.payment]: e.cents } }),
      cleared: (state, e) => {
        const { [e.payment]: _, ...open } = state.clearing;
        return { ...state, clearing: open };
      },
      returned: (state, e) => {
        const { [e.payment]: back = 0, ...open } = state.clearing;
        return { ...state, balanceCents: state.balanceCents + back, clearing: open };
      },
      sent: (state, e) => ({ ...state, balanceCents: state.balanceCents - e.cents }),
      stated: (state) => ({ ...state, statements: state.statements + 1 }),
    },
    feed: {
      kinds: ['deposited', 'withdrawn', 'cleared', 'returned', 'sent'],
      running: (state) => Object.keys(state.clearing).length > 0,
    },
    effects: (effect) => ({
      pay: effect({
        input: z.object({ cents, to: z.string() }),
        output: z.object({ receipt: z.string() }),
        once: 'at-most',
        run: (context, input) => clearing.pay(input, context.id),
        done: (turn, outcome) => {
          const [payment] = Object.keys(turn.state.clearing);
          if (payment === undefined) return;
          if (outcome.ok) turn.emit('cleared', { payment, receipt: outcome.output.receipt });
          else turn.emit('returned', { payment, code: outcome.code });
        },
      }),
    }),
    commands: (command) => ({
      deposit: command({
        input: z.strictObject({ cents, from: z.string() }),
        output: z.object({ balanceCents: z.int() }),
        handle: (turn, input) => {
          turn.emit('deposited', input);
          return { balanceCents: turn.state.balanceCents };
        },
      }),
      withdraw: command({
        input: z.strictObject({ cents, to: z.string() }),
        output: z.object({ payment: z.string(), balanceCents: z.int() }),
        handle: (turn, input) => {
          if (Object.keys(turn.state.clearing).length > 0) throw refuse('withdrawal_open');
          if (turn.state.balanceCents < input.cents) throw refuse('insufficient_funds', undefined, { balanceCents: turn.state.balanceCents });
          const payment = turn.effect('pay', input);
          turn.emit('withdrawn', { ...input, payment });
          return { payment, balanceCents: turn.state.balanceCents };
        },
      }),
      transfer: command({
        input: z.strictObject({ cents, to: z.string() }),
        output: z.object({ balanceCents: z.int() }),
        handle: (turn, input) => {
          if (turn.state.balanceCents < input.cents) throw refuse('insufficient_funds', undefined, { balanceCents: turn.state.balanceCents });
          turn.emit('sent', input);
          turn.tell({ ...turn.self, key: input.to }, 'deposit', { cents: input.cents, from: turn.self.key });
          return { balanceCents: turn.state.balanceCents };
        },
      }),
      scheduleStatement: command({
        input: z.strictObject({ inMs: z.int().min(0) }),
        output: z.void(),
        handle: (turn, input) => { turn.remind('statement', input); },
      }),
      balance: command({
        input: z.strictObject({}),
        output: z.object({ balanceCents: z.int(), statements: z.int() }),
        handle: (turn) => ({ balanceCents: turn.state.balanceCents, statements: turn.state.statements }),
      }),
    }),
    reminders: {
      statement: (turn) => { turn.emit('stated', { balanceCents: turn.state.balanceCents }); },
    },
  });
