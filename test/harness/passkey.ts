/**
 * A passkey of a person: an emulated authenticator and the browser around it, in the bodies that `/custody/*` takes. Whatever can
 * be wrong with a passkey's statement can be asked for.
 */
import { AuthenticatorEmulator, PasskeysCredentialsMemoryRepository, RpId, WebAuthnEmulator } from 'nid-webauthn-emulator';

export interface Statement {
  /** Standard base64, as the edge gives it. */
  readonly challenge: string;
  /** Where the browser says it is. */
  readonly origin?: string;
  readonly rpId?: string;
  readonly userPresent?: boolean;
  readonly userVerified?: boolean;
  /** How much the signature counter grows. Default 1. */
  readonly count?: number;
}

export interface AttestationBody {
  readonly attestation_object_b64: string;
  readonly client_data_json_b64: string;
}

/** AuthenticationResponseJSON as the browser makes it. */
export type Assertion = ReturnType<WebAuthnEmulator['getJSON']>;

export interface PasskeyHolder {
  /** Makes a new credential; later assertions use it. */
  attest(statement: Statement): AttestationBody;
  assert(statement: Statement): Assertion;
}

/** Body field of an assertion: base64 of its JSON. */
export const assertionB64 = (assertion: Assertion): string => Buffer.from(JSON.stringify(assertion)).toString('base64');

const url64 = (base64: string): string => Buffer.from(base64, 'base64').toString('base64url');

export const passkeyHolder = (at: { readonly origin: string; readonly rpId: string }): PasskeyHolder => {
  const credentialsRepository = new PasskeysCredentialsMemoryRepository();
  /** The same credentials, as if they had been made for another relying party: what only a broken authenticator would use. */
  const madeFor = (rpId: string): PasskeysCredentialsMemoryRepository => {
    const repository = new PasskeysCredentialsMemoryRepository();
    for (const credential of credentialsRepository.loadCredentials()) {
      repository.saveCredential({ ...credential, publicKeyCredentialSource: { ...credential.publicKeyCredentialSource, rpId: new RpId(rpId) } });
    }
    return repository;
  };
  const browser = (statement: Statement, repository: PasskeysCredentialsMemoryRepository): WebAuthnEmulator => {
    const options = { up: statement.userPresent ?? true, uv: statement.userVerified ?? true };
    return new WebAuthnEmulator(new AuthenticatorEmulator({
      credentialsRepository: repository, signCounterIncrement: statement.count ?? 1,
      userMakeCredentialInteraction: () => ({ options }), userGetAssertionInteraction: () => ({ options }),
    }));
  };
  return {
    attest: (statement) => {
      const { origin = at.origin, rpId = at.rpId } = statement;
      // The third argument lets the emulated browser pass what a real one would refuse.
      const made = browser(statement, credentialsRepository).createJSON(origin, {
        rp: { id: rpId, name: 'test' }, user: { id: url64('dXNlcg=='), name: 'u', displayName: 'u' },
        challenge: url64(statement.challenge), pubKeyCredParams: [{ type: 'public-key', alg: -7 }],
      }, [origin]);
      return {
        attestation_object_b64: Buffer.from(made.response.attestationObject, 'base64url').toString('base64'),
        client_data_json_b64: Buffer.from(made.response.clientDataJSON, 'base64url').toString('base64'),
      };
    },
    assert: (statement) => {
      const { origin = at.origin, rpId = at.rpId } = statement;
      return browser(statement, rpId === at.rpId ? credentialsRepository : madeFor(rpId)).getJSON(origin, { challenge: url64(statement.challenge), rpId }, [origin]);
    },
  };
};
