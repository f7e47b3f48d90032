/**
 * The daemon's handlers of the `/custody/*` routes: between the verified caller, the custody actor and the vault.
 *
 * Guarantees: the caller reaches the actor of its own organization and id, never one named in the body (serve.ts has compared the
 * body's `user_id`). Keys are made here on first use and kept by the actor's first `adopt`; a private key is in the clear only
 * inside the vault. A minted capability is the gateway's: these handlers say only whether it may.
 * What changes the actor is asked under an id of its own, so that a hand-over may repeat it; never under one derived from the
 * request, because a repeat would then be answered with the first success.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import type { z } from 'zod';
import { custodyBodies, custodyCommands, type CustodyKeys } from '../../contracts/custody.ts';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';
import { decodeBase64 } from '../custody/base64.ts';
import { didKey } from '../custody/did.ts';
import type { Vault } from '../custody/vault.ts';
import { challengeHash, type Webauthn } from '../custody/webauthn.ts';
import type { Sender } from '../runtime/message.ts';
import type { DaemonHandler, HandlerRequest } from './serve.ts';

export interface CustodyDeps {
  readonly actors: Pick<Sender, 'ask'>;
  readonly vault: Vault;
  readonly webauthn: Webauthn;
}

type Commands = typeof custodyCommands;
/** Asks the caller's own custody actor. */
type AskCustody = <Name extends keyof Commands>(command: Name, input: z.input<Commands[Name]['input']>) => Promise<z.output<Commands[Name]['output']>>;

interface Caller {
  readonly self: ActorAddress;
  readonly ask: AskCustody;
}

const digestBytes = 32;

const digestOf = (text: string): Buffer => {
  const digest = decodeBase64(text);
  if (digest?.length !== digestBytes) throw coded('bad_digest');
  return digest;
};

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');

/** Handlers by route id. */
export const custodyHandlers = ({ actors, vault, webauthn }: CustodyDeps): Readonly<Record<string, DaemonHandler>> => {
  const callerOf = ({ principal, call }: HandlerRequest): Caller => {
    if (principal === undefined) throw coded('unauthorized');
    const self: ActorAddress = { org: principal.org, type: 'custody', key: principal.sub };
    return {
      self,
      ask: async (command, input) => {
        const output = await actors.ask({
          address: self, command, input, principal: { kind: 'system' }, id: randomUUID(), deadlineAt: call.deadlineAt, signal: call.signal,
        });
        return custodyCommands[command].output.parse(output) as z.output<Commands[typeof command]['output']>;
      },
    };
  };

  /** The caller's keys; made now if this is the first use. Of several first uses the first adopted pair holds for all. */
  const keysOf = async ({ self, ask }: Caller): Promise<CustodyKeys> => {
    const { keys } = await ask('keys', {});
    return keys ?? (await ask('adopt', { keys: vault.make(self) })).keys;
  };

  const signer = (sign: Vault['signAuth']): DaemonHandler => async (request) => {
    const digest = digestOf(custodyBodies.sign.parse(request.body).digest_b64);
    const caller = callerOf(request);
    return { status: 200, body: { signature_b64: base64(sign(caller.self, await keysOf(caller), digest)) } };
  };

  return {
    sign_auth: signer((self, keys, digest) => vault.signAuth(self, keys, digest)),
    sign_wallet: signer((self, keys, digest) => vault.signWallet(self, keys, digest)),
    get_auth_pubkey: async (request) => ({ status: 200, body: { pubkey_b64: (await keysOf(callerOf(request))).auth_pubkey } }),
    get_wallet_pubkey: async (request) => ({ status: 200, body: { pubkey_b64: (await keysOf(callerOf(request))).wallet_pubkey } }),

    challenge: async (request) => {
      const challenge = randomBytes(limits.challengeBytes);
      const { expires_at_unix } = await callerOf(request).ask('challenge', { challenge_sha256: challengeHash(challenge) });
      return { status: 200, body: { challenge_b64: base64(challenge), expires_at_unix } };
    },

    enroll_passkey: async (request) => {
      const body = custodyBodies.enroll.parse(request.body);
      const caller = callerOf(request);
      const { challengeSha256, passkey } = await webauthn.attestation({
        attestationObjectB64: body.attestation_object_b64, clientDataB64: body.client_data_json_b64,
      });
      // First, so that nothing is enrolled when there can be no answer.
      const keys = await keysOf(caller);
      await caller.ask('enroll', { challenge_sha256: challengeSha256, passkey });
      return { status: 200, body: { did: didKey(Buffer.from(keys.auth_pubkey, 'base64')) } };
    },

    mint_session_cap: async (request) => {
      const { passkey_assertion_b64: assertionB64, client_data_json_b64: clientDataB64 } = custodyBodies.mint.parse(request.body);
      const caller = callerOf(request);
      const { passkeys } = await caller.ask('passkeys', {});
      if (assertionB64 === undefined) {
        if (passkeys.length > 0 || clientDataB64 !== undefined) throw coded('bad_assertion', 'A passkey assertion is required.');
        return { status: 200, body: {} };
      }
      const { challengeSha256, credentialId, counter } = await webauthn.assertion({ assertionB64, clientDataB64 }, passkeys);
      await caller.ask('assert', { challenge_sha256: challengeSha256, credential_id: credentialId, counter });
      return { status: 200, body: {} };
    },
  };
};
