/**
 * `troupe chat` without a person at the keyboard: the message of the command line, or one message a line from standard
 * input. The next is read when the turn before it has ended, so that a long input waits in its pipe. Ends with exit code 1
 * at the first turn that fails.
 */
import type { Readable } from 'node:stream';
import { limits } from '../../contracts/limits.ts';
import type { TurnEnd } from '../client/outbox.ts';
import { fitContent } from './attach.ts';
import { openChat, streamEnd, type ChatOptions, type ChatWorld } from './chat.ts';
import { exitCodes, type ExitCode } from './exit.ts';
import { readLines } from './lines.ts';
import { plain, Printer } from './printer.ts';

async function* messages(message: string | undefined, input: Readable): AsyncGenerator<string> {
  if (message !== undefined) {
    yield message;
    return;
  }
  for await (const line of readLines(input, limits.attachmentMaxBytes)) if (line.trim() !== '') yield line;
}

export const runPipe = async (world: ChatWorld, options: ChatOptions, input: Readable): Promise<ExitCode> => {
  const printer = new Printer(world.out, world.err, world.err.isTTY === true);
  const chat = await openChat(world, options, printer, {
    onApproval: ({ dispatchId, preview }) => {
      const granted = options.approve === 'yes';
      if (!options.json) printer.line(`  ${granted ? 'approved (--approve yes)' : 'denied, nobody to ask (--approve yes allows)'}: ${plain(preview)}`);
      if (granted) stream.approve(dispatchId);
      else stream.cancel(dispatchId);
    },
    onSettled: () => undefined,
    onTurnEnd: () => undefined,
  }, false);
  const { stream } = chat;
  let interrupts = 0;
  const off = world.onInterrupt(() => {
    interrupts += 1;
    if (interrupts > 1 || !chat.busy) stream.close();
    else stream.cancel();
  });
  try {
    await Promise.race([chat.caughtUp, stream.closed]);
    chat.show();
    for await (const text of messages(options.message, input)) {
      if (interrupts > 0 || stream.state.kind === 'closed' || stream.state.kind === 'broken') break;
      const { content, attachment } = await fitContent(chat.edge, text);
      const end: TurnEnd = await stream.send(content, attachment === undefined ? {} : { attachment }).ended;
      if (end.kind === 'closed') break;
      printer.breakLine();
      if (end.kind === 'error') return exitCodes.turnFailed;
    }
    if (interrupts > 0) return exitCodes.interrupted;
    if (stream.state.kind === 'closed' || stream.state.kind === 'broken') await streamEnd(stream);
    return exitCodes.ok;
  } finally {
    off();
    printer.breakLine();
    stream.close();
    // A pipe whose writer lives on would keep the process.
    input.destroy();
  }
};
