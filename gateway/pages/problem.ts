/** What the pages say about an error code: for people who did not write the request. Unknown codes show the server's own message. */
import { errorEntry } from '../../contracts/errors.ts';

export interface Problem {
  readonly code: string;
  readonly message: string;
  /** Seconds to wait, if the server said so. */
  readonly retryAfterSec?: number;
}

const texts: Readonly<Record<string, string>> = {
  bad_code: 'This code is not right, was used already or is older than 10 minutes. Check it, or have a new one sent.',
  signin_refused: 'The sign-in was not completed. Please start again.',
  email_unverified: 'That account has no e-mail address which its provider has verified. Verify it there, or sign in with your e-mail address here.',
  provider_unavailable: 'That sign-in service cannot be reached at the moment. Try again later, or use your e-mail address.',
  forbidden: 'This page was open for too long, or the request came from another site. Please try again.',
  unauthorized: 'You are not signed in any more.',
  upstream_unavailable: 'The service cannot be reached at the moment. Please try again.',
  upstream_timeout: 'The service did not answer in time. Please try again.',
  overloaded: 'The service is very busy. Please try again.',
  rate_limited: 'Too many attempts.',
  rate_limit_exceeded: 'Too many attempts.',
};

const waitText = (seconds: number): string =>
  (seconds < 90 ? `Please wait ${Math.ceil(seconds)} seconds.` : `Please wait ${Math.ceil(seconds / 60)} minutes.`);

/** One or two sentences, as text. */
export const problemText = ({ code, message, retryAfterSec }: Problem): string => {
  const text = Object.hasOwn(texts, code) ? texts[code] ?? message : message === '' ? errorEntry(code).message : message;
  return retryAfterSec === undefined ? text : `${text} ${waitText(retryAfterSec)}`;
};

/** Codes that a redirect to the sign-in page may name in its address; anything else there is not shown. */
export const namedInAddress: ReadonlySet<string> = new Set(['signin_refused', 'email_unverified', 'provider_unavailable', 'rate_limited', 'forbidden']);
