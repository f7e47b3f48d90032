/**
 * Where a deployment's session lives, by its client's name for it and the branch; and whether it is there, read from the journal: no actor is
 * woken to be looked for.
 */
import { createHash } from 'node:crypto';
import { mainBranch, sessionSeed, type DeploymentCaller } from '../../../contracts/deployment.ts';
import { coded } from '../../../contracts/errors.ts';
import { journalSubject, partitionOf, type ActorAddress } from '../../../contracts/subjects.ts';
import { findCreation } from '../owner.ts';
import type { JournalSource } from './after.ts';

type Whose = Pick<DeploymentCaller, 'organizationId' | 'deploymentId'>;

/** A branch of a session with its journals. */
export interface SessionBranch {
  readonly session_id: string;
  readonly branch: string;
  readonly address: ActorAddress;
  /** Journals whose events come before its own, the oldest first: of each those up to `upTo`. Empty for `main`. */
  readonly past: readonly { readonly address: ActorAddress; readonly upTo: string }[];
}

const alphabet = 'abcdefghijklmnopqrstuvwxyz234567';
const sidChars = 26;

/** The session's actor: its key is a sid (contracts/deployment.ts, `sessionSeed`). */
export const sessionAddress = ({ organizationId, deploymentId }: Whose, session: string, branch: string = mainBranch): ActorAddress => {
  const digest = createHash('sha256').update(sessionSeed(deploymentId, session, branch)).digest();
  let bits = 0;
  let held = 0;
  let key = '';
  for (const byte of digest) {
    held = (held << 8) | byte;
    bits += 8;
    while (bits >= 5 && key.length < sidChars) {
      bits -= 5;
      key += alphabet.charAt((held >> bits) & 31);
    }
    held &= (1 << bits) - 1;
  }
  return { org: organizationId, type: 'session', key };
};

/** True if somebody has made the session at the address. Throws `journal_unavailable`. */
const isMade = async ({ journal, partitions }: JournalSource, address: ActorAddress): Promise<boolean> =>
  (await findCreation(journal, journalSubject(partitionOf(address, partitions), address))).name !== 'nobody';

/**
 * The branch of a session. Throws `session_not_found`, `branch_not_found`, `journal_unavailable`. `toMake`: `main` need not be there yet.
 */
export const resolveBranch = async (source: JournalSource, whose: Whose, session: string, branch: string = mainBranch, toMake = false): Promise<SessionBranch> => {
  const address = sessionAddress(whose, session, branch);
  if (branch === mainBranch) {
    if (!toMake && !await isMade(source, address)) throw coded('session_not_found');
  } else if (!await isMade(source, address)) {
    throw coded(toMake || await isMade(source, sessionAddress(whose, session)) ? 'branch_not_found' : 'session_not_found');
  }
  return { session_id: session, branch, address, past: [] };
};
