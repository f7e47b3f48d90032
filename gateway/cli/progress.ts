/** How far a long command has come: a bar on a terminal, a line at every tenth elsewhere. */
import type { Writable } from 'node:stream';

export interface Progress {
  /** `note`: a few words beside the bar. */
  at(done: number, note: string): void;
  /** Takes the bar away. */
  end(): void;
}

const width = 28;

export const createProgress = (out: Writable & { readonly isTTY?: boolean; readonly columns?: number }, what: string, of: number): Progress => {
  let tenths = 0;
  if (out.isTTY !== true) {
    return {
      at: (done) => {
        const now = of === 0 ? 10 : Math.floor((done / of) * 10);
        if (now > tenths) out.write(`${what}: ${done} of ${of}\n`);
        tenths = Math.max(now, tenths);
      },
      end: () => undefined,
    };
  }
  return {
    at: (done, note) => {
      const filled = of === 0 ? width : Math.floor((done / of) * width);
      const line = `${what} ${'█'.repeat(filled)}${'░'.repeat(width - filled)} ${done} of ${of}  ${note}`;
      out.write(`\r\u001b[2K${line.slice(0, Math.max(20, (out.columns ?? 100) - 1))}`);
    },
    end: () => void out.write('\r\u001b[2K'),
  };
};
