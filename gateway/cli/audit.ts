/**
 * The export of an audit log in parts, each written before the next is asked for.
 *
 * Guarantees: of a log of any size every entry once, newest first, as one document: a CSV has its header once. No more than one part is in
 * memory, and a reader who takes nothing stops it. What is refused is thrown, after the parts that were written. A part that is too
 * large for one answer is asked for again with half as many entries.
 */
import { CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { organizationRoutes as routes } from '../../contracts/organization-routes.ts';
import type { PlatformClient } from './platform.ts';

export type AuditFormat = 'csv' | 'jsonl';

export interface AuditExport {
  readonly platform: Pick<PlatformClient, 'text'>;
  readonly token: string;
  readonly orgId: string;
  readonly format: AuditFormat;
  /** Resolves when more may come. */
  readonly write: (text: string) => void | Promise<void>;
}

/** The records of a CSV, each with its line end. A line end within quotes ends nothing (RFC 4180). */
const recordsOf = (text: string): readonly string[] => {
  const records: string[] = [];
  let start = 0;
  let quoted = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === '"') quoted = !quoted;
    else if (c === '\n' && !quoted) {
      records.push(text.slice(start, i + 1));
      start = i + 1;
    }
  }
  if (start < text.length) records.push(text.slice(start));
  return records;
};

/** Of an export's record: CSV has it in front, JSON as a field. */
const idOf = (record: string, format: AuditFormat): string => {
  if (format === 'csv') return record.split(',', 1)[0] ?? '';
  const entry: unknown = JSON.parse(record);
  return typeof entry === 'object' && entry !== null && 'id' in entry && typeof entry.id === 'string' ? entry.id : '';
};

/** Throws what the platform refuses, `upstream_error` for an export that does not go on. */
export const exportAudit = async ({ platform, token, orgId, format, write }: AuditExport): Promise<void> => {
  let limit: number = limits.auditListMax;
  let cursor: string | undefined;
  for (;;) {
    let text: string;
    try {
      text = await platform.text({ route: routes.audit, token, query: { orgId, format, limit: String(limit), ...(cursor === undefined ? {} : { cursor }) } });
    } catch (error) {
      if (!(error instanceof CodedError) || error.code !== 'payload_too_large' || limit === 1) throw error;
      limit = Math.floor(limit / 2);
      continue;
    }
    // A line end in JSON text is escaped.
    const records = format === 'csv' ? recordsOf(text) : text.split(/(?<=\n)/);
    const [header = ''] = format === 'csv' ? records : [];
    const entries = format === 'csv' ? records.slice(1) : records.filter((record) => record.trim() !== '');
    await write(cursor === undefined ? header + entries.join('') : entries.join(''));
    const last = entries.at(-1);
    if (last === undefined || entries.length < limit) return;
    const next = idOf(last, format);
    if (next === '' || next === cursor) throw new CodedError('upstream_error', 'The platform\'s export does not go on.');
    cursor = next;
  }
};
