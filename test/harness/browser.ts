/** Starts the Chromium that comes from npm, headless. What it may not do: reach anything but the addresses a test opens. */
import chromium from '@sparticuz/chromium';
import { chromium as playwright, type Browser } from 'playwright-core';

/** The caller closes it. TLS errors are the context's affair (`ignoreHTTPSErrors`): the tests' certificates are self-signed. */
export const launchBrowser = async (): Promise<Browser> => playwright.launch({
  executablePath: await chromium.executablePath(),
  headless: true,
  args: [...chromium.args.filter((arg) => arg !== '--single-process' && arg !== '--no-zygote'), '--no-sandbox', '--disable-background-networking'],
});
