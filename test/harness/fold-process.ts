/**
 * Folds journals in a process of its own whose clock and chance are wrong: a fold that reads either gives other bytes here.
 * Reads one JSON line a journal ({address, messages: [{seq, data (base64)}]}) on standard input, writes one line of bytes each.
 */
import { createInterface } from 'node:readline';
import { z } from 'zod';
import { foldedBytes } from './proof.ts';

Date.now = () => 0;
Math.random = () => 0.5;
const journal = z.object({
  address: z.object({ org: z.string(), type: z.string(), key: z.string() }),
  messages: z.array(z.object({ seq: z.int(), data: z.base64() })),
});
for await (const line of createInterface({ input: process.stdin })) {
  const { address, messages } = journal.parse(JSON.parse(line));
  const stored = messages.map(({ seq, data }) => ({ subject: '', time: 0, seq, data: Buffer.from(data, 'base64') }));
  process.stdout.write(`${foldedBytes(address, stored)}\n`);
}
