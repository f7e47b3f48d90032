/**
 * API keys (interface 5.1; rules KEY-001 to KEY-019). Their text is made by the daemon and is not here: only its SHA-256 and prefix.
 *
 * Guarantees: a revoked key is refused from the turn on that revoked it, on every process, because every use is asked of this actor. A key
 * is given no more than its maker has. It outlives its maker's membership: it is the organization's; `created_by` stays the person in
 * whose name it acts (a key made by a key is its maker's maker's).
 */
import type { z } from 'zod';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { organizationCommands } from '../../contracts/organization.ts';
import { planLimitsOf } from '../../contracts/plans.ts';
import { requireRoom, revokeOrphaned } from './invitations.ts';
import { shownKey } from './show.ts';
import { allowed, liveOf, mayGive } from './standing.ts';
import type { KeyRecord, Live } from './state.ts';
import type { OrganizationTurn } from './turn.ts';

type Input<K extends keyof typeof organizationCommands> = z.output<(typeof organizationCommands)[K]['input']>;
type Output<K extends keyof typeof organizationCommands> = z.output<(typeof organizationCommands)[K]['output']>;

const found = (of: Live, id: string): KeyRecord => {
  const key = of.keys.find((candidate) => candidate.id === id);
  if (key === undefined) throw coded('not_found', 'There is no such API key.');
  return key;
};

export const createKey = (turn: OrganizationTurn, { by, id, name, scopes, ...secret }: Input<'create_key'>): Output<'create_key'> => {
  const standing = allowed(turn.state, by, 'api_key.create');
  const { of } = standing;
  mayGive(standing, scopes);
  if (of.keys.some((key) => key.id === id)) throw coded('conflict');
  const unrevoked = of.keys.filter((key) => key.revoked_at === null).length;
  requireRoom(unrevoked, planLimitsOf(of.plan, of.own_limits ?? undefined).maxApiKeys, limits.organizationKeysMax);
  const createdBy = standing.kind === 'key' ? standing.key.created_by : by.actor;
  turn.emit('KeyCreated', { id, name, scopes: [...new Set(scopes)], ...secret, created_by: createdBy, by });
  return shownKey(found(liveOf(turn.state), id));
};

export const revokeKey = (turn: OrganizationTurn, { by, key_id: id }: Input<'revoke_key'>): Output<'revoke_key'> => {
  const { of } = allowed(turn.state, by, 'api_key.revoke');
  if (found(of, id).revoked_at === null) {
    turn.emit('KeyRevoked', { id, by });
    revokeOrphaned(turn, by);
  }
  return shownKey(found(liveOf(turn.state), id));
};

export const verifyKey = (turn: OrganizationTurn, { key_sha256: hash }: Input<'verify_key'>): Output<'verify_key'> => {
  const key = turn.state.phase === 'live' ? turn.state.keys.find((candidate) => candidate.key_sha256 === hash && candidate.revoked_at === null) : undefined;
  if (key === undefined) throw coded('unauthorized');
  if (key.last_used_at === null || turn.now - key.last_used_at >= limits.keyUseNotedMs) turn.emit('KeyUsed', { id: key.id });
  return { key_id: key.id, scopes: [...key.scopes], created_by: key.created_by };
};
