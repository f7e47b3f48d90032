/** The states of a session stream, the part of a WebSocket it needs, and what each close code means for a person. */
import { closeCodes } from '../../contracts/close.ts';
import { type CodedError, coded, type ErrorCode } from '../../contracts/errors.ts';

/** What is used of a WebSocket; satisfied by the browser's and by the `ws` package's. */
export interface StreamSocket {
  readonly readyState: number;
  addEventListener(type: 'open', listener: () => void): void;
  addEventListener(type: 'error', listener: () => void): void;
  addEventListener(type: 'message', listener: (event: { readonly data: unknown }) => void): void;
  addEventListener(type: 'close', listener: (event: { readonly code: number; readonly reason: string }) => void): void;
  send(data: string): void;
  close(code?: number, reason?: string): void;
}
export type StreamSocketConstructor = new (url: string, protocols: string[]) => StreamSocket;

export type StreamState =
  | { readonly kind: 'connecting'; readonly attempt: number }
  | { readonly kind: 'open' }
  /** Lost; the next attempt starts in `retryInMs`. `code` is the WebSocket close code. */
  | { readonly kind: 'waiting'; readonly attempt: number; readonly retryInMs: number; readonly code: number; readonly reason: string }
  /** Over, by `close()` (no `error`) or by a close code after which a client does not come back. */
  | { readonly kind: 'closed'; readonly code: number; readonly reason: string; readonly error?: CodedError }
  /** Over, because the server's stream was not whole: `expected` and `got` are seq_nos, or 0 for a frame that is none. */
  | { readonly kind: 'broken'; readonly problem: 'gap' | 'repeat' | 'frame'; readonly expected: number; readonly got: number };

export type FinalState = Extract<StreamState, { kind: 'closed' | 'broken' }>;

const endings: Readonly<Record<number, { code: ErrorCode; text: string }>> = {
  [closeCodes.missed_pongs.code]: { code: 'protocol_error', text: 'The server got no answer to its pings.' },
  [closeCodes.unsupported.code]: { code: 'protocol_error', text: 'The server does not know this kind of frame.' },
  [closeCodes.invalid_payload.code]: { code: 'protocol_error', text: 'The server could not read a frame of this client.' },
  [closeCodes.token_expired.code]: { code: 'unauthorized', text: 'The token has expired. Sign in again.' },
  [closeCodes.too_big.code]: { code: 'payload_too_large', text: 'A frame was too large; send the content as an attachment.' },
  [closeCodes.rate_limited.code]: { code: 'rate_limited', text: 'Too many requests for this user. Wait a while before connecting again.' },
  [closeCodes.sequence_retired.code]: { code: 'sequence_retired', text: 'The server does not have the events after this position.' },
  [closeCodes.session_not_found.code]: { code: 'session_not_found', text: 'There is no such session for this user.' },
};

/** The error of a close code after which a client does not come back; undefined for the normal one. */
export const endingOf = (code: number, reason: string): CodedError | undefined => {
  if (code === closeCodes.normal.code) return undefined;
  const ending = endings[code];
  return coded(ending?.code ?? 'protocol_error', ending?.text ?? `The server closed with ${code} ${reason}.`);
};
