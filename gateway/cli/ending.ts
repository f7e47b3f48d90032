/** The end of a session stream as an error to report, where it is one. */
import { type CodedError, refuse } from '../../contracts/errors.ts';
import type { StreamState } from '../client/state.ts';

export const endError = (end: Extract<StreamState, { kind: 'closed' | 'broken' }>): CodedError | undefined => {
  if (end.kind === 'closed') return end.error;
  const what = {
    gap: `the server left out events: expected ${end.expected}, got ${end.got}`,
    repeat: `the server repeated event ${end.got}; expected ${end.expected}`,
    frame: 'the server sent a frame that is not of this protocol',
  }[end.problem];
  return refuse('stream_broken', `The stream broke: ${what}.`);
};
