/** A question to a person, and a sign that something is waited for. Both step aside where there is no terminal. */
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';

export interface PromptWorld {
  readonly stdin: Readable & { readonly isTTY?: boolean; setRawMode?(mode: boolean): unknown };
  readonly stderr: Writable & { readonly isTTY?: boolean };
}

/** The next line of the input; undefined at its end. On a terminal what is typed or pasted is not shown: it is a secret. */
export const askLine = (world: PromptWorld, prompt: string): Promise<string | undefined> => new Promise((resolve) => {
  const person = world.stdin.isTTY === true;
  world.stderr.write(prompt);
  const lines = createInterface({ input: world.stdin, terminal: person });
  let answered = false;
  lines.once('line', (line) => {
    answered = true;
    if (person) world.stderr.write('\n');
    resolve(line);
    lines.close();
  });
  lines.once('close', () => {
    if (!answered) resolve(undefined);
  });
  lines.once('SIGINT', () => {
    world.stderr.write('\n');
    lines.close();
  });
});

const frames = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const frameMs = 100;

/** A line that turns until the returned function is called; without a terminal one plain line. */
export const spinner = (out: Writable & { readonly isTTY?: boolean }, text: string): (() => void) => {
  if (out.isTTY !== true) {
    out.write(`${text} …\n`);
    return () => undefined;
  }
  let at = 0;
  const timer = setInterval(() => {
    out.write(`\r${frames[at % frames.length]} ${text} `);
    at += 1;
  }, frameMs);
  return () => {
    clearInterval(timer);
    out.write('\r\u001b[2K');
  };
};
