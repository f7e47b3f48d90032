/** Exit codes of the `troupe` command and the sentence that tells a person what to do about an error. */
import { CodedError, shown } from '../../contracts/errors.ts';

export const exitCodes = {
  ok: 0,
  /** A turn ended with ERROR; files of an import failed. */
  turnFailed: 1,
  /** Wrong use, or nothing to connect to is configured. */
  usage: 2,
  /** The gateway or daemon could not be reached, or the stream broke. */
  unreachable: 3,
  /** The server refused: token, session, model, limit, admin operation. */
  refused: 4,
  /** Ctrl-C. */
  interrupted: 130,
} as const;
export type ExitCode = (typeof exitCodes)[keyof typeof exitCodes];

export const exitHelp = `
Exit codes:
  0    done
  1    a turn ended with an error; some files could not be imported
  2    wrong use, or no configuration found
  3    the gateway or daemon cannot be reached, or the stream broke
  4    the server refused (token, role, session, model, limit, admin operation), or there is no token
  130  interrupted (Ctrl-C)`;

const usageCodes: ReadonlySet<string> = new Set(['bad_usage', 'not_configured']);
const interruptedCodes: ReadonlySet<string> = new Set(['interrupted_here']);
const unreachableCodes: ReadonlySet<string> = new Set(['stream_broken', 'deadline_exceeded']);

const advice: Readonly<Record<string, string>> = {
  not_configured: 'Start Troupe here with `npm start`, sign in with `troupe auth login --api https://…`, name a file with --config, or set TROUPE_API_BASE and TROUPE_TOKEN.',
  upstream_unavailable: 'Is Troupe running? `npm start` starts it, `troupe status` looks.',
  upstream_timeout: 'The daemon is slow or gone: `troupe status` looks.',
  deadline_exceeded: 'The gateway did not answer in time: `troupe status` looks.',
  unauthorized: 'The token is wrong, has expired or was revoked: `troupe auth login` gets a new one (`npm start` writes a fresh one to .troupe/dev.json).',
  not_signed_in: '`troupe auth login` signs in; or set TROUPE_TOKEN.',
  access_denied: 'The sign-in was denied in the browser. Nothing was stored.',
  expired_token: 'Nobody approved in time. Run `troupe auth login` again.',
  forbidden: 'Your role there, or the permissions of the API key, are too low for this: ask an owner or an admin of the organization.',
  plan_limit: 'Remove one that is not needed, or let an owner choose a larger plan.',
  legal_acceptance_required: 'Accept the terms on the console\'s legal page first.',
  stale_policy: 'The terms have changed: accept them on the console\'s legal page, then `troupe auth login` again.',
  user_id_mismatch: 'The token belongs to another user: unset TROUPE_USER_ID or give the right token.',
  session_not_found: 'Check the sid, or leave out --sid for a new session.',
  model_not_supported: 'Leave out --model for the default, or name one of the daemon configuration\'s registry.',
  rate_limited: 'Wait a little and try again.',
  too_many_sockets: 'Close another chat of this user first.',
  payload_too_large: 'Send less, or put the content in a file and use /attach.',
  stream_broken: 'The events were not contiguous, which must not happen. Please report it with the numbers above.',
};

/** What to do about an error code, or undefined where the message says it all. */
export const adviceFor = (code: string): string | undefined => (Object.hasOwn(advice, code) ? advice[code] : undefined);

export const exitCodeOf = (error: unknown): ExitCode => {
  const { code } = shown(error);
  if (usageCodes.has(code)) return exitCodes.usage;
  if (interruptedCodes.has(code)) return exitCodes.interrupted;
  if (unreachableCodes.has(code)) return exitCodes.unreachable;
  return error instanceof CodedError && error.entry.kind === 'refusal' ? exitCodes.refused : exitCodes.unreachable;
};
