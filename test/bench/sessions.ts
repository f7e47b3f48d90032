/** What the processes of the stream benchmarks agree on: whose the sessions are, what an event says, what its frame is. */
import { encodeAgentEvent } from '../../contracts/stream.ts';

export const sub = 'bench';
export const org = 'u-bench';
/** As long as a word of a model. */
export const eventText = 'streamed ';

const letters = 'abcdefghijklmnopqrstuvwxyz234567';
/** A sid of the right form, from a number. */
export const sidOf = (n: number): string => Array.from({ length: 26 }, (_, i) => letters.charAt(Math.floor(n / 32 ** i) % 32)).join('');

/** The frame of an event as the daemon makes it. */
export const frameText = (sid: string, seqNo: number, at: string): string => encodeAgentEvent(sid, seqNo, 'TextDelta', at, 'TOKEN', { text: eventText });
