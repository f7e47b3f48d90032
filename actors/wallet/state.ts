/** What a wallet remembers and how its events change it: the pure fold. Bounded: ids of the last `limits.walletTurnsMax` turns. */
import type { z } from 'zod';
import { limits } from '../../contracts/limits.ts';
import { plans } from '../../contracts/plans.ts';
import type { walletEvents, WalletEventKind } from '../../contracts/wallet.ts';

type Payload<K extends WalletEventKind> = z.output<(typeof walletEvents)[K]>;

export interface WalletState {
  /** Credits of a month. */
  readonly monthly: number;
  /** Of the grant that said so; empty = plan free's, with which everybody begins. */
  readonly revision: string;
  /** The newest period in which something was charged; empty = none. */
  readonly period: string;
  /** Cents charged in it. */
  readonly used: number;
  /** Percents of which the alert of that period was given. */
  readonly alerted: readonly number[];
  /** Turns that were charged, oldest first. */
  readonly turns: readonly string[];
}

export const initialWallet = (): WalletState => ({ monthly: plans.free.limits.credits, revision: '', period: '', used: 0, alerted: [], turns: [] });

/** Cents that count against the credits of a period. */
export const usedIn = (state: WalletState, period: string): number => (state.period === period ? state.used : 0);

/** Whether so much of the month's credits is used. Without credits there is no share of them. */
export const reached = ({ monthly, used }: Pick<WalletState, 'monthly' | 'used'>, percent: number): boolean => monthly > 0 && used * 100 >= monthly * percent;

export const fold = {
  Charged: (state: WalletState, { turn_id, cents, period }: Payload<'Charged'>): WalletState => {
    const turns = [...state.turns.slice(-(limits.walletTurnsMax - 1)), turn_id];
    if (period < state.period) return { ...state, turns };
    if (period > state.period) return { ...state, turns, period, used: cents, alerted: [] };
    return { ...state, turns, used: state.used + cents };
  },
  Granted: (state: WalletState, { monthly, revision }: Payload<'Granted'>): WalletState => {
    const next = { ...state, monthly, revision };
    // Of more credits, a share is used up anew.
    return { ...next, alerted: state.alerted.filter((percent) => reached(next, percent)) };
  },
  AlertRaised: (state: WalletState, { period, percent }: Payload<'AlertRaised'>): WalletState =>
    (period === state.period ? { ...state, alerted: [...state.alerted, percent] } : state),
} as const;
