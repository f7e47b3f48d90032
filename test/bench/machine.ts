/**
 * What the figures were taken on, and what each process cost: read from /proc, so it holds for nats-server as for Node.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { cpus, loadavg, release, totalmem } from 'node:os';
import { natsServerPath } from '../harness/nats.ts';

/** Linux' USER_HZ, the unit of /proc times on every platform Node runs on. */
const ticksPerSec = 100;

/** Processor milliseconds a process has used so far. */
export const cpuMsOf = (pid: number): number => {
  const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
  // The name in brackets may hold anything; fields are counted after it.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) * 1_000 / ticksPerSec;
};

/** Bytes of memory that are a process's own (its proportional share of what is shared included). */
export const memoryOf = (pid: number): number => {
  const kib = /^Pss:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'latin1'))?.[1];
  return Number(kib ?? Number.NaN) * 1_024;
};

export interface Share {
  readonly name: string;
  /** Processors it used over the time: 1 = one whole. */
  readonly cores: number;
}

export interface Load {
  /** Ends the measurement. */
  stop(): readonly Share[];
}

/** Measures what each process uses from now until `stop`. */
export const loadOf = (processes: readonly { readonly name: string; readonly pid: number }[]): Load => {
  const before = processes.map(({ pid }) => cpuMsOf(pid));
  const startedMs = performance.now();
  return {
    stop: () => {
      const ms = performance.now() - startedMs;
      return processes.map(({ name, pid }, i) => ({ name, cores: (cpuMsOf(pid) - (before[i] ?? 0)) / ms }));
    },
  };
};

/** `daemon 0.62, gateway 0.55 of 2 processors`. */
export const sharesText = (shares: readonly Share[]): string =>
  `${shares.map(({ name, cores }) => `${name} ${cores.toFixed(2)}`).join(', ')} of ${cpus().length} processors`;

const versionOf = (file: string): string => {
  try {
    return execFileSync(file, ['--version'], { encoding: 'utf8', timeout: 5_000 }).trim();
  } catch {
    return 'unknown version';
  }
};

/** One line about the machine; the load average says whether it was busy when the run began. */
export const machineLine = (): string => {
  const all = cpus();
  const nats = versionOf(natsServerPath()).replace(/^nats-server:\s*/, '');
  return [
    `${all.length} × ${all[0]?.model.trim() ?? 'unknown processor'}`, `${Math.round(totalmem() / 2 ** 30)} GiB`, `Linux ${release()}`,
    `Node ${process.versions.node}`, `nats-server ${nats}`, `load average at the start ${loadavg().map((load) => load.toFixed(1)).join(' ')}`,
  ].join(', ');
};
