/** What is checked of every page in a browser: its own complaints, axe-core, and screenshots for people to look at. */
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { Page } from 'playwright-core';

/** Errors of scripts and refusals of the content security policy, as they come. A request that is refused on purpose does not count. */
export const complaintsOf = (page: Page): string[] => {
  const complaints: string[] = [];
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => {
    if (message.type() === 'error' && !/ERR_|WebSocket|Failed to load resource/.test(message.text())) complaints.push(message.text());
  });
  return complaints;
};

/** What axe-core finds wrong with the page as it is now: rule and element each. The script is evaluated, not loaded: the page's policy stays in force. */
export const axeViolations = async (page: Page): Promise<string[]> => {
  await page.evaluate(await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8'));
  return page.evaluate(async () => {
    const { axe } = globalThis as unknown as { axe: { run(): Promise<{ violations: { id: string; nodes: { html: string; failureSummary?: string }[] }[] }> } };
    const { violations } = await axe.run();
    return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html.slice(0, 200)} ${node.failureSummary ?? ''}`));
  });
};

/** Takes pictures into the folder of TROUPE_SCREENSHOTS, named after their set; without one it takes none. */
export const shots = (page: Page, set: string) => async (name: string): Promise<void> => {
  const folder = process.env['TROUPE_SCREENSHOTS'];
  if (folder !== undefined) await page.screenshot({ path: join(folder, `${set}-${name}.png`), fullPage: true });
};
