/** The bounds of a deployment's runtime and memory: a part of `limits` (limits.ts), which is where they are read. */
export const runtimeLimits = {
  /** Bytes of a `/v1/chat` body. More: `payload_too_large`. Less than a command may have (`commandPlainMaxBytes`), as its messages go to the session in one. */
  runtimeBodyMaxBytes: 1024 * 1024,
  /** Turns whose beginning a session keeps, so that a client that comes back finds its own. */
  sessionTurnsKept: 128,
  /** Events of one answer unless asked for otherwise, and at most; bytes of one answer, beyond which it holds fewer. */
  sessionEventsUsual: 256,
  sessionEventsMax: 10_000,
  sessionEventsMaxBytes: 4 * 1024 * 1024,
  /** Sessions of a deployment in one answer unless asked for otherwise, and at most. */
  deploymentSessionsUsual: 100,
  deploymentSessionsMax: 500,
  /** Memories of one session, and characters of their facts. More: `memory_full`. */
  sessionMemoriesMax: 1_000,
  sessionMemoryMaxChars: 256 * 1024,
  /** Characters of one fact and of what it comes from. More: `invalid_argument`. */
  memoryFactMaxChars: 4_096,
  memorySourceMaxChars: 256,
  /** Memories, and characters of them, that the model is told of in a turn: those that fit its message best. */
  promptMemoriesMax: 16,
  promptMemoriesMaxChars: 8_192,
  /** Milliseconds between two passes of an organization's retention, and sessions that one pass looks at: what is left over, the next does. */
  retentionEveryMs: 86_400_000,
  retentionSessionsMax: 64,
  /** Milliseconds after which an answer that has nothing to say yet begins all the same, as its client waits. */
  answerBeginMs: 15_000,
} as const;
