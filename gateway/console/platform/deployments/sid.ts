/**
 * The id under which the gateway's WebSocket knows a session of a deployment: the first 130 bits of a SHA-256 in base32 (contracts/deployment.ts,
 * `sessionSeed`, whose schemas would come along; a test holds the two together).
 */
const alphabet = 'abcdefghijklmnopqrstuvwxyz234567';
const sidChars = 26;

export const sidOf = async (deployment: string, session: string, branch: string): Promise<string> => {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(`${deployment}\n${session}\n${branch}`)));
  const bit = (at: number): number => ((digest[at >> 3] ?? 0) >> (7 - (at & 7))) & 1;
  return Array.from({ length: sidChars }, (_, at) => alphabet.charAt([0, 1, 2, 3, 4].reduce((five, n) => (five << 1) | bit(at * 5 + n), 0))).join('');
};
