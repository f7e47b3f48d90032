/**
 * The device actor: one device authorization from its start until it is forgotten. Key: see codes.ts; contract: contracts/device.ts.
 *
 *   none ─start─▶ pending ─decide─▶ approved | denied ─redeem─▶ over
 *                    └──── 900 s ──▶ expired ───── an hour ────▶ over
 *
 * Guarantees: turns run one at a time, so of an approval and a denial at once the first counts and the other finds nothing, and of many
 * polls one learns the decision. Expiry is read from the turn's time, not from the reminder, which may come late. What was approved in
 * time can be fetched for `limits.deviceLateMs` longer (interface 3.1: expiry ends what has no approval). What is over holds nothing else.
 * It knows neither the device code nor any token: the daemon checks the first and makes the second.
 */
import type { z } from 'zod';
import { deviceCommands, deviceEvents } from '../../contracts/device.ts';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { defineActor } from '../runtime/define.ts';

interface Pending {
  readonly name: 'pending';
  readonly user_code: string;
  readonly client_id: string;
  /** Unix milliseconds. */
  readonly expires_at: number;
}

export type DeviceState =
  | { readonly name: 'none' }
  | Pending
  | { readonly name: 'approved'; readonly client_id: string; readonly user_id: string; readonly approved_at: number; readonly expires_at: number }
  | { readonly name: 'denied'; readonly client_id: string }
  | { readonly name: 'expired'; readonly client_id: string }
  | { readonly name: 'over' };

type Decided = z.output<typeof deviceCommands.decide.output>;
type Redeemed = z.output<typeof deviceCommands.redeem.output>;

/** What a poll finds, told to the client that began it alone. */
const found = (state: DeviceState, now: number, client_id: string | undefined): z.output<typeof deviceCommands.poll.output>['state'] => {
  if (state.name === 'none' || state.name === 'over') return 'unknown';
  if (client_id !== undefined && client_id !== state.client_id) return 'other_client';
  if (state.name === 'pending') return now < state.expires_at ? 'pending' : 'expired';
  if (state.name === 'approved') return now < state.expires_at + limits.deviceLateMs ? 'approved' : 'expired';
  return state.name;
};

/** Of an authorization that had one; every event but the first follows such a state. */
const clientOf = (state: DeviceState): string => ('client_id' in state ? state.client_id : '');

/** What waits for a person. Throws `not_found`, `device_expired`. */
const waiting = ({ state, now }: { readonly state: DeviceState; readonly now: number }): Pending => {
  if (state.name === 'expired' || (state.name === 'pending' && now >= state.expires_at)) throw coded('device_expired');
  if (state.name !== 'pending') throw coded('not_found', 'There is no such code, or it was used.');
  return state;
};

/** The device actor's definition. It needs nothing from outside. */
export const device = () => defineActor({
  type: 'device',
  forgetAfterMs: limits.deviceForgetMs,
  events: deviceEvents,
  initial: (): DeviceState => ({ name: 'none' }),
  apply: {
    DeviceStarted: (_state, e): DeviceState => ({ name: 'pending', user_code: e.user_code, client_id: e.client_id, expires_at: e.expires_at }),
    DeviceApproved: (state, e, { at }): DeviceState => ({
      name: 'approved', client_id: clientOf(state), user_id: e.user_id, approved_at: at, expires_at: state.name === 'pending' ? state.expires_at : at,
    }),
    DeviceDenied: (state): DeviceState => ({ name: 'denied', client_id: clientOf(state) }),
    DeviceExpired: (state): DeviceState => ({ name: 'expired', client_id: clientOf(state) }),
    DeviceRedeemed: (): DeviceState => ({ name: 'over' }),
    DeviceForgotten: (): DeviceState => ({ name: 'over' }),
  },
  commands: (command) => ({
    start: command({
      ...deviceCommands.start, access: 'system',
      handle: (turn, { user_code, client_id }) => {
        if (turn.state.name !== 'none') throw coded('conflict');
        const expires_at = turn.now + limits.deviceTtlSec * 1_000;
        turn.emit('DeviceStarted', { user_code, client_id, expires_at });
        turn.remind('expire', { atMs: expires_at });
        return { expires_in: limits.deviceTtlSec };
      },
    }),
    describe: command({
      ...deviceCommands.describe, access: 'system',
      handle: (turn) => {
        const { client_id, user_code, expires_at } = waiting(turn);
        return { client_id, user_code, expires_in: Math.ceil((expires_at - turn.now) / 1_000) };
      },
    }),
    decide: command({
      ...deviceCommands.decide, access: 'system',
      handle: (turn, { action, by }): Decided => {
        const { client_id } = waiting(turn);
        turn.emit(action === 'approve' ? 'DeviceApproved' : 'DeviceDenied', { user_id: by.actor, ip: by.ip, user_agent: by.user_agent });
        return { status: action === 'approve' ? 'approved' : 'denied', client_id };
      },
    }),
    poll: command({
      ...deviceCommands.poll, access: 'system',
      handle: (turn, { client_id }) => ({ state: found(turn.state, turn.now, client_id) }),
    }),
    redeem: command({
      ...deviceCommands.redeem, access: 'system',
      handle: (turn, input): Redeemed => {
        const { state } = turn;
        const poll = found(state, turn.now, input.client_id);
        if (poll !== 'approved' && poll !== 'denied') return { state: poll };
        turn.emit('DeviceRedeemed', {});
        turn.forget('expire');
        turn.forget('forget');
        return state.name === 'approved' ? { state: 'approved', user_id: state.user_id, client_id: state.client_id, approved_at: state.approved_at } : { state: 'denied' };
      },
    }),
  }),
  reminders: {
    expire: (turn) => {
      if (turn.state.name === 'pending') turn.emit('DeviceExpired', {});
      turn.remind('forget', { inMs: limits.deviceKeptMs });
    },
    forget: (turn) => turn.emit('DeviceForgotten', {}),
  },
});

export type DeviceCommands = NonNullable<ReturnType<typeof device>['types']>['commands'];
