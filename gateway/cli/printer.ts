/**
 * Writes a session's stream for a person: the agent's text to `out` as it comes, everything else (tools, connection,
 * errors) as dim single lines to `err`, so that a pipe receives the text alone.
 *
 * What comes from the agent, a tool or the server is shown without its control characters: no text can move the cursor,
 * change the title or forge a line of ours.
 */
import { styleText } from 'node:util';
import type { Reconnected } from '../client/session-stream.ts';
import type { StreamState } from '../client/state.ts';
import type { StreamEvent } from '../client/frame.ts';

export interface Out {
  write(text: string): unknown;
  readonly isTTY?: boolean;
  /** Of a stream: `drain` comes when a `write` that answered false was taken. */
  once?(event: 'drain', listener: () => void): unknown;
}

/** Writes, and resolves when whoever reads has room for more. */
export const taken = async (out: Out, text: string): Promise<void> => {
  if (out.write(text) === false && out.once !== undefined) await new Promise<void>((resolve) => { out.once?.('drain', resolve); });
};

/** Characters of a tool's arguments or result shown on its line. */
const lineChars = 300;

// oxlint-disable-next-line no-control-regex
const controls = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
/** Text without control and direction characters; tabs and line ends stay. */
export const plain = (text: string): string => text.replace(controls, '');

const oneLine = (value: unknown): string => {
  const text = plain(typeof value === 'string' ? value : JSON.stringify(value) ?? '').replace(/\s+/g, ' ');
  return text.length <= lineChars ? text : `${text.slice(0, lineChars)}…`;
};

export const secondsText = (ms: number): string => `${(ms / 1000).toFixed(1)} s`;
export const reconnectedText = (r: Reconnected): string => `reconnected in ${secondsText(r.downMs)}, ${r.lost} events lost`;

export class Printer {
  readonly #out: Out;
  readonly #err: Out;
  readonly #color: boolean;
  /** Called before and after lines that are not the agent's, so that a prompt can step aside. */
  readonly #aside: { before: () => void; after: () => void };
  #midLine = false;
  #outage = false;

  constructor(out: Out, err: Out, color: boolean, aside: { before: () => void; after: () => void } = { before: () => undefined, after: () => undefined }) {
    this.#out = out;
    this.#err = err;
    this.#color = color;
    this.#aside = aside;
  }

  #style(format: 'dim' | 'red' | 'yellow', text: string): string {
    return this.#color ? styleText(format, text, { validateStream: false }) : text;
  }

  /** Ends a line the agent has left open. */
  breakLine(): void {
    if (this.#midLine) this.#out.write('\n');
    this.#midLine = false;
  }

  line(text: string, format: 'dim' | 'red' | 'yellow' = 'dim'): void {
    this.#aside.before();
    this.breakLine();
    this.#err.write(`${this.#style(format, text)}\n`);
    this.#aside.after();
  }

  event(event: StreamEvent): void {
    switch (event.agent_kind) {
      case 'TOKEN': {
        const text = plain(event.payload.text);
        if (text === '') return;
        this.#out.write(text);
        this.#midLine = !text.endsWith('\n');
        return;
      }
      case 'TOOL_CALL_PENDING':
        this.line(`  → ${plain(event.payload.tool_name)} ${oneLine(event.payload.arguments)}`);
        return;
      case 'TOOL_RESULT':
        this.line(`  ← ${plain(event.payload.tool_name)} ${oneLine(event.payload.result)}`, event.payload.is_error ? 'red' : 'dim');
        return;
      case 'APPROVAL_REQUIRED':
        this.line(`  ? approval needed: ${oneLine(event.payload.preview)}`, 'yellow');
        return;
      case 'FINISH':
        this.breakLine();
        if (event.payload.finish_reason !== 'stop') this.line(`  (${event.payload.finish_reason})`);
        return;
      case 'ERROR':
        this.line(`  error ${plain(event.payload.code)}: ${oneLine(event.payload.message)}`, 'red');
        return;
      case 'HIBERNATE':
        this.line('  (the session sleeps; the next message wakes it)');
    }
  }

  state(state: StreamState): void {
    if (state.kind === 'waiting' && !this.#outage) {
      this.#outage = true;
      this.line(`  connection lost (${state.code}${state.reason === '' ? '' : ` ${plain(state.reason)}`}), reconnecting …`, 'yellow');
    }
  }

  reconnected(reconnected: Reconnected): void {
    this.#outage = false;
    this.line(`  ${reconnectedText(reconnected)}`, reconnected.lost === 0 && reconnected.repeated === 0 ? 'dim' : 'red');
  }
}
