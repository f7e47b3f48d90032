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
  /** Journals whose events come before its own, the oldest first. Empty for `main`. */
  readonly past: readonly PastJournal[];
}

export interface PastJournal {
  readonly branch: string;
  readonly address: ActorAddress;
  /** Id of its last event that is the branch's too. */
  readonly upTo: string;
  /** Events that clients see of it and the journals before it, up to there. */
  readonly count: number;
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

/** The past of the session at the address; undefined = nobody has made it. Throws `journal_unavailable`. */
const pastOf = async ({ journal, partitions }: JournalSource, address: ActorAddress): Promise<readonly PastJournal[] | undefined> => {
  const found = await findCreation(journal, journalSubject(partitionOf(address, partitions), address));
  switch (found.name) {
    case 'nobody':
      return undefined;
    case 'trimmed':
      return [];
    case 'made':
      return found.past?.map(({ sid, branch, at, count }) => ({ branch, address: { ...address, key: sid }, upTo: at, count })) ?? [];
  }
};

/**
 * The branch of a session. Throws `session_not_found`, `branch_not_found`, `journal_unavailable`. `toMake`: `main` need not be there yet.
 */
export const resolveBranch = async (source: JournalSource, whose: Whose, session: string, branch: string = mainBranch, toMake = false): Promise<SessionBranch> => {
  const address = sessionAddress(whose, session, branch);
  const past = await pastOf(source, address);
  if (past === undefined && branch === mainBranch && !toMake) throw coded('session_not_found');
  if (past === undefined && branch !== mainBranch) throw coded(toMake || await pastOf(source, sessionAddress(whose, session)) !== undefined ? 'branch_not_found' : 'session_not_found');
  return { session_id: session, branch, address, past: past ?? [] };
};
