/**
 * Reporter for Node's test runner: one line for each test file as it ends (tests, milliseconds), below it what its tests remarked.
 *
 * What failed is named here and told in full at the end of the run (summary.ts).
 */
import type { TestEvent } from 'node:test/reporters';
import { Results } from './result.ts';
import { fileLines } from './summary.ts';

export default async function* lines(events: AsyncIterable<TestEvent>): AsyncGenerator<string, void> {
  const results = new Results(process.cwd());
  for await (const event of events) {
    const result = results.take(event);
    if (result !== undefined) yield `${fileLines(result).join('\n')}\n`;
  }
  for (const result of results.rest()) yield `${fileLines(result).join('\n')}\n`;
}
