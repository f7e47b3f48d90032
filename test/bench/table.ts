/** The figures as a table for people, and as JSON for machines. */
import { reached, shortNumber, type Aim, type Row } from './figure.ts';

const aimText = (aim: Aim | undefined, row: Row): string => {
  if (aim === undefined) return '';
  return `${row.kind === 'rate' ? '≥' : '≤'} ${aim.of === 'ratio' ? `${aim.bound} of floor` : `${shortNumber(aim.bound)} ${row.unit}`}`;
};

const metText = (row: Row): string => {
  const met = reached(row);
  return met === undefined ? '' : met ? 'yes' : 'no';
};

/** Plain text, columns aligned; notes under their row. */
export const tableText = (rows: readonly Row[]): string => {
  const head = ['figure', 'value', 'floor', 'ratio', 'aim', 'met', 'durability'];
  const lines = rows.map((row) => [
    row.figure, `${shortNumber(row.value)} ${row.unit}`, row.floor === undefined ? '' : shortNumber(row.floor),
    row.ratio === undefined ? '' : row.ratio.toFixed(2), aimText(row.aim, row), metText(row), row.durability,
  ]);
  const widths = head.map((title, column) => Math.max(title.length, ...lines.map((line) => line[column]?.length ?? 0)));
  const layout = (cells: readonly string[]): string => cells.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ').trimEnd();
  const body = rows.flatMap((row, i) => [
    layout(lines[i] ?? []),
    ...(row.floorIs === undefined ? [] : [`    floor: ${row.floorIs}`]),
    ...row.notes.map((note) => `    ${note}`),
  ]);
  return [layout(head), widths.map((width) => '-'.repeat(width)).join('  '), ...body].join('\n');
};

export interface Report {
  readonly machine: string;
  readonly startedAt: string;
  readonly runs: number;
  readonly rows: readonly Row[];
}

export const jsonText = (report: Report): string =>
  JSON.stringify({ ...report, rows: report.rows.map((row) => ({ ...row, reached: reached(row) })) }, undefined, 2);
