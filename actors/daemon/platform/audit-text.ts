/**
 * Audit entries as the text of an export: CSV after RFC 4180, or JSON Lines.
 *
 * Guarantee: what a person named (an organization, a user agent) cannot become a formula in a spreadsheet: a CSV cell that starts with
 * `=`, `+`, `-`, `@`, a tab or a line break gets an apostrophe in front.
 */
import type { AuditEntry } from '../../../contracts/organization.ts';

const columns = ['id', 'organizationId', 'actorId', 'action', 'resourceType', 'resourceId', 'metadata', 'ipAddress', 'userAgent', 'createdAt'] as const satisfies readonly (keyof AuditEntry)[];

const cell = (value: string): string => {
  const plain = /^[=+\-@\t\r\n]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
};

export const auditCsv = (entries: readonly AuditEntry[]): string =>
  [columns, ...entries.map((entry) => columns.map((column) => (column === 'metadata' ? JSON.stringify(entry.metadata) : entry[column])))]
    .map((row) => `${row.map(cell).join(',')}\r\n`).join('');

export const auditJsonl = (entries: readonly AuditEntry[]): string => entries.map((entry) => `${JSON.stringify(entry)}\n`).join('');
