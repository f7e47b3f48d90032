/** Whose API key this is: asked of its organization each time, so that a revoked key is refused at the next request on every process. */
import { coded, CodedError } from '../../../contracts/errors.ts';
import { organizationAddress } from '../../../contracts/organization-routes.ts';
import { organizationCommands } from '../../../contracts/organization.ts';
import type { Caller } from '../../../contracts/platform.ts';
import { userCommands } from '../../../contracts/user.ts';
import type { Sender } from '../../runtime/message.ts';
import { userAddress } from '../../user/address.ts';
import { askBy } from './ask.ts';
import { sha256 } from './derive.ts';
import { organizationOfKey } from './organization-tokens.ts';

/** Gives an API key's caller, with its maker's acceptance as it is now. Throws `unauthorized` for an unknown, altered or revoked one. */
export const createKeyVerifier = ({ actors }: { readonly actors: Pick<Sender, 'ask'> }): ((token: string) => Promise<Extract<Caller, { readonly kind: 'key' }>>) => {
  const askOrganization = askBy(actors, organizationCommands);
  const askUser = askBy(actors, userCommands);

  /** Empty = none: the maker is gone, or never accepted. */
  const policyOf = async (userId: string): Promise<string> => {
    try {
      return (await askUser(userAddress(userId), 'policy', {})).policy;
    } catch (error) {
      if (error instanceof CodedError && error.code === 'unauthorized') return '';
      throw error;
    }
  };

  return async (token) => {
    const organizationId = organizationOfKey(token);
    if (organizationId === undefined) throw coded('unauthorized');
    const key = await askOrganization(organizationAddress(organizationId), 'verify_key', { key_sha256: sha256(token) });
    return { kind: 'key', organizationId, keyId: key.key_id, scopes: key.scopes, createdBy: key.created_by, policy: await policyOf(key.created_by) };
  };
};
