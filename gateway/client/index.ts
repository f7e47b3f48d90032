/**
 * The typed client of the edge: sessions over HTTP (`edge.ts`), their streams over a WebSocket (`session-stream.ts`).
 * Works in a browser and in Node: whatever differs (fetch, WebSocket, clock) is an argument. Imports no DOM and no Node module.
 */
export { createEdge, type Edge, type EdgeOptions } from './edge.ts';
export { openSession, type SessionStream, type SessionStreamOptions, type StreamCounts, type Reconnected } from './session-stream.ts';
export type { StreamState, StreamSocket, StreamSocketConstructor } from './state.ts';
export { frameBytes, type PendingMessage, type TurnEnd } from './outbox.ts';
export type { Payload, StreamEvent } from './frame.ts';
export { subjectOf } from './token.ts';
export { realClock, type Clock } from './clock.ts';
