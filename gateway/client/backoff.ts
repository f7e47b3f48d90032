/**
 * How long a client waits before it connects again: full jitter, so that the clients of a restarted gateway do not return
 * all at once.
 */
import { limits } from '../../contracts/limits.ts';

/**
 * Milliseconds before attempt `attempt` (1 = the first after a loss): `random` of min(max, base · 2^(attempt - 1)).
 * `random` is in [0, 1).
 */
export const backoffMs = (attempt: number, random: number): number =>
  Math.floor(random * Math.min(limits.clientReconnectMaxMs, limits.clientReconnectBaseMs * 2 ** Math.min(attempt - 1, 30)));
