/**
 * The certification actor: one application for a certificate of an organization or an agent. Key: address.ts; contract: contracts/trust.ts.
 *
 *   none ─submit─▶ pending ─▶ approved ─▶ revoked
 *                          ─▶ rejected
 *
 * Guarantees: no other move happens, however often and at once it is asked for; each is an entry in the organization's audit log, durably told.
 * The organization learns the decision, not which of the staff made it; that is journaled here. It decides nobody's permission.
 */
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { certificationCommands, certificationEvents, type CertificationEvents, type CertificationStatus } from '../../contracts/trust.ts';
import type { By } from '../../contracts/platform.ts';
import { defineActor, type PayloadOf, type Turn } from '../runtime/define.ts';

export interface Submitted extends Omit<PayloadOf<CertificationEvents['CertificationSubmitted']>, 'by' | 'at'> {
  readonly submitted_at: number;
  readonly status: CertificationStatus;
}
/** Null: never submitted. */
export type CertificationState = Submitted | null;

type CertificationTurn = Pick<Turn<CertificationState, CertificationEvents, Record<never, never>>, 'state' | 'now' | 'self' | 'tell' | 'remind'>;

/** Status → what it may become (decisions, Trust). */
const moves: Readonly<Record<CertificationStatus, readonly CertificationStatus[]>> = { pending: ['approved', 'rejected'], approved: ['revoked'], rejected: [], revoked: [] };

const submittedOf = ({ state }: Pick<CertificationTurn, 'state'>): Submitted => {
  if (state === null) throw coded('not_found');
  return state;
};

const shown = (turn: CertificationTurn) => {
  const { status, submitted_at } = submittedOf(turn);
  return { certification_id: turn.self.key, status, submitted_at };
};

/** As the audit log names who decided. */
const staff: By = { actor: 'platform-staff', ip: '', user_agent: '' };

/** Notes a change in the organization's audit log. */
const note = (turn: CertificationTurn, action: 'submitted' | CertificationStatus, by: By): void => {
  const { organization_id: id, entity_type: entityType, entity_id: entityId, cert_type: certType } = submittedOf(turn);
  turn.tell({ org: id, type: 'organization', key: id }, 'note', {
    action: `certification.${action}`, resource_type: 'certification', resource_id: turn.self.key, metadata: { entityType, entityId, certType }, by,
  });
  // If its host is lost before it is sent, the activation that this makes sends it.
  turn.remind('tells', { inMs: limits.organizationWakeMs });
};

/** The certification actor's definition. It needs nothing from outside. */
export const certification = () => defineActor({
  type: 'certification',
  events: certificationEvents,
  initial: (): CertificationState => null,
  apply: {
    CertificationSubmitted: (_state, { by: _by, at, ...submitted }): CertificationState => ({ ...submitted, submitted_at: at, status: 'pending' }),
    CertificationDecided: (state, e): CertificationState => (state === null ? null : { ...state, status: e.to }),
  },
  commands: (command) => ({
    submit: command({
      ...certificationCommands.submit, access: 'system',
      handle: (turn, submitted) => {
        if (turn.state !== null) throw coded('conflict');
        turn.emit('CertificationSubmitted', { ...submitted, at: turn.now });
        note(turn, 'submitted', submitted.by);
        return shown(turn);
      },
    }),
    decide: command({
      ...certificationCommands.decide, access: 'system',
      handle: (turn, { decision, reason, by }) => {
        const { status } = submittedOf(turn);
        if (!moves[status].includes(decision)) throw coded('conflict', `A certification that is ${status} cannot become ${decision}.`, { details: { status } });
        turn.emit('CertificationDecided', { from: status, to: decision, ...(reason === undefined ? {} : { reason }), by, at: turn.now });
        note(turn, decision, staff);
        return shown(turn);
      },
    }),
    read: command({
      ...certificationCommands.read, access: 'system',
      handle: (turn) => {
        const { entity_type, entity_id, organization_id, cert_type, evidence } = submittedOf(turn);
        return { ...shown(turn), entity_type, entity_id, organization_id, cert_type, evidence };
      },
    }),
  }),
  reminders: { tells: () => undefined },
});

export type CertificationCommands = NonNullable<ReturnType<typeof certification>['types']>['commands'];
