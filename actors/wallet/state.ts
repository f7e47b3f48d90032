/** What a wallet remembers and how its events change it: the pure fold. Bounded: ids of the last `limits.walletTurnsMax` turns. */
import type { z } from 'zod';
import { limits } from '../../contracts/limits.ts';
import { plans } from '../../contracts/plans.ts';
import { boundsOf, periodOf } from './period.ts';
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
  /** The period of the last paid invoice, if a subscription is in force, and the Unix milliseconds for which is paid. */
  readonly paid: { readonly period: string; readonly until: number | null } | null;
  /** Of the last word of payments; empty = none. */
  readonly paid_revision: string;
  /** Turns that were charged, oldest first. */
  readonly turns: readonly string[];
}

export const initialWallet = (): WalletState => ({ monthly: plans.free.limits.credits, revision: '', period: '', used: 0, alerted: [], paid: null, paid_revision: '', turns: [] });

/** The period that a time belongs to. What was before the last invoice belongs to what is over. */
export const periodAt = ({ paid }: Pick<WalletState, 'paid'>, atMs: number): string =>
  (paid !== null && atMs >= Date.parse(paid.period) ? paid.period : periodOf(atMs));

/** Unix milliseconds of a period's first moment, and of the next one's: of one that an invoice began, as far as that can be known. */
export const boundsAt = ({ paid }: Pick<WalletState, 'paid'>, period: string): { readonly startMs: number; readonly endMs: number } => {
  if (paid === null || paid.period !== period) return boundsOf(period);
  const start = new Date(period);
  return { startMs: start.getTime(), endMs: paid.until ?? start.setUTCMonth(start.getUTCMonth() + 1) };
};

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
  Renewed: (state: WalletState, { period, until, revision }: Payload<'Renewed'>): WalletState =>
    ({ ...state, paid: { period, until }, paid_revision: revision, period, used: 0, alerted: [] }),
  Lapsed: (state: WalletState, { period, used, revision }: Payload<'Lapsed'>): WalletState =>
    ({ ...state, paid: null, paid_revision: revision, period, used, alerted: used === 0 ? [] : state.alerted }),
  AlertRaised: (state: WalletState, { period, percent }: Payload<'AlertRaised'>): WalletState =>
    (period === state.period ? { ...state, alerted: [...state.alerted, percent] } : state),
} as const;
