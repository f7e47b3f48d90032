/**
 * Every bound of the system, by name, with what happens when it is reached.
 *
 * Guarantee (design G5): no queue, payload, wait or fan-out grows beyond a number on this page. Units come last in each
 * name. A limit that an operator may change is the default of a configuration key (see `config.ts`); the rest are fixed.
 */
import { deploymentLimits } from './limits-deployments.ts';
import { knowledgeLimits } from './limits-knowledge.ts';
import { blobLimits } from './limits-blobs.ts';
import { platformLimits } from './limits-platform.ts';
import { runtimeLimits } from './limits-runtime.ts';

export const limits = {
  ...platformLimits,
  ...blobLimits,
  ...deploymentLimits,
  ...knowledgeLimits,
  ...runtimeLimits,

  // --- identifiers -------------------------------------------------------------------------------------------------
  /** Characters of a user id, project id or label. Longer: 400 `bad_user_id` / `bad_request`. Source: decisions, Edge gateway. */
  idMaxChars: 128,
  /** Bytes of one encoded subject token: 128 characters of four bytes, each byte as `=XX`, and the `u-` of a personal organization. Longer: 400 `bad_request`. Two such tokens stay under NATS' 4 KiB line. */
  subjectTokenMaxBytes: 1_538,

  // --- edge --------------------------------------------------------------------------------------------------------
  /** Bytes of a bearer token. Longer: 400 `bad_bearer` (Authorization) or 400 before the upgrade (subprotocol). */
  bearerMaxBytes: 8 * 1024,
  /** Bytes of a JSON request body on edge routes. Longer: 413 `payload_too_large`. */
  bodyMaxBytes: 64 * 1024,
  /** Levels of nesting of any JSON body. Deeper: `bad_request`, on the platform `validation_error`. More than `chatDepthMax` and what is around a tool's values. */
  bodyDepthMax: 128,
  /** Places of a bad body that a refusal names, and characters of each place and of what is said of it: both are the sender's to make long. The rest is cut. */
  issuesMax: 8,
  issueMaxChars: 256,
  /** Bytes of an attachment uploaded over the edge. Longer: 413 `payload_too_large`. */
  attachmentMaxBytes: 4 * 1024 * 1024,
  /** Uploads of one user under way on one gateway process, waiting for their answer included. More: 429 `rate_limited`. */
  uploadsPerUserMax: 8,
  /** Bytes of all request bodies that one gateway process holds. More: 503 `overloaded`. */
  bodiesMaxBytes: 256 * 1024 * 1024,
  /** Bytes of a request's head, all headers together. Longer: 431 by uWebSockets.js. Holds a bearer in both forms and some cookies. */
  headMaxBytes: 32 * 1024,
  /** Bytes of one client frame that is still read to be answered with 1009. Longer: the connection is cut without a close frame. */
  clientFrameCutBytes: 4 * 1024 * 1024,
  /** Bytes of one WebSocket frame from a client; exactly this many are accepted. Longer: close 1009. */
  clientFrameMaxBytes: 64 * 1024,
  /** WebSockets of one user on one gateway process (configuration `limits.sockets_per_user`). More: 429 before the upgrade. */
  socketsPerUser: 10,
  /** Milliseconds between heartbeat pings (configuration `heartbeat_ms`). */
  heartbeatMs: 30_000,
  /** Unanswered pings before the connection is closed with 1002. */
  missedPongsMax: 3,
  /** Bytes buffered for one WebSocket above which the gateway stops granting credit to its stream. */
  socketHighWaterBytes: 256 * 1024,
  /** Milliseconds a WebSocket may stay above the high water mark without taking a byte. Then close 4002. */
  slowConsumerMs: 15_000,
  /** Characters of upstream error text shown to a client, after redaction. */
  upstreamTextMaxChars: 256,
  /** Verified tokens remembered by one gateway process; the least recently used is forgotten. */
  verifiedTokensMax: 50_000,
  /** Rate-limit buckets kept by one gateway process; a full bucket is the first to be forgotten. */
  bucketsMax: 100_000,
  /** Seconds of leeway on a Tier 1 token's times. */
  tokenLeewaySec: 30,
  /** Milliseconds a JWKS answer is fresh. */
  jwksTtlMs: 300_000,
  /** Milliseconds between two JWKS fetches caused by unknown key ids. */
  jwksCooldownMs: 10_000,
  /** Milliseconds `/healthz` waits for the daemon's answer. Then 503. */
  healthDeadlineMs: 2_000,
  /** Milliseconds after which bytes a WebSocket has taken are granted again, if fewer than a quarter of the window. */
  creditDelayMs: 20,
  /** Milliseconds between the last close frame and the end of a stopping gateway, so that the frame leaves the machine. */
  closeGraceMs: 100,
  /** Milliseconds one JWKS fetch may take, and bytes its answer may have. Beyond: the last good set stays in use. */
  jwksFetchMs: 5_000,
  jwksMaxBytes: 256 * 1024,
  /** Limits replaced by an operator with `rate_limit_override`. More: `bad_request`. */
  bucketOverridesMax: 1_000,
  /** Seconds a capability token lives at most. */
  capabilityTtlSec: 900,
  /** Seconds before its expiry at which the gateway mints a user's agent capability anew. */
  capabilityRenewSec: 300,
  /** Milliseconds between two looks at the certificate files (configuration `tls.poll_ms`). */
  certificatePollMs: 5_000,
  /** Milliseconds a failed group lookup on the admin socket is remembered as a refusal. */
  groupLookupNegativeMs: 60_000,
  /** Admin connections at once. More are closed unread. */
  adminConnectionsMax: 64,
  /** Milliseconds the gateway waits for its streams when it drains and nobody says how long. Then they close with 1001. */
  gatewayDrainMs: 30_000,
  /** Bytes of one admin request line. Longer: `bad_request` and the connection is closed. */
  adminLineMaxBytes: 64 * 1024,

  // --- link --------------------------------------------------------------------------------------------------------
  /** Bytes of one link frame, length prefix excluded. Longer: the connection is closed with `frame_too_large`. */
  linkFrameMaxBytes: 5 * 1024 * 1024,
  /** Requests in flight on one link connection. More: `overloaded` (503). */
  linkRequestsMax: 16_384,
  /** Streams open on one link connection. More: `overloaded`. */
  linkStreamsMax: 100_000,
  /** Bytes a stream may send before it needs credit. */
  linkInitialCreditBytes: 256 * 1024,
  /** Bytes queued towards one link peer above which the sender stops reading sources. */
  linkHighWaterBytes: 4 * 1024 * 1024,
  /** Milliseconds an upstream request may take. Then 504 `upstream_timeout`. Source: interface 8.3. */
  upstreamDeadlineMs: 10_000,
  /** Milliseconds between link pings; two unanswered ones close the connection. */
  linkPingMs: 5_000,
  /** Milliseconds a daemon that has closed a connection waits for the gateway's end; then it is cut. */
  linkLingerMs: 500,
  /** Milliseconds a new link connection has for its hello. */
  linkHelloMs: 2_000,
  /** Bytes queued towards one link peer at which a new request is refused with `overloaded` and a stream that sends is ended with 4004. */
  linkQueueMaxBytes: 16 * 1024 * 1024,
  /** Milliseconds before a lost daemon socket is dialled again: doubles from the first to the second, with full jitter. */
  linkRedialMinMs: 50,
  linkRedialMaxMs: 1_000,
  /** Milliseconds between two looks at the folder of daemon sockets. */
  linkRescanMs: 1_000,
  /** Daemon sockets one gateway connects to. More in the folder: the rest are not used, with a warning. */
  linkSocketsMax: 256,
  /** Client messages of one stream that wait for their actor. More: the stream ends with 4004. */
  linkStreamCommandsMax: 256,
  /** Connections of gateways to one daemon. More: closed at once. */
  linkPeersMax: 1_024,

  // --- actors ------------------------------------------------------------------------------------------------------
  /** Messages waiting in one actor's mailbox (definition `mailboxMax`). More: `mailbox_full` (429). */
  mailboxMax: 1_024,
  /** Further messages of the actor's own effects and timers that wait in a full mailbox. More: `mailbox_full`. */
  mailboxOwnMax: 256,
  /** Turns whose events go into one commit; the rest form the next. */
  commitTurnsMax: 256,
  /** Bytes of one commit as it is; a larger one is packed (actors/runtime/pack.ts). NATS' default payload is 1 MiB. */
  commitMaxBytes: 900 * 1024,
  /** Bytes of a packed commit, snapshot or command; and of one turn's events, of a snapshot and of a command's input before they are packed. More: `commit_too_large`, no snapshot (logged), `payload_too_large`. */
  packedMaxBytes: 1_000 * 1024,
  turnEventsMaxBytes: 1_536 * 1024,
  snapshotPlainMaxBytes: 8 * 1024 * 1024,
  commandPlainMaxBytes: 1_280 * 1024,
  /** Bytes of a command's input on NATS; between hosts a longer one is packed. Longer: `payload_too_large`. */
  commandMaxBytes: 512 * 1024,
  /** Milliseconds an ask waits by default. */
  askDeadlineMs: 10_000,
  /** Asks in flight to other hosts from one process. More: `overloaded`. */
  remoteAsksMax: 16_384,
  /** Journal appends in flight from one process. More wait in their actor, which is bounded by its mailbox. */
  appendsMax: 4_096,
  /** Milliseconds an append waits for its acknowledgement before it is settled by reading the subject's last sequence. */
  appendAckMs: 5_000,
  /** Activations in one process. More: the least recently used idle one is passivated, or `overloaded` if none is idle. */
  activationsMax: 200_000,
  /** Effects running for one actor. More wait (journaled) until one ends. */
  effectsPerActorMax: 64,
  /** Effects of one actor that have not ended, waiting ones included. More: the turn is refused with `overloaded`. */
  effectsPendingMax: 4_096,
  /** Milliseconds an effect may run by default. */
  effectDeadlineMs: 120_000,
  /** Ids remembered per actor for dedup; with `dedupTtlMs` the older bound wins. */
  dedupMax: 1_024,
  /** Milliseconds a handled message id is remembered (decisions: 24 h). */
  dedupTtlMs: 86_400_000,
  /** Deliveries of a durable tell before it goes to the dead letters. */
  tellDeliveriesMax: 5,
  /** Reminders of one actor. More: refusal `too_many_reminders`. */
  remindersPerActorMax: 64,
  /** Events after which a snapshot is written (definition `snapshotEvery`). */
  snapshotEvery: 200,
  /** Milliseconds without a message after which an actor passivates (definition `idleMs`). */
  idleMs: 60_000,
  /** Milliseconds of the first wait before a failed activation is tried again; doubles up to `restartMaxMs`. */
  restartBaseMs: 50,
  restartMaxMs: 5_000,
  /** Actors that one host recovers from their journals at once; more wait. Far below the 10,000 API requests that make a NATS server drop them all. */
  recoveriesMax: 1_024,
  /** Attempts of an activation to append its epoch record while others append. Then `fenced`. */
  epochTriesMax: 8,
  /** Runs of an effect's `done` or of a reminder's handler that each end in a bug before it is given up and logged. */
  poisonTriesMax: 5,
  /** Milliseconds between two looks at what is overdue: waiting messages, idle actors. */
  sweepMs: 250,
  /** Milliseconds a timer sleeps at most before it reads the clock again (clocks jump; Node's timers end at 2^31). */
  alarmMaxWaitMs: 30_000,
  /** Actors woken by reminders at once on one host; the rest wait their turn. */
  wakesMax: 256,
  /** Milliseconds between attempts to wake an actor that cannot be activated: doubles from `restartBaseMs` up to this. */
  wakeRetryMaxMs: 300_000,
  /** Idle actors passivated in one look; the next look takes more. */
  passivationsMax: 1_024,
  /** Events since the last snapshot that make a passivating actor write one (if `snapshotEvery` is not less). */
  snapshotIdleEvents: 32,
  /** Partitions of a cluster (configuration `partitions`); fixed once the journal exists. */
  partitions: 64,
  /** Milliseconds a host's lease lives without renewal (configuration `lease_ttl_ms`); renewed at a third of it. */
  leaseTtlMs: 6_000,
  /** Milliseconds a drain may take before what still runs is left to the next owner. */
  drainMs: 20_000,

  // --- cluster -----------------------------------------------------------------------------------------------------
  /** Milliseconds a caller on NATS may ask to wait at most; more is cut to it. */
  askDeadlineMaxMs: 120_000,
  /** Milliseconds one try of a remote ask with an id waits before it is sent again (once-effective by its id). */
  askAttemptMs: 3_000,
  /** Milliseconds between two tries of an ask that certainly did nothing; doubles up to the maximum, with jitter. */
  askRetryBaseMs: 4,
  askRetryMaxMs: 200,
  /** Commands of NATS clients and other hosts that one host serves at once. More: `overloaded`. */
  servedAsksMax: 16_384,
  /** Characters of a message id or idempotency key. Longer: `bad_request`. */
  messageIdMaxChars: 512,
  /** Levels of nesting of a command's input or output. Deeper: `bad_request`. */
  valueDepthMax: 128,
  /** Milliseconds the end of a subscription waits for what is still on the way to it. */
  unsubscribeMs: 1_000,
  /** Milliseconds that a drained host may still take to remove its heartbeat when its drain has used up `drainMs`. Then others wait for the lease. */
  leaveMs: 1_000,
  /** Partitions that one host hands over at the same time; the rest wait their turn. */
  handOversMax: 16,
  /** Durable tells of one partition handled at once; the rest wait in the stream. */
  inboxInFlightMax: 64,
  /** Milliseconds after which an unacknowledged tell is delivered again (its host may be lost); prolonged at a third of it while it is handled. */
  tellAckMs: 5_000,
  /** Milliseconds before a tell that met a fault is delivered again; doubles up to the maximum. */
  tellRetryBaseMs: 50,
  tellRetryMaxMs: 5_000,
  /** Deliveries of a tell as the server counts them, crashes and hand-overs included, after which it goes to the dead letters untried. */
  tellRedeliveriesMax: 50,
  /** Milliseconds one pull of the inbox stays open, and between its heartbeats; two missing ones make a new pull. */
  inboxPullMs: 30_000,
  inboxHeartbeatMs: 5_000,
  /** Milliseconds before an inbox whose consumer fails is tried again. */
  inboxRetryMs: 250,
  /** Milliseconds without any owner after which the server forgets a partition's inbox consumer (never the messages). */
  inboxConsumerIdleMs: 3_600_000,
  /** Dead letters in one listing. */
  deadLettersListMax: 256,

  /** Milliseconds between two looks of a host for actors whose time is over; so many are forgotten in one look, and so many busy ones of a partition and type remembered. */
  forgetLookMs: 600_000,
  forgetPerLookMax: 20_000,
  forgetBusyMax: 10_000,

  // --- storage (NATS) ----------------------------------------------------------------------------------------------
  /** Milliseconds to which time-outs of requests on the shared reply inbox are rounded up: one timer serves them all. */
  requestSweepMs: 10,
  /** Milliseconds between two tries of an append or a read that NATS did not answer; doubles up to the maximum, with jitter. */
  storeRetryBaseMs: 10,
  storeRetryMaxMs: 500,
  /** Bytes the server may send for one batch of journal messages; it ends a batch early beyond them. */
  replayBatchMaxBytes: 4 * 1024 * 1024,
  /** Milliseconds between two tries to connect to NATS again: at least, at most (random between). Tries never end. */
  natsReconnectMinMs: 50,
  natsReconnectMaxMs: 500,
  /** Milliseconds a connection attempt to NATS may take. */
  natsConnectMs: 5_000,
  /** Milliseconds that a starting host goes on while NATS, once connected, does not answer: streams and joining together. Then it ends with `journal_unavailable`. */
  natsStartMs: 20_000,
  /** Milliseconds between pings to NATS; two unanswered ones are a lost connection. */
  natsPingMs: 5_000,
  /** Messages waiting in the inbox stream of a cluster. More: a tell is refused with `overloaded`. */
  inboxMessagesMax: 1_000_000,
  /** Milliseconds a tell's id is remembered by the inbox stream; the actor's own dedup set remembers longer. */
  inboxDedupMs: 120_000,
  /** Dead letters kept; the oldest go first. */
  deadLettersMax: 100_000,

  // --- sessions ----------------------------------------------------------------------------------------------------
  /** Messages waiting behind a running turn. The next yields an ERROR event `session_busy`. */
  sessionQueueMax: 64,
  /** Model steps of one turn (a step ends with text or with tool calls). More: ERROR `too_many_steps`. */
  turnStepsMax: 32,
  /** Bytes of streamed text kept ahead of the journal before the provider is no longer read. */
  deltaBufferBytes: 64 * 1024,
  /** Characters of history a session keeps for the model's prompt; the oldest turns are dropped beyond it (the journal keeps them). */
  sessionHistoryMaxChars: 256 * 1024,
  /** Characters of text of one model step. More: the step ends with finish reason `length`. */
  stepTextMaxChars: 256 * 1024,
  /** Bytes of the same text as JSON: it is journaled whole at the step's end, with what its calls begin with, in one commit. More: likewise. */
  stepTextMaxBytes: 640 * 1024,
  /** Characters of what a person is asked to approve, and of what is wrong with a call's arguments; the rest is cut. */
  toolNoteMaxChars: 1_000,
  /** Tool calls of one model step. More: the step ends with those it has. */
  stepToolCallsMax: 32,
  /** Characters of one tool call's arguments. More: the call is answered with an error and not run. */
  toolArgumentsMaxChars: 64 * 1024,
  /** Characters of one attachment that reach the model; the rest is cut and the cut is named in the prompt. */
  attachmentPromptMaxChars: 128 * 1024,
  /** Bytes the fetch tool reads of a page; the rest is cut and the cut is named in the result. */
  fetchMaxBytes: 32 * 1024,
  /** Facts an agent remembers. More: the least relevant, then the oldest, is forgotten. */
  memoryFactsMax: 500,
  /** Characters of all facts of an agent; beyond it they are forgotten by the same rule. */
  memoryMaxChars: 256 * 1024,
  /** Characters of a calculation, depth of its brackets, and significant digits of its result. Beyond: the tool refuses. */
  calculationMaxChars: 1_024,
  calculationDepthMax: 64,
  calculationDigitsMax: 2_000,
  /** Reports of an agent that can be read again; older ones are in its journal only. */
  reportsMax: 8,
  /** Bytes of a tool's result kept in the journal; the rest is cut and the cut is named in the result. */
  toolResultMaxBytes: 64 * 1024,
  /** Milliseconds a tool may run by default. */
  toolDeadlineMs: 30_000,
  /** Milliseconds the model may stay silent before the call is given up. */
  modelSilenceMs: 60_000,
  /** Milliseconds after which a session whose turn runs is woken if its host is gone; re-armed as long as something runs. */
  turnWakeMs: 3_000,
  /** Milliseconds one model step may take in all. Then ERROR `provider_timeout`. */
  modelDeadlineMs: 600_000,
  /** Attempts after the first to get a model's first byte (429, 5xx, network). Then ERROR `provider_error`. */
  modelRetriesMax: 3,
  /** Milliseconds before the first such attempt; doubles up to `modelRetryMaxMs`. A Retry-After is waited for; one longer than that ends the attempts. */
  modelRetryBaseMs: 500,
  modelRetryMaxMs: 20_000,
  /** Times a model's stream that broke mid-text is taken up again within one step. */
  modelResumesMax: 2,
  /** Milliseconds a session may idle before it hibernates (configuration `session_idle_ms`). */
  sessionIdleMs: 300_000,

  // --- custody -----------------------------------------------------------------------------------------------------
  /** Random bytes of a WebAuthn challenge (WebAuthn level 3, 13.4.3 wants at least 16). */
  challengeBytes: 32,
  /** Milliseconds a WebAuthn challenge is valid. */
  challengeTtlMs: 300_000,
  /** Challenges of one user that are valid at once. More: the oldest is not valid any more. */
  challengesMax: 16,
  /** Passkeys of one user. More: refusal `too_many_passkeys`. */
  passkeysMax: 16,

  // --- projections (Postgres) --------------------------------------------------------------------------------------
  /** Milliseconds a connection attempt to Postgres may take, and one statement. Beyond: it is ended, the reader gets `upstream_unavailable`. */
  postgresConnectMs: 5_000,
  postgresStatementMs: 10_000,
  /** Milliseconds a read waits before Postgres is looked for, a look may take, and until the next look at one that is gone. Beyond the first two: reads are refused with `upstream_unavailable`, at once until it answers. */
  postgresSuspectMs: 500,
  postgresProbeMs: 1_500,
  postgresLookMs: 500,
  /** Connections of one daemon's readers; each projection it runs or waits for has one more. */
  postgresReadersMax: 4,
  /** Reads of projections under way in one daemon. More: `overloaded`. */
  projectionReadsMax: 256,
  /** Milliseconds of silence after which Postgres ends the connection that runs a projection, so that another daemon takes it over. */
  projectionLeaseMs: 15_000,
  /** Milliseconds one wait for a projection's lock lasts; then it is asked for again. Less than `postgresStatementMs`. */
  projectionLockMs: 8_000,
  /** Milliseconds between two looks at a journal that has nothing new, and at a checkpoint that is waited for. */
  projectionLookMs: 50,
  /** Milliseconds before a projection that failed is tried again; doubles up to the maximum, with jitter. */
  projectionRetryBaseMs: 100,
  projectionRetryMaxMs: 5_000,
  /** Milliseconds a list waits for what its reader has just written. Then it is answered as it is, and says so. */
  projectionWaitMs: 2_000,
  /** Sessions in one page of a list: at most, and when the caller does not say. */
  sessionListMax: 100,
  sessionListUsualMax: 50,
  /** Characters of a page's cursor. Longer: `bad_request`. */
  cursorMaxChars: 1_024,

  // --- clients -----------------------------------------------------------------------------------------------------
  /** Messages of one client whose turn has not ended. More: `session_busy` from `send`, nothing is sent. Half of `sessionQueueMax`. */
  clientOutboxMax: 32,
  /** Approvals and cancels of one client whose effect was not seen. More: `session_busy`. */
  clientDecisionsMax: 64,
  /** Milliseconds of silence after which a client pings, and further milliseconds after which it takes the connection for dead. */
  clientPingMs: 15_000,
  clientPongMs: 10_000,
  /** Seconds that a server can make the command wait: between two polls, and for an approval in all. More: its answer is refused. */
  clientDeviceWaitMaxSec: 86_400,
  /** Milliseconds a client waits for a WebSocket to open. Then the attempt counts as a broken connection. */
  clientConnectMs: 10_000,
  /** Milliseconds: first and largest upper bound of a client's wait before it reconnects (full jitter). */
  clientReconnectBaseMs: 100,
  clientReconnectMaxMs: 5_000,
  /** Milliseconds that a connection which has shown no event must last before a client takes it as restored. */
  clientSettleMs: 500,
  /** Attempts in a row that restored nothing, after which a client gives up with `upstream_unavailable`. */
  clientAttemptsMax: 100,
  /** Milliseconds after a reconnect that a cancel of the running turn waits for the replay to show whether that turn ended. */
  clientReplayQuietMs: 200,
  clientReplayMaxMs: 1_000,
  /** Milliseconds an HTTP request of a client may take. Then `deadline_exceeded`. */
  clientRequestMs: 20_000,
  /** Bytes of one frame or answer a client accepts from the server; longer is `protocol_error`. */
  clientReceiveMaxBytes: 4 * 1024 * 1024,
  /** Entries (messages, texts, tool calls) a client page keeps on screen; the oldest are taken off. */
  clientEntriesMax: 2_000,

  // --- hub ---------------------------------------------------------------------------------------------------------
  /** Bytes of recent frames kept per watched session for late joiners; older events come from the journal. */
  hubRingBytes: 256 * 1024,
  /** Watchers of one session in one daemon. More: `overloaded`. */
  watchersMax: 50_000,
  /** Sessions watched in one daemon. More: streams end with 4004. */
  hubSessionsMax: 100_000,
  /** Bytes of recent frames kept in one daemon over all watched sessions; above, a session keeps only its last commit's. */
  hubRingsBytes: 64 * 1024 * 1024,
  /** Milliseconds a session stays subscribed without a watcher, so that a reconnecting client finds its recent frames. */
  hubLingerMs: 5_000,
  /** Milliseconds between two looks whether a watched session's last commit arrived (a live message may be dropped unseen). */
  hubCheckMs: 30_000,
  /** Replay reads under way at once in one daemon; more wait their turn. */
  hubReplaysMax: 32,
  /** Owners of sessions remembered by one daemon; the least recently used is forgotten. */
  hubOwnersMax: 100_000,
  /** Commits at the start of a journal among which the one that made the session must be. */
  hubCreationCommitsMax: 256,
  /** Bytes of credit a stream needs before a replay goes on for it: a trickle of credit must not cost a read each. */
  hubResumeBytes: 64 * 1024,
  /** Bytes of neighbouring commits that a replay puts into one data frame; a single larger commit is a frame of its own. */
  hubGroupBytes: 32 * 1024,
  /** Commits read from the journal in one go for a replay. */
  replayBatchCommits: 256,

  // --- running it (deploy/start) -----------------------------------------------------------------------------------
  /** Milliseconds a child process of `npm start` may take to become ready. Then the start fails with its last log lines. */
  startReadyMs: 30_000,
  /** Milliseconds before a child that died is started again; doubles up to `childRestartMaxMs`, begins anew after `childSteadyMs` of life. */
  childRestartBaseMs: 100,
  childRestartMaxMs: 5_000,
  childSteadyMs: 10_000,
  /** Milliseconds a child has to end after SIGTERM beyond `drainMs`. Then SIGKILL. */
  childStopMs: 5_000,
  /** Bytes of one log file in `.troupe/log`; a full one becomes `.1` and replaces the `.1` before it. */
  logFileMaxBytes: 8 * 1024 * 1024,
  /** Ports tried upwards from the wanted one before the start gives up. */
  portTriesMax: 100,
  /** Seconds the development user's token lives; made anew at each start and at half of its life. */
  devTokenTtlSec: 86_400,
  /** Days a development server certificate lives, and days before its end at which a start renews it. */
  devCertificateDays: 90,
  devCertificateRenewDays: 14,
} as const;

export type Limits = typeof limits;
