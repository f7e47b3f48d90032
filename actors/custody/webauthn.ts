/**
 * Checks what a passkey says: attestation (a new passkey) and assertion (a use of one), in full after WebAuthn level 3, 7.1 and 7.2:
 * type, origin, relying party, user present and verified, signature, counter. Adapter of `@simplewebauthn/server`.
 *
 * The challenge is not judged here but given back as its hash: the actor uses it up in the turn that takes the result, so that
 * it is valid once, whatever runs at the same time.
 * Guarantees: whatever is wrong with the data is `bad_attestation` or `bad_assertion`; nothing is fetched: the formats whose
 * certificates name addresses to call (`apple`, `android-key`, `android-safetynet`) are refused, a page asks for attestation `none`.
 * The library (0.5 s, 36 MB) is loaded by the first passkey.
 */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import type { Passkey } from '../../contracts/custody.ts';
import { coded, refuse, type ErrorCode } from '../../contracts/errors.ts';
import { decodeBase64 } from './base64.ts';

export interface WebauthnOptions {
  readonly rpId: string;
  readonly origins: readonly string[];
}

/** A verified statement, and the SHA-256 (hex) of the challenge it answers. */
export interface Attested {
  readonly challengeSha256: string;
  readonly passkey: Passkey;
}
export interface Asserted {
  readonly challengeSha256: string;
  readonly credentialId: string;
  readonly counter: number;
}

export interface Webauthn {
  /** Throws `bad_attestation`; `passkeys_off` if the daemon has no `webauthn` configuration. */
  attestation(given: { readonly attestationObjectB64: string; readonly clientDataB64: string }): Promise<Attested>;
  /** `known`: the user's passkeys. Throws `bad_assertion`. */
  assertion(given: { readonly assertionB64: string; readonly clientDataB64: string | undefined }, known: readonly Passkey[]): Promise<Asserted>;
}

export const challengeHash = (challenge: Uint8Array): string => createHash('sha256').update(challenge).digest('hex');

/** Formats that are checked without asking anybody on the network. */
const formats: ReadonlySet<string> = new Set(['none', 'packed', 'fido-u2f', 'tpm']);

/** AuthenticationResponseJSON (WebAuthn level 3, 5.1.8.2), as far as it matters. Further members are the browser's affair. */
const responseJson = z.object({
  id: z.string().min(1),
  rawId: z.string().min(1),
  type: z.literal('public-key'),
  response: z.object({ clientDataJSON: z.string().min(1), authenticatorData: z.string().min(1), signature: z.string().min(1), userHandle: z.string().nullish() }),
});

const bytesOf = (text: string, code: ErrorCode): Buffer => {
  const bytes = decodeBase64(text);
  if (bytes === undefined || bytes.length === 0) throw coded(code, 'Not base64.');
  return bytes;
};

const jsonOf = (bytes: Buffer, code: ErrorCode): unknown => {
  try {
    return JSON.parse(bytes.toString('utf8'));
  } catch (cause) {
    throw coded(code, 'Not JSON.', { cause });
  }
};

const clientData = z.object({ challenge: z.string().min(1), crossOrigin: z.boolean().optional() });

/** The challenge's hash out of clientDataJSON. A page inside a foreign page may not speak for the user. */
const challengeOf = (bytes: Buffer, code: ErrorCode): string => {
  const parsed = clientData.safeParse(jsonOf(bytes, code));
  if (!parsed.success || parsed.data.crossOrigin === true) throw coded(code);
  return challengeHash(bytesOf(parsed.data.challenge, code));
};

/** The library's errors are plain: all of them mean that the data is not good. Ours pass. */
const translate = async <T>(work: Promise<T>, code: ErrorCode): Promise<T> => {
  try {
    return await work;
  } catch (cause) {
    throw coded(code, undefined, { cause });
  }
};

type Library = typeof import('@simplewebauthn/server');
type LibraryHelpers = typeof import('@simplewebauthn/server/helpers');

/** Without options every attestation is refused, and every assertion too, since there is no passkey. */
export const createWebauthn = (options: WebauthnOptions | undefined): Webauthn => {
  let loaded: Promise<[Library, LibraryHelpers]> | undefined;
  const load = (): Promise<[Library, LibraryHelpers]> => (loaded ??= Promise.all([import('@simplewebauthn/server'), import('@simplewebauthn/server/helpers')]));
  const expected = (): { expectedRPID: string; expectedOrigin: string[] } => {
    if (options === undefined) throw refuse('passkeys_off', 'Passkeys are not set up here.');
    return { expectedRPID: options.rpId, expectedOrigin: [...options.origins] };
  };

  return {
    attestation: async ({ attestationObjectB64, clientDataB64 }) => {
      const code = 'bad_attestation';
      const where = expected();
      const attestationObject = bytesOf(attestationObjectB64, code);
      const clientDataJson = bytesOf(clientDataB64, code);
      const challengeSha256 = challengeOf(clientDataJson, code);
      const [library, helpers] = await load();
      const verified = await translate((async () => {
        const format = helpers.decodeAttestationObject(Uint8Array.from(attestationObject)).get('fmt');
        if (!formats.has(format)) throw new Error(`attestation format ${format} is not taken`);
        return library.verifyRegistrationResponse({
          ...where,
          // The credential's id is read from the attested data; this one the library only wants to be there.
          response: {
            id: 'AA', rawId: 'AA', type: 'public-key', clientExtensionResults: {},
            response: { attestationObject: attestationObject.toString('base64url'), clientDataJSON: clientDataJson.toString('base64url') },
          },
          expectedChallenge: () => true, requireUserPresence: true, requireUserVerification: true,
        });
      })(), code);
      if (!verified.verified) throw coded(code);
      const { credential, credentialDeviceType } = verified.registrationInfo;
      return {
        challengeSha256,
        passkey: {
          credential_id: credential.id, public_key: Buffer.from(credential.publicKey).toString('base64url'),
          counter: credential.counter, device: credentialDeviceType === 'multiDevice' ? 'multi' : 'single',
        },
      };
    },

    assertion: async ({ assertionB64, clientDataB64 }, known) => {
      const code = 'bad_assertion';
      const parsed = responseJson.safeParse(jsonOf(bytesOf(assertionB64, code), code));
      if (!parsed.success) throw coded(code, 'Not an AuthenticationResponseJSON.');
      const { id, rawId, type, response } = parsed.data;
      const clientDataJson = bytesOf(response.clientDataJSON, code);
      if (clientDataB64 !== undefined && !bytesOf(clientDataB64, code).equals(clientDataJson)) throw coded(code, 'The two client data differ.');
      const challengeSha256 = challengeOf(clientDataJson, code);
      const passkey = known.find((p) => p.credential_id === id);
      if (passkey === undefined) throw coded(code);
      const where = expected();
      const [library] = await load();
      const verified = await translate(library.verifyAuthenticationResponse({
        ...where,
        response: {
          id, rawId, type, clientExtensionResults: {},
          response: { clientDataJSON: response.clientDataJSON, authenticatorData: response.authenticatorData, signature: response.signature },
        },
        credential: { id: passkey.credential_id, publicKey: Uint8Array.from(Buffer.from(passkey.public_key, 'base64url')), counter: passkey.counter },
        expectedChallenge: () => true, requireUserVerification: true,
      }), code);
      if (!verified.verified) throw coded(code);
      return { challengeSha256, credentialId: passkey.credential_id, counter: verified.authenticationInfo.newCounter };
    },
  };
};
