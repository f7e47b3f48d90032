/**
 * Which process a pid file means: its pid and when it started, so that a pid the system has given to another process since
 * is never taken for it, and never signalled.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { z } from 'zod';

export const processMark = z.strictObject({ pid: z.int().positive(), startedAt: z.string() });
export type ProcessMark = z.infer<typeof processMark>;

/** When a live process started, in the system's own words; undefined if there is none. */
const startOf = (pid: number): string | undefined => {
  if (process.platform === 'linux') {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
      // After the name in brackets (which may hold anything): state is the 1st field, start time the 20th (proc_pid_stat(5)).
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      return fields[0] === 'Z' || fields[0] === 'X' ? undefined : fields[19];
    } catch {
      return undefined;
    }
  }
  try {
    return execFileSync('ps', ['-o', 'lstart=', '-p', String(pid)], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim() || undefined;
  } catch {
    // ps leaves with 1 when there is no such process.
    return undefined;
  }
};

/** The mark of a process that runs now, or undefined. */
export const markOf = (pid: number): ProcessMark | undefined => {
  const startedAt = startOf(pid);
  return startedAt === undefined ? undefined : { pid, startedAt };
};

/** Whether the very process the mark was taken of still runs. */
export const isAlive = (mark: ProcessMark): boolean => startOf(mark.pid) === mark.startedAt;

/** The mark in a pid file; undefined when the file is missing or no mark. */
export const readMark = (path: string): ProcessMark | undefined => {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
  try {
    return processMark.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
};
