/**
 * Reporter for Node's test runner: one line of JSON for each test file as it ends (result.ts), for who started the runner.
 */
import type { TestEvent } from 'node:test/reporters';
import { Results } from './result.ts';

export default async function* record(events: AsyncIterable<TestEvent>): AsyncGenerator<string, void> {
  const results = new Results(process.cwd());
  for await (const event of events) {
    const result = results.take(event);
    if (result !== undefined) yield `${JSON.stringify(result)}\n`;
  }
  for (const result of results.rest()) yield `${JSON.stringify(result)}\n`;
}
