/**
 * The name actor: one holder per name. Key: see `address.ts`; contract: contracts/name.ts.
 *
 * Guarantees: turns run one at a time, so of several claims exactly one finds the name free. Time lapses a claim only when somebody
 * else claims: until then its holder may still confirm it. What changes nothing journals nothing.
 * It does not know whether its holder exists: who makes a holder claims first, and confirms or releases durably afterwards.
 */
import { coded } from '../../contracts/errors.ts';
import { nameCommands, nameEvents } from '../../contracts/name.ts';
import { defineActor } from '../runtime/define.ts';

export type NameState =
  | { readonly name: 'free' }
  /** `until`: Unix milliseconds at which the claim lapses; null = never. */
  | { readonly name: 'held'; readonly holder: string; readonly until: number | null };

/** The holder at a time; undefined if the name is free or its claim has lapsed. */
const holderAt = (state: NameState, now: number): string | undefined =>
  (state.name === 'held' && (state.until === null || now < state.until) ? state.holder : undefined);

/** The name actor's definition. It needs nothing from outside. */
export const name = () => defineActor({
  type: 'name',
  events: nameEvents,
  initial: (): NameState => ({ name: 'free' }),
  apply: {
    NameClaimed: (_state, e): NameState => ({ name: 'held', holder: e.holder, until: e.until }),
    NameConfirmed: (_state, e): NameState => ({ name: 'held', holder: e.holder, until: null }),
    NameReleased: (): NameState => ({ name: 'free' }),
  },
  commands: (command) => ({
    claim: command({
      ...nameCommands.claim, access: 'system',
      handle: (turn, { holder, forMs }) => {
        const { state, now } = turn;
        const current = holderAt(state, now);
        if (current !== undefined && current !== holder) return { holder: current, mine: false };
        const forGood = current !== undefined && state.name === 'held' && state.until === null;
        if (!forGood) turn.emit('NameClaimed', { holder, until: forMs === undefined ? null : now + forMs });
        return { holder, mine: true };
      },
    }),
    confirm: command({
      ...nameCommands.confirm, access: 'system',
      handle: (turn, { holder }) => {
        const { state } = turn;
        if (state.name === 'free' || state.holder !== holder) throw coded('conflict', 'The name is not held by this holder.');
        if (state.until !== null) turn.emit('NameConfirmed', { holder });
        return {};
      },
    }),
    release: command({
      ...nameCommands.release, access: 'system',
      handle: (turn, { holder }) => {
        if (turn.state.name === 'held' && turn.state.holder === holder) turn.emit('NameReleased', { holder });
        return {};
      },
    }),
    holder: command({
      ...nameCommands.holder, access: 'system',
      handle: (turn) => ({ holder: holderAt(turn.state, turn.now) ?? null }),
    }),
  }),
});

export type NameCommands = NonNullable<ReturnType<typeof name>['types']>['commands'];
