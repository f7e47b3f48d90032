/** What the start tells its user: lines for people, or one JSON object a line with `--json`. Never a secret. */
export interface Say {
  /** Something is being done or has happened. */
  progress(text: string): void;
  /** Something is wrong but is being dealt with. */
  warn(text: string): void;
  /** The last word of a start: `text` for people, `facts` for programs. */
  ready(text: string, facts: Readonly<Record<string, unknown>>): void;
  fail(text: string): void;
}

/** `write` gets whole lines; errors go through it too, marked, so that their order to the rest is kept. */
export const createSay = (json: boolean, out: (line: string) => void, err: (line: string) => void): Say => {
  if (json) {
    const line = (event: string, rest: object): void => out(JSON.stringify({ event, at: new Date().toISOString(), ...rest }));
    return {
      progress: (text) => line('progress', { text }),
      warn: (text) => line('warning', { text }),
      ready: (_text, facts) => line('ready', facts),
      fail: (text) => line('failed', { text }),
    };
  }
  return {
    progress: (text) => out(`  ${text}`),
    warn: (text) => out(`! ${text}`),
    ready: (text) => out(text),
    fail: (text) => err(text),
  };
};
