/** What the chat benchmark's model says, and how fast. */

/** A sentence a few tokens at a time. */
export const answerChunks: readonly string[] = Array.from({ length: 40 }, (_, i) => `word${i} of ${40}, `);
export const answerText = answerChunks.join('');
/** Milliseconds until the first chunk, and between two: a fast model of today. */
export const pacedFirstMs = 200;
export const pacedChunkMs = 20;
/** Milliseconds that a whole answer takes. */
export const pacedMs = pacedFirstMs + answerChunks.length * pacedChunkMs;
/** Requests that make one conversation. */
export const turnsPerConversation = 8;
