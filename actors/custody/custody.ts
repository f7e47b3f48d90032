/**
 * The custody actor: one user's keys in one organization, and the passkeys that may answer for the user. Key = the user's id;
 * contract: contracts/custody.ts.
 *
 * Guarantees: the first keys adopted hold for ever, so that two first uses at once give one pair. A challenge is valid once, for
 * `limits.challengeTtlMs`, for this user only. A signature counter only grows (once an authenticator counts). It holds ciphertext
 * and public values, no more: opening a key, drawing a challenge and checking a passkey's signature are the daemon's work, because
 * a turn does no I/O and its events must be safe to journal. Only the daemon may ask it.
 */
import { custodyCommands, custodyEvents, type CustodyKeys, type Passkey } from '../../contracts/custody.ts';
import { coded, refuse, type ErrorCode } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { defineActor } from '../runtime/define.ts';

interface Challenge {
  readonly challenge_sha256: string;
  /** Unix milliseconds. */
  readonly expires_at: number;
}

export interface CustodyState {
  readonly keys: CustodyKeys | null;
  readonly passkeys: readonly Passkey[];
  /** Oldest first. */
  readonly challenges: readonly Challenge[];
}

const without = (challenges: readonly Challenge[], hash: string): readonly Challenge[] => challenges.filter((c) => c.challenge_sha256 !== hash);

/** Throws `code` unless the challenge waits and has not expired. */
const requireChallenge = (state: CustodyState, hash: string, now: number, code: ErrorCode): void => {
  const known = state.challenges.find((c) => c.challenge_sha256 === hash);
  if (known === undefined || known.expires_at <= now) throw coded(code, 'The challenge is not one of this user\'s, was used or has expired.');
};

/** The custody actor's definition. It needs nothing from outside. */
export const custody = () => defineActor({
  type: 'custody',
  events: custodyEvents,
  initial: (): CustodyState => ({ keys: null, passkeys: [], challenges: [] }),
  apply: {
    KeysAdopted: (state, { keys }) => ({ ...state, keys }),
    ChallengeIssued: (state, { challenge_sha256, issued_at, expires_at }) => ({
      ...state,
      challenges: [...state.challenges.filter((c) => c.expires_at > issued_at), { challenge_sha256, expires_at }].slice(-limits.challengesMax),
    }),
    PasskeyEnrolled: (state, e) => ({ ...state, passkeys: [...state.passkeys, e.passkey], challenges: without(state.challenges, e.challenge_sha256) }),
    PasskeyUsed: (state, e) => ({
      ...state,
      passkeys: state.passkeys.map((p) => (p.credential_id === e.credential_id ? { ...p, counter: e.counter } : p)),
      challenges: without(state.challenges, e.challenge_sha256),
    }),
  },
  commands: (command) => ({
    keys: command({
      ...custodyCommands.keys, access: 'system',
      handle: (turn) => ({ keys: turn.state.keys }),
    }),
    adopt: command({
      ...custodyCommands.adopt, access: 'system',
      handle: (turn, { keys }) => {
        if (turn.state.keys !== null) return { keys: turn.state.keys };
        turn.emit('KeysAdopted', { keys });
        return { keys };
      },
    }),
    challenge: command({
      ...custodyCommands.challenge, access: 'system',
      handle: (turn, { challenge_sha256 }) => {
        const expires_at = turn.now + limits.challengeTtlMs;
        turn.emit('ChallengeIssued', { challenge_sha256, issued_at: turn.now, expires_at });
        return { expires_at_unix: Math.floor(expires_at / 1_000) };
      },
    }),
    passkeys: command({
      ...custodyCommands.passkeys, access: 'system',
      handle: (turn) => ({ passkeys: [...turn.state.passkeys] }),
    }),
    enroll: command({
      ...custodyCommands.enroll, access: 'system',
      handle: (turn, { challenge_sha256, passkey }) => {
        const { state, now } = turn;
        requireChallenge(state, challenge_sha256, now, 'bad_attestation');
        if (state.passkeys.some((p) => p.credential_id === passkey.credential_id)) throw coded('bad_attestation', 'This passkey is enrolled already.');
        if (state.passkeys.length >= limits.passkeysMax) throw refuse('too_many_passkeys', `A user has at most ${limits.passkeysMax} passkeys.`);
        turn.emit('PasskeyEnrolled', { challenge_sha256, passkey, at: now });
        return {};
      },
    }),
    assert: command({
      ...custodyCommands.assert, access: 'system',
      handle: (turn, { challenge_sha256, credential_id, counter }) => {
        const { state, now } = turn;
        requireChallenge(state, challenge_sha256, now, 'bad_assertion');
        const known = state.passkeys.find((p) => p.credential_id === credential_id);
        if (known === undefined) throw coded('bad_assertion');
        // WebAuthn level 3, 7.2 step 25: looked at again here, because two assertions may have been checked against one old counter.
        if ((counter > 0 || known.counter > 0) && counter <= known.counter) throw coded('bad_assertion', 'The passkey\'s signature counter did not grow.');
        turn.emit('PasskeyUsed', { challenge_sha256, credential_id, counter, at: now });
        return {};
      },
    }),
  }),
});

export type CustodyCommands = NonNullable<ReturnType<typeof custody>['types']>['commands'];
