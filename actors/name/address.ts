/**
 * Where a name's actor is. The one place that builds these addresses, so that no two spellings of a name have two actors.
 *
 * Guarantee: nothing that names a person is in a key: e-mail addresses and identities stand there as SHA-256 (hex). The text is
 * taken as it is: who calls has normalized it (contracts/ids.ts).
 */
import { createHash } from 'node:crypto';
import type { NameKind } from '../../contracts/name.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';

const sha256 = (text: string): string => createHash('sha256').update(text, 'utf8').digest('hex');

/**
 * Address of the actor that knows who holds a name: `slug` (`acme`), `email` (as `email` of contracts/ids.ts gives it), `user-code`
 * (`ABCD-2345`), `identity` (`<provider>:<id at the provider>`), `deployment` (its id), `agent` (its id), `customer` (the payment processor's id of an organization).
 */
export const nameAddress = (kind: NameKind, text: string): ActorAddress => {
  const shown = kind === 'email' || kind === 'identity' ? sha256(text) : text;
  return { org: 'platform', type: 'name', key: `${kind}:${shown}` };
};
