/**
 * `troupe chat` with a person: streams what the agent says, shows tool calls, asks for approvals, takes /commands.
 *
 * Ctrl-C cancels the running turn; a second one, or one while nothing runs, leaves. A line written while a turn runs is
 * sent at once and waits its turn in the session. A /word that is none of ours goes to the agent as it is; `//` sends
 * one of ours, with one slash less.
 */
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { shown } from '../../contracts/errors.ts';
import { attachFile, fitContent } from './attach.ts';
import { openChat, streamEnd, type Approval, type ChatOptions, type ChatWorld } from './chat.ts';
import { adviceFor, exitCodes, type ExitCode } from './exit.ts';
import { plain, Printer } from './printer.ts';

const help = `  /attach <file>   store a file; it goes with your next message
  /cancel          cancel the running turn (also Ctrl-C)
  /quit            leave (also Ctrl-D); the session stays and can be resumed
  /help            this`;

export const runTerminal = async (world: ChatWorld, options: ChatOptions, input: Readable, output: Writable): Promise<ExitCode> => {
  const readline = createInterface({ input, output, prompt: '> ', terminal: true, historySize: 200 });
  let prompting = false;
  const step = { before: (): void => { if (prompting) output.write('\r\u001b[K'); }, after: (): void => { if (prompting) readline.prompt(true); } };
  const printer = new Printer(world.out, world.err, true, step);
  const approvals: Approval[] = [];
  let attachment: string | undefined;
  let interrupted = false;
  let leaving = false;

  const prompt = (): void => {
    const [approval] = approvals;
    if (leaving || (approval === undefined && chat.busy)) {
      prompting = false;
      return;
    }
    readline.setPrompt(approval === undefined ? '> ' : '  allow? [y/N] ');
    prompting = true;
    readline.prompt();
  };
  const leave = (): void => {
    if (prompting) output.write('\n');
    leaving = true;
    prompting = false;
    chat.stream.close();
  };

  const chat = await openChat(world, options, printer, {
    onApproval: (approval) => {
      if (options.approve === 'ask') {
        approvals.push(approval);
        if (approvals.length === 1) prompt();
      } else if (options.approve === 'yes') chat.stream.approve(approval.dispatchId);
      else chat.stream.cancel(approval.dispatchId);
    },
    onSettled: (dispatchId) => {
      const index = approvals.findIndex((a) => a.dispatchId === dispatchId);
      if (index === -1) return;
      approvals.splice(index, 1);
      step.before();
      prompt();
    },
    onTurnEnd: () => {
      cancelled = false;
      // The message's own settling follows this event in the same turn of the event loop.
      setImmediate(prompt);
    },
  }, true).catch((error: unknown) => {
    readline.close();
    throw error;
  });
  const { stream } = chat;
  let cancelled = false;

  const interrupt = (): void => {
    if (!chat.busy || cancelled) {
      interrupted = true;
      leave();
      return;
    }
    cancelled = true;
    stream.cancel();
    printer.line('  cancelling … (Ctrl-C again to leave)');
  };
  const off = world.onInterrupt(interrupt);
  readline.on('SIGINT', interrupt);
  readline.on('close', () => { if (!leaving) leave(); });

  const say = async (text: string): Promise<void> => {
    const fitted = attachment === undefined ? await fitContent(chat.edge, text) : { content: text, attachment };
    stream.send(fitted.content, fitted.attachment === undefined ? {} : { attachment: fitted.attachment });
    attachment = undefined;
  };
  /** False if the line is no command of ours. */
  const command = async (line: string): Promise<boolean> => {
    const [name = '', ...rest] = line.slice(1).split(/\s+/);
    const argument = rest.join(' ').trim();
    switch (name) {
      case 'quit':
      case 'exit':
        leave();
        return true;
      case 'cancel':
        if (chat.busy) stream.cancel();
        return true;
      case 'attach': {
        if (argument === '') {
          printer.line('  /attach needs a file name');
          return true;
        }
        const { hash, size } = await attachFile(chat.edge, argument, options.cwd);
        attachment = hash;
        printer.line(`  attached ${plain(argument)} (${size} bytes); it goes with your next message`);
        return true;
      }
      case 'help':
        printer.line(help);
        return true;
      default:
        return false;
    }
  };
  const answer = (approval: Approval, line: string): void => {
    approvals.shift();
    if (/^\s*y(es)?\s*$/i.test(line)) stream.approve(approval.dispatchId);
    else {
      stream.cancel(approval.dispatchId);
      printer.line('  denied');
    }
  };
  const take = async (line: string): Promise<void> => {
    const [approval] = approvals;
    if (approval !== undefined) answer(approval, line);
    else if (line.startsWith('//')) await say(line.slice(1));
    else if (line.trim() !== '' && !(line.startsWith('/') && await command(line))) await say(line);
  };
  // One line after the other: what /attach stores must be there before the message that follows it.
  let taken: Promise<void> = Promise.resolve();
  readline.on('line', (line) => {
    prompting = false;
    taken = taken.then(() => take(line)).catch((error: unknown) => {
      const { code, message } = shown(error);
      printer.line(`  ${code}: ${message}${adviceFor(code) === undefined ? '' : ` ${adviceFor(code)}`}`, 'red');
    }).then(prompt);
  });

  printer.line(`session ${chat.sid}${options.sid === undefined ? '' : ' (resumed)'}; /help for commands`);
  void chat.caughtUp.then(() => { if (!prompting) prompt(); });
  try {
    await streamEnd(stream);
    return interrupted ? exitCodes.interrupted : exitCodes.ok;
  } finally {
    leaving = true;
    prompting = false;
    off();
    printer.breakLine();
    readline.close();
    printer.line(`continue with: troupe chat --sid ${chat.sid}`);
  }
};
