/** The process a command runs in, as arguments: its streams, environment, folder and signals. */
import type { Readable, Writable } from 'node:stream';

export interface ProgramWorld {
  readonly stdin: Readable & { readonly isTTY?: boolean };
  readonly stdout: Writable & { readonly isTTY?: boolean };
  readonly stderr: Writable & { readonly isTTY?: boolean };
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  readonly onInterrupt: (listener: () => void) => () => void;
}
