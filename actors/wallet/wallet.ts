/**
 * The wallet actor: what a payer has used of the month's credits. Contract: contracts/wallet.ts.
 *
 * Guarantees
 * K1  A turn is charged once: its id is remembered here besides the message's by the runtime, over the last `limits.walletTurnsMax` turns.
 *     The charge is one turn of this actor: concurrent ends neither lose nor double one (BIL-022).
 * K2  A turn counts in the month in which it ended, however late it is told; one of a month that is over lowers no balance.
 * K3  `usage.alert` goes out at 80 % and at 100 %, each once a period and grant, durably (AUD-013).
 * K4  A paid invoice begins a period in which nothing is used, once: a word of payments that comes late or again changes nothing (BIL-050).
 * It refuses nobody: whoever starts a turn asks for the balance first.
 */
import { idOf, isOrganizationId } from '../../contracts/ids.ts';
import { limits } from '../../contracts/limits.ts';
import { alertPercents, walletCommands, walletEvents } from '../../contracts/wallet.ts';
import { defineActor, type PayloadOf, type Turn } from '../runtime/define.ts';
import { webhookAddress } from '../organization/notify.ts';
import { periodOf } from './period.ts';
import { boundsAt, fold, initialWallet, periodAt, reached, usedIn, type WalletState } from './state.ts';

type WalletEvents = typeof walletEvents;
interface WalletTurn extends Pick<Turn<WalletState, WalletEvents, Record<never, never>>, 'state' | 'now' | 'self' | 'newId' | 'tell' | 'remind'> {
  emit<K extends keyof WalletEvents>(kind: K, payload: PayloadOf<WalletEvents[K]>): void;
}

/** Tells the organization's webhook of shares that are reached and not yet told. */
const alert = (turn: WalletTurn): void => {
  const { period } = turn.state;
  if (period !== periodAt(turn.state, turn.now)) return;
  for (const percent of alertPercents) {
    const { monthly, used, alerted } = turn.state;
    if (alerted.includes(percent) || !reached(turn.state, percent)) continue;
    turn.emit('AlertRaised', { period, percent });
    // A personal workspace has no webhook.
    if (!isOrganizationId(turn.self.key)) continue;
    const { startMs, endMs } = boundsAt(turn.state, period);
    turn.tell(webhookAddress(turn.self.key), 'notify', {
      id: idOf('evt', turn.newId()), type: 'usage.alert', created: new Date(turn.now).toISOString(),
      data: { percent, used, monthly, periodStart: new Date(startMs).toISOString(), periodEnd: new Date(endMs).toISOString() },
    });
    // If its host is lost before it is sent, the activation that this makes sends it.
    turn.remind('tells', { inMs: limits.organizationWakeMs });
  }
};

/** The wallet actor's definition. */
export const wallet = () => defineActor({
  type: 'wallet',
  events: walletEvents,
  initial: initialWallet,
  apply: fold,
  stateVersion: 2,
  commands: (command) => ({
    charge: command({
      ...walletCommands.charge, access: 'system',
      handle: (turn, { at, ...charge }) => {
        if (turn.state.turns.includes(charge.turn_id)) return { charged: false };
        // A clock that runs ahead must not begin the next period.
        turn.emit('Charged', { ...charge, period: periodAt(turn.state, Math.min(at, turn.now)) });
        alert(turn);
        return { charged: true };
      },
    }),
    grant: command({
      ...walletCommands.grant, access: 'system',
      handle: (turn, { monthly, revision }) => {
        if (revision <= turn.state.revision) return {};
        turn.emit('Granted', { monthly, revision });
        alert(turn);
        return {};
      },
    }),
    renew: command({
      ...walletCommands.renew, access: 'system',
      handle: (turn, renewal) => {
        const { paid, paid_revision: last } = turn.state;
        if (renewal.revision <= last) return {};
        // Later than the one before, whatever the clocks of two hosts say.
        const atMs = Math.max(turn.now, paid === null ? 0 : Date.parse(paid.period) + 1);
        turn.emit('Renewed', { ...renewal, period: new Date(atMs).toISOString() });
        return {};
      },
    }),
    lapse: command({
      ...walletCommands.lapse, access: 'system',
      handle: (turn, { revision }) => {
        const { state, now } = turn;
        if (revision > state.paid_revision) turn.emit('Lapsed', { period: periodOf(now), used: usedIn(state, periodAt(state, now)), revision });
        return {};
      },
    }),
    balance: command({
      ...walletCommands.balance, access: 'system',
      handle: ({ state, now }, { monthly = state.monthly }) => {
        const period = periodAt(state, now);
        const used = usedIn(state, period);
        const { startMs, endMs } = boundsAt(state, period);
        return { remaining: Math.max(0, monthly - used), monthly, used, period_start: startMs, period_end: endMs };
      },
    }),
  }),
  reminders: { tells: () => undefined },
});
