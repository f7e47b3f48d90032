/** Loggers for tests: one that says nothing, one that remembers what was said. */
import type { Log } from '../../actors/runtime/log.ts';

const nothing = (): void => undefined;
export const silent: Log = { debug: nothing, info: nothing, warn: nothing, error: nothing };

export interface Recorded {
  readonly level: 'debug' | 'info' | 'warn' | 'error';
  readonly fields: unknown;
  readonly text: string;
}

/** A logger that keeps its lines; `onLine` sees each as it comes. */
export const recorder = (onLine: (line: Recorded) => void = nothing): Log & { readonly lines: Recorded[] } => {
  const lines: Recorded[] = [];
  const at = (level: Recorded['level']) => (...said: unknown[]): void => {
    const [fields, text] = typeof said[0] === 'string' ? [{}, said[0]] : [said[0], String(said[1])];
    const line = { level, fields, text };
    lines.push(line);
    onLine(line);
  };
  return { lines, debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
};
