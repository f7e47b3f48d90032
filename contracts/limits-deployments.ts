/** The bounds of managed deployments: the third part of `limits` (limits.ts), which is where they are read. */
export const deploymentLimits = {
  // --- forks -------------------------------------------------------------------------------------------------------
  /** Forks of forks. More: `fork_too_deep`. */
  forkDepthMax: 16,
  /** Branches of one session besides `main`. More: `too_many_branches`. Those made at the same moment may exceed it by as many. */
  sessionBranchesMax: 256,
  /** Characters of one text in a session's state as it is shown, and bytes of the whole, for which texts are cut shorter: `cut` says so. */
  sessionStateTextMaxChars: 64 * 1024,
  sessionStateMaxBytes: 4 * 1024 * 1024,
  // --- client streams ----------------------------------------------------------------------------------------------
  /** Characters of a stream id, of an event's kind, of an idempotency key (decisions, Deployment services). More: `invalid_argument`. */
  streamIdMaxChars: 256,
  eventKindMaxChars: 128,
  idempotencyKeyMaxChars: 128,
  /** Events of one append, and bytes of its body. More: `invalid_argument`, `payload_too_large`. */
  appendEventsMax: 1_000,
  appendMaxBytes: 1024 * 1024,
  /** Events of one answer unless asked for otherwise, and at most. */
  journalPageEvents: 256,
  journalPageEventsMax: 10_000,
  /** Milliseconds for which an idempotency key is remembered (decisions: 24 h), and how many of one stream. More in that time: `rate_limited`. */
  idempotencyTtlMs: 86_400_000,
  idempotencyKeysMax: 32_768,
  /** Keys that are kept together, and forgotten together. */
  idempotencyChunkMax: 1_024,

  // --- regulation --------------------------------------------------------------------------------------------------
  /** Milliseconds of event time for which a ratio must stay past a threshold before the mode changes (decisions: 5 minutes). */
  regulationHoldMs: 300_000,
  /** Milliseconds of event time over which outcomes count for the error rate and latency, and how many of them: the latest. */
  regulationWindowMs: 3_600_000,
  regulationOutcomesMax: 100,
  /** Outcomes from which on an error rate blocks tools (decisions: 5). */
  regulationErrorEvents: 5,
  /** Milliseconds of event time over which spending counts as burn (decisions: 30 days). */
  regulationBurnMs: 30 * 86_400_000,
  /** Milliseconds that may pass until a gate that is asked notes the time. */
  regulationTickMs: 60_000,
  /** Ids of observations that are remembered, so that one told twice counts once. */
  regulationSeenMax: 1_024,
  /** Changes of mode, and gates that warned or blocked, that can be read again. */
  regulationHistoryMax: 64,
  /** Largest `runway_hours` (decisions: ten years). */
  runwayHoursMax: 87_600,

  // --- the console's pages of deployments ----------------------------------------------------------------------------
  /** Events of a session that its page takes. What comes after is not shown, and the page says so. */
  inspectorEventsMax: 20_000,
  /** Milliseconds between two looks at a session that is not told of what is new, and between two requests for what is. */
  inspectorLookMs: 5_000,
  inspectorPaceMs: 500,
  /** Events of the journal, turns of the conversation and differences that are drawn at once: those around the one chosen. */
  inspectorRowsMax: 60,
  /** States of a session that its page keeps. */
  inspectorStatesMax: 32,
  /** Longest pause of a replay, milliseconds: longer ones are cut to it. */
  replayPauseMs: 3_000,
  /** Documents in the picture of a graph: the nearest. All are in the list beside it. */
  graphDrawnMax: 60,
} as const;
