/**
 * The audit log's route (AUD-001 to AUD-006, AUD-021, AUD-022): pages as JSON, exports as CSV or JSON Lines.
 *
 * Guarantees: read by who has the permission at this moment, and only of the asked organization; what was changed before the question is in
 * the answer, or it is refused with `upstream_unavailable`. An export is itself an entry, which it holds. An export larger than the bounds is
 * refused whole, with `payload_too_large`: never cut in silence; `limit` and `cursor` give it in parts.
 */
import { coded, CodedError } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { organizationReached, organizationRoutes as routes } from '../../../contracts/organization-routes.ts';
import { organizationCommands } from '../../../contracts/organization.ts';
import { byOf } from '../../../contracts/platform.ts';
import { readAudit } from '../../projections/audit.ts';
import { askBy } from './ask.ts';
import { auditCsv, auditJsonl } from './audit-text.ts';
import type { PlatformDeps } from './deps.ts';
import { forCaller, type PlatformHandler, type PlatformResult } from './serve.ts';
import { queryOf } from './typed.ts';

export type AuditDeps = Pick<PlatformDeps, 'actors' | 'projections'>;

/** Waits until a projection holds what was journaled before. Throws `upstream_unavailable` when it does not come that far in time. */
export const current = async ({ projections }: Pick<AuditDeps, 'projections'>, name: string, organizationId: string | undefined): Promise<void> => {
  try {
    await projections.caughtUp(name, organizationId, limits.projectionWaitMs);
  } catch (error) {
    if (!(error instanceof CodedError) || error.code !== 'deadline_exceeded') throw error;
    throw coded('upstream_unavailable', 'The list is not up to date yet. Try again in a moment.', { cause: error });
  }
};

/** Of a page's entries: as JSON in the link's JSON a byte may become two. A page has fewer than `limit` entries rather than more bytes. */
const pageMaxBytes = limits.auditExportMaxBytes / 2;

const formats = {
  csv: { type: 'text/csv; charset=utf-8; header=present', of: auditCsv },
  jsonl: { type: 'application/jsonl; charset=utf-8', of: auditJsonl },
} as const;

export const auditHandlers = (deps: AuditDeps): Readonly<Record<string, PlatformHandler>> => {
  const ask = askBy(deps.actors, organizationCommands);

  return {
    [routes.audit.id]: forCaller(async (request): Promise<PlatformResult> => {
      const { orgId, format, limit, cursor } = queryOf(routes.audit, request);
      const address = organizationReached(request.caller, orgId);
      const by = byOf(request.caller, request.context);
      await ask(address, 'authorise', { permission: format === undefined ? 'audit.read' : 'audit.export', by });
      if (format !== undefined) await ask(address, 'note', { action: 'audit.exported', resource_type: 'audit', resource_id: orgId, metadata: { format }, by });
      await current(deps, 'audit', orgId);
      const most = limit ?? (format === undefined ? limits.auditListUsualMax : limits.auditExportMax);
      const bytes = format === undefined ? pageMaxBytes : limits.auditExportMaxBytes;
      const { entries, more } = await deps.projections.read((sql) => readAudit(sql, { organizationId: orgId, limit: most, bytes, cursor }));
      if (format === undefined) return { status: 200, body: { entries, nextCursor: more ? entries.at(-1)?.id ?? null : null } };

      if (more && (limit === undefined || entries.length < limit)) throw tooLarge();
      const { type, of } = formats[format];
      const text = of(entries);
      if (Buffer.byteLength(JSON.stringify(text)) > limits.auditExportMaxBytes) throw tooLarge();
      return { status: 200, text, headers: { 'content-type': type, 'content-disposition': `attachment; filename="audit-${orgId}.${format}"` } };
    }),
  };
};

const tooLarge = (): CodedError =>
  coded('payload_too_large', 'The export is too large for one answer: take it in parts with limit and cursor (the id of the last entry).', { details: { entriesMax: limits.auditExportMax, bytesMax: limits.auditExportMaxBytes } });
