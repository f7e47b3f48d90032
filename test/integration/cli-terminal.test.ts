/** `troupe chat` as a person uses it: a terminal's keys in, a terminal's output out, against the fake edge. */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { after, before, test } from 'node:test';
import { runTerminal } from '../../gateway/cli/chat-terminal.ts';
import { createTransport } from '../../gateway/cli/transport.ts';
import { FakeEdge } from '../harness/fake-edge.ts';
import { troupeHome, type Home } from '../harness/troupe.ts';

let edge: FakeEdge;
let home: Home;
before(async () => {
  edge = await FakeEdge.start();
  home = await troupeHome(edge);
});
after(async () => {
  await edge.stop();
  await home.remove();
});

class Terminal {
  readonly #input = new PassThrough();
  readonly #output = new PassThrough();
  readonly ended: Promise<number>;
  #shown = '';
  #from = 0;
  #wake: (() => void)[] = [];

  constructor(sid?: string) {
    this.#output.setEncoding('utf8').on('data', (text: string) => {
      this.#shown += text;
      for (const wake of this.#wake.splice(0)) wake();
    });
    const transport = createTransport(edge.caPem);
    const token = (): Promise<string> => Promise.resolve(edge.token);
    this.ended = runTerminal(
      { target: { gatewayUrl: edge.url, userId: edge.userId, caPem: edge.caPem, adminSocket: undefined, token }, transport, out: this.#output, err: this.#output, onInterrupt: () => () => undefined },
      { sid, projectId: 'p', model: undefined, label: undefined, json: false, approve: 'ask', message: undefined, cwd: home.folder },
      this.#input, this.#output,
    ).finally(() => transport.close());
  }

  type(keys: string): void { this.#input.write(keys); }
  /** Resolves when `text` has come since the last call. */
  async saw(text: string): Promise<void> {
    for (;;) {
      const at = this.#shown.indexOf(text, this.#from);
      if (at !== -1) {
        this.#from = at + text.length;
        return;
      }
      await new Promise<void>((resolve) => { this.#wake.push(resolve); });
    }
  }
  get shown(): string { return this.#shown; }
}

const started = async (sid?: string): Promise<Terminal> => {
  const terminal = new Terminal(sid);
  await terminal.saw('> ');
  return terminal;
};

test('cli terminal - a message, its answer, the prompt again, and /quit says how to go on', async () => {
  const t = await started();
  t.type('hello\r');
  await t.saw('You said: hello');
  await t.saw('> ');
  t.type('/quit\r');
  assert.equal(await t.ended, 0);
  assert.match(t.shown, /continue with: troupe chat --sid [a-z2-7]{26}/);
});

test('cli terminal - y approves, anything else denies', async () => {
  const t = await started();
  t.type('/approve one\r');
  await t.saw('allow? [y/N] ');
  t.type('y\r');
  await t.saw('The answer is 42.');
  await t.saw('> ');
  t.type('/approve two\r');
  await t.saw('allow? [y/N] ');
  t.type('\r');
  await t.saw('denied');
  await t.saw('Then I will not.');
  await t.saw('> ');
  t.type('\u0004');
  assert.equal(await t.ended, 0);
});

test('cli terminal - an approval that was settled before is not asked again', async () => {
  const first = await started();
  first.type('/approve it\r');
  await first.saw('allow? [y/N] ');
  first.type('y\r');
  await first.saw('The answer is 42.');
  await first.saw('> ');
  first.type('/quit\r');
  await first.ended;
  const again = await started([...edge.sessions.keys()].at(-1));
  assert.match(again.shown, /The answer is 42\./, 'the history is shown');
  assert.ok(!again.shown.includes('allow?'));
  again.type('/quit\r');
  await again.ended;
});

test('cli terminal - Ctrl-C cancels the running turn, a second one leaves with 130', async () => {
  const t = await started();
  t.type('/slow one\r');
  await t.saw('Thinking');
  t.type('\u0003');
  await t.saw('(cancelled)');
  await t.saw('> ');
  t.type('\u0003');
  assert.equal(await t.ended, 130);
});

test('cli terminal - says that it reconnected and goes on', async () => {
  const t = await started();
  t.type('/slow two\r');
  await t.saw('Thinking');
  edge.cut();
  await t.saw('connection lost (1006), reconnecting');
  edge.release([...edge.sessions.keys()].at(-1) ?? '');
  await t.saw('events lost');
  await t.saw(' done.');
  await t.saw('> ');
  t.type('/quit\r');
  assert.equal(await t.ended, 0);
});

test('cli terminal - /attach stores a file that goes with the next message; a missing one is said', async () => {
  await writeFile(join(home.folder, 'notes.txt'), '12345');
  const t = await started();
  t.type('/attach nothing.txt\r');
  await t.saw('cannot be read (ENOENT)');
  t.type('/attach notes.txt\r');
  await t.saw('attached notes.txt (5 bytes)');
  t.type('look\r');
  await t.saw('You said: look (5 bytes attached)');
  await t.saw('> ');
  t.type('//help\r');
  await t.saw('You said: /help');
  await t.saw('> ');
  t.type('/quit\r');
  await t.ended;
});
