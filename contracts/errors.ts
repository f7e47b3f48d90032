/**
 * The one table of error codes: code → kind, HTTP status, WebSocket close code, retry, safe message.
 *
 * Three kinds (style.md): a *refusal* is the caller's doing, coded and safe to show; a *fault* is the world's doing,
 * coded, with retry stated; a *bug* is ours: it leaves the process as `internal_error` plus a correlation id.
 * The code is API, the message is prose (NATS ADR-7). Foreign errors are translated in their adapter only.
 *
 * An actor may refuse with a code of its own (`insufficient_funds`): any snake_case word that is not in the table is a
 * refusal with HTTP 400, so that adding an actor type touches nothing here.
 */
export type ErrorKind = 'refusal' | 'fault' | 'bug';
/** `never`: the same request will fail again. `later`: may pass after a wait. `safe`: nothing was done, repeat at once. */
export type Retry = 'never' | 'later' | 'safe';

export interface ErrorEntry {
  readonly kind: ErrorKind;
  readonly http: number;
  readonly close?: number;
  readonly retry: Retry;
  readonly message: string;
}

const refusal = (http: number, message: string, retry: Retry = 'never', close?: number): ErrorEntry =>
  ({ kind: 'refusal', http, message, retry, ...(close === undefined ? {} : { close }) });
const fault = (http: number, message: string, retry: Retry = 'later', close?: number): ErrorEntry =>
  ({ kind: 'fault', http, message, retry, ...(close === undefined ? {} : { close }) });

export const errors = {
  // callers
  bad_request: refusal(400, 'The request could not be read.'),
  bad_user_id: refusal(400, 'user_id must be 1-128 characters without control characters.'),
  bad_digest: refusal(400, 'The digest must be 32 bytes in base64.'),
  bad_assertion: refusal(400, 'The passkey assertion did not verify.'),
  bad_attestation: refusal(400, 'The passkey attestation did not verify.'),
  bad_bearer: refusal(400, 'The bearer token is malformed or larger than 8 KiB.'),
  validation_error: refusal(422, 'A field is unknown, missing or has the wrong type.'),
  unauthorized: refusal(401, 'A valid bearer token is required.'),
  forbidden: refusal(403, 'This is not allowed.'),
  wrong_audience: refusal(403, 'The token was not issued for this route.'),
  scope_insufficient: refusal(403, 'The token lacks the scope this route requires.'),
  user_id_mismatch: refusal(403, 'user_id is not the subject of the token.'),
  not_found: refusal(404, 'There is nothing here.'),
  conflict: refusal(409, 'The resource exists already or has changed.'),
  payload_too_large: refusal(413, 'The request body is too large.'),
  rate_limited: refusal(429, 'Too many requests. Wait for Retry-After seconds.', 'later', 4001),
  too_many_sockets: refusal(429, 'This user has too many open streams on this gateway.', 'later'),

  // platform
  /** Between daemon and gateway, which shows it as `unauthorized` on the edge. */
  access_ended: refusal(401, 'The sign-in or the membership behind this token has ended.'),
  stale_policy: refusal(401, 'The terms have changed since this token was made. Accept them and get a new token.'),
  legal_acceptance_required: refusal(403, 'The current terms must be accepted first.'),
  plan_limit: refusal(403, 'The plan allows no more of these.'),
  checkout_disabled: fault(503, 'Plans cannot be bought here at the moment.'),
  payment_error: fault(500, 'The payment service failed. Try again later.'),
  credits_exhausted: refusal(402, 'The credits of this plan are used up.'),
  bad_code: refusal(400, 'The code is wrong, was used or has expired. Ask for a new one.'),
  signin_refused: refusal(400, 'The sign-in was not completed. Start again.'),
  email_unverified: refusal(400, 'The account there has no verified e-mail address.'),
  provider_unavailable: fault(503, 'The sign-in service cannot be reached.'),
  device_expired: refusal(410, 'The code has expired. Start again on the device.'),

  // OAuth endpoints: `error` of RFC 6749 section 5.2 and RFC 8628 section 3.5
  invalid_request: refusal(400, 'A parameter is missing or malformed.'),
  invalid_grant: refusal(400, 'The code is unknown, was used or belongs to another client.'),
  /** Shown as `invalid_grant`: at the refresh endpoint it goes with 401 (decisions, Device flow and tokens). */
  invalid_refresh: refusal(401, 'The refresh token is unknown, was used or has expired.'),
  unsupported_grant_type: refusal(400, 'This grant type is not supported here.'),
  authorization_pending: refusal(400, 'The person has not decided yet.', 'later'),
  slow_down: refusal(400, 'Polls come too fast: wait 5 seconds longer between them.', 'later'),
  access_denied: refusal(400, 'The person refused.'),
  expired_token: refusal(400, 'The device code has expired.'),
  rate_limit_exceeded: refusal(429, 'Too many requests. Wait for Retry-After seconds.', 'later'),

  // sessions
  session_not_found: refusal(404, 'There is no such session.', 'never', 4010),
  fork_too_deep: refusal(400, 'A branch of a branch of a branch … has an end. Branch from an earlier one.'),
  too_many_branches: refusal(400, 'The session can have no more branches.'),
  memory_full: refusal(400, 'The session can remember no more.'),
  sequence_retired: refusal(410, 'That position is not in the retained stream.', 'never', 4005),
  session_busy: refusal(429, 'Too many messages are waiting in this session.', 'later'),
  model_not_supported: refusal(400, 'The model is not in the registry.'),
  blob_not_found: refusal(404, 'There is no such blob.'),
  blob_damaged: fault(500, 'The stored blob is damaged.', 'never'),
  range_not_satisfiable: refusal(416, 'The blob has no such range.'),
  too_many_steps: refusal(400, 'The turn used too many model steps.'),
  provider_error: fault(502, 'The model provider failed.'),
  provider_timeout: fault(504, 'The model provider did not answer in time.'),
  tool_not_found: refusal(404, 'There is no such tool.'),
  tool_failed: fault(500, 'The tool failed.'),
  approval_unknown: refusal(400, 'No tool call waits for this answer.'),

  // actors
  unknown_actor_type: refusal(404, 'There is no actor of that type here.'),
  unknown_command: refusal(404, 'The actor has no such command.'),
  mailbox_full: refusal(429, 'The actor has too many waiting messages.', 'later'),
  commit_too_large: refusal(413, 'The change is too large for one commit.'),
  too_many_reminders: refusal(429, 'The actor has too many reminders.'),
  deadline_exceeded: fault(504, 'No answer within the deadline. The request may have taken effect.', 'later'),
  aborted: refusal(499, 'The caller gave up.'),
  not_owner: fault(503, 'This host does not own the actor.', 'safe'),
  no_owner: fault(503, 'No host owns the actor at the moment.', 'safe'),
  fenced: fault(503, 'The actor has moved to another host.', 'later'),
  draining: fault(503, 'The host is shutting down.', 'safe', 1001),
  overloaded: fault(503, 'The host is at its limit.', 'later'),
  interrupted: fault(500, 'The work was interrupted by a restart.', 'later'),
  journal_unavailable: fault(503, 'The journal does not answer.', 'later'),
  journal_unreadable: { kind: 'bug', http: 500, retry: 'never', message: 'A journaled event could not be read.' },

  // deployments
  /** Every malformed body, query and path on their surface. */
  invalid_argument: refusal(400, 'A field is unknown, missing, or not as it has to be.'),
  branch_not_found: refusal(404, 'The session has no such branch.'),
  event_not_found: refusal(404, 'There is no such event.'),
  node_not_found: refusal(404, 'There is no such node.'),
  sequence_conflict: refusal(409, 'The stream has gone on: its last event is another one.'),
  policy_denied: refusal(403, 'A gate of the deployment blocks this at the moment.'),

  // mail
  mail_refused: refusal(422, 'The mail server refused this mail for good.'),
  mail_unavailable: fault(503, 'Mail cannot be sent at the moment.'),

  // edge and link
  upstream_error: fault(502, 'The upstream failed.'),
  upstream_unavailable: fault(503, 'The upstream cannot be reached.', 'later', 4004),
  upstream_timeout: fault(504, 'The upstream did not answer within 10 seconds.', 'later'),
  unknown_route: refusal(404, 'The link has no such route.'),
  frame_too_large: refusal(413, 'A link frame is too large.'),
  protocol_error: refusal(400, 'The link peer broke the protocol.'),
  version_mismatch: refusal(400, 'The link peer speaks another version.'),
  peer_refused: refusal(403, 'The peer process is not admitted to this socket.'),
  socket_in_use: refusal(409, 'Another process serves this socket.'),
  unknown_op: refusal(400, 'There is no such admin operation.'),
  cert_reload_failed: fault(500, 'The certificate could not be loaded; the old one stays in service.'),

  // ours
  internal: { kind: 'bug', http: 500, close: 1011, retry: 'later', message: 'Something went wrong on our side.' },
  internal_error: { kind: 'bug', http: 500, close: 1011, retry: 'later', message: 'Something went wrong on our side.' },
} as const satisfies Record<string, ErrorEntry>;

export type ErrorCode = keyof typeof errors;

const table: Readonly<Record<string, ErrorEntry>> = errors;
const ownRefusal: ErrorEntry = { kind: 'refusal', http: 400, retry: 'never', message: 'The request was refused.' };

/** The table's entry for a code; a code that is not in the table is an actor's own refusal (HTTP 400, never retried). */
export const errorEntry = (code: string): ErrorEntry => (Object.hasOwn(table, code) ? table[code] : undefined) ?? ownRefusal;

/**
 * The base of every error that may cross a process: a stable `code`, a safe `message`, optional `details` for the body.
 * Whatever is not a CodedError is a bug and is shown as `internal_error`.
 */
export class CodedError extends Error {
  override readonly name = 'CodedError';
  readonly code: string;
  readonly details: Readonly<Record<string, unknown>> | undefined;

  constructor(code: string, message?: string, options: { details?: Record<string, unknown>; cause?: unknown } = {}) {
    super(message ?? errorEntry(code).message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.details = options.details;
  }

  get entry(): ErrorEntry {
    return errorEntry(this.code);
  }
}

/** A coded error to throw: `throw coded('session_not_found')`. `details` is shown to the caller, `cause` is not. */
export const coded = (
  code: ErrorCode,
  message?: string,
  options?: { details?: Record<string, unknown>; cause?: unknown },
): CodedError => new CodedError(code, message, options);

/** An actor's own refusal: `throw refuse('insufficient_funds', 'The balance is 3.00')`. Commits nothing. */
export const refuse = (code: string, message?: string, details?: Record<string, unknown>): CodedError =>
  new CodedError(code, message, details === undefined ? {} : { details });

/** What may be shown of any thrown value: coded errors as they are, everything else as `internal_error`. */
export const shown = (error: unknown): { code: string; message: string; details?: Readonly<Record<string, unknown>> } => {
  if (error instanceof CodedError) {
    return error.details === undefined
      ? { code: error.code, message: error.message }
      : { code: error.code, message: error.message, details: error.details };
  }
  return { code: 'internal_error', message: errors.internal_error.message };
};
