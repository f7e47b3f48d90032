/**
 * What a projection is: rows made of the journal, and nothing else. An author writes `apply` and `clear`; reading in order,
 * exactly once, by one daemon at a time is the runner's business (runner.ts).
 */
import type { Commit } from '../../contracts/event.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';
import type { TransactionSql } from './postgres.ts';

/** One commit of an actor, as it was journaled; events of older versions are not upcast. */
export interface ProjectedCommit {
  readonly address: ActorAddress;
  readonly seq: number;
  readonly commit: Commit;
}

export interface Projection {
  /** Names its checkpoints and its lock; never changed. */
  readonly name: string;
  /** Actor type whose commits it reads. */
  readonly type: string;
  /**
   * Writes the rows of some commits: of one journal stream, in order, each exactly once, since the transaction also moves the
   * checkpoint. Must depend on the rows and the commits only. An error is taken for the database's: the same commits come again.
   */
  apply(tx: TransactionSql, commits: readonly ProjectedCommit[]): Promise<void>;
  /** Deletes every row, to begin anew. */
  clear(tx: TransactionSql): Promise<void>;
}

/** A position in the journal: what a commit's acknowledgement names. */
export interface Position {
  readonly stream: string;
  /** Stream sequence of a commit of the projection's actor type. */
  readonly seq: number;
}
