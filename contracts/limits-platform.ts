/** The bounds of accounts, organizations, mail and chat: the second half of `limits` (limits.ts), which is where they are read. */
export const platformLimits = {
  // --- mail and webhooks -------------------------------------------------------------------------------------------
  /** Characters of a mail's subject; bytes of its text and of its HTML. Longer: `mail_refused`. */
  mailSubjectMaxChars: 200,
  mailTextMaxBytes: 64 * 1024,
  /** Milliseconds one mail may take, its wait for a connection included. Then `mail_unavailable`. */
  mailDeadlineMs: 30_000,
  /** Milliseconds a connection to the mail server may take, and may be silent while it is used. */
  mailConnectMs: 5_000,
  mailSilenceMs: 10_000,
  /** Connections of one daemon to the mail server, and mails over one of them before it is replaced. */
  mailConnectionsMax: 4,
  mailsPerConnectionMax: 100,
  /** Mails of one daemon under way or waiting for a connection. More: `mail_unavailable`. */
  mailsWaitingMax: 256,
  /** Bytes of one answer of the mail server. Longer: the connection is given up. */
  mailAnswerMaxBytes: 16 * 1024,
  /** Mails kept in the outbox folder of development; the oldest are deleted. */
  outboxMailsMax: 200,
  /** Milliseconds one webhook delivery attempt may take, look-up and answer included. Then it has failed (`timed_out`). */
  webhookDeadlineMs: 10_000,
  /** Milliseconds over which a webhook event is tried again (decisions: 24 h). Then it becomes a dead letter. */
  webhookRetryForMs: 86_400_000,
  /** Milliseconds after the beginning of an attempt at which the actor looks whether its host was lost. Above `webhookDeadlineMs`. */
  webhookWakeMs: 15_000,
  /** Webhook events of one organization that wait, and bytes of their bodies. More: the oldest become dead letters. */
  webhookPendingMax: 1_000,
  webhookPendingMaxBytes: 256 * 1024,
  /** Dead letters of one organization's webhook, and bytes of their bodies. More: the oldest are forgotten. */
  webhookDeadMax: 256,
  webhookDeadMaxBytes: 128 * 1024,
  /** Bytes of one webhook event's data. Larger: `payload_too_large`. */
  webhookDataMaxBytes: 8 * 1024,
  /** Bytes of a receiver's head, and of its answer that are read; milliseconds spent on reading that answer. The rest is dropped. */
  webhookAnswerMaxBytes: 16 * 1024,
  webhookAnswerMs: 1_000,
  /** Milliseconds the look-up of a receiver's name may take. Then it has failed (`host_unknown`). */
  webhookLookupMs: 4_000,
  /** Delivery attempts of one daemon at once. More have failed (`overloaded`). */
  webhookPostsMax: 256,
  /** Addresses of a receiver that are tried; all of them are checked. */
  webhookAddressesMax: 8,
  /** Milliseconds for which a webhook's secret that was replaced goes on signing beside the new one, and so many of them. */
  webhookFormerSecretMs: 86_400_000,
  webhookFormerSecretsMax: 4,
  /** Seconds a webhook signature's time may differ from the receiver's. */
  webhookSignatureSec: 300,

  // --- platform (accounts, organizations) --------------------------------------------------------------------------
  /** Characters of an e-mail address (RFC 5321 section 4.5.3.1.3: a path of 256 with its brackets). */
  emailMaxChars: 254,
  /** Characters of a User-Agent that are kept; the rest is cut. */
  userAgentMaxChars: 256,
  /** Characters of a CSRF proof. Longer: `bad_request`. */
  csrfMaxChars: 256,
  /** Characters of a webhook's URL. Longer: `validation_error`. */
  webhookUrlMaxChars: 2_048,
  /** Days of `settings.retentionDays` at most. */
  retentionDaysMax: 3_650,
  /** Scopes of one API key. */
  keyScopesMax: 64,
  /** Audit entries in one page: at most, and when the caller does not say. */
  auditListMax: 1_000,
  auditListUsualMax: 100,
  /** Audit entries of one export, and bytes of its text. More: `payload_too_large`; it can be taken in parts by `limit` and `cursor`. */
  auditExportMax: 10_000,
  auditExportMaxBytes: 3 * 1024 * 1024,
  /** Bytes of what other parts note in an audit entry. More: `payload_too_large`. */
  auditMetadataMaxBytes: 4 * 1024,
  /** Members of one organization on any plan, pending invitations, and unrevoked API keys. More: `plan_limit`. */
  organizationMembersMax: 1_000,
  organizationPendingMax: 200,
  organizationKeysMax: 500,
  /** Invitations that ended, and revoked keys, which an organization's lists still show; the oldest are forgotten (the audit log keeps them). */
  organizationEndedMax: 100,
  /** Invitations of one organization in a day (UTC), so that nobody mails through it. More: `rate_limited`. */
  organizationInvitesPerDayMax: 500,
  /** Invitations of one e-mail address in a day (UTC), by whichever organizations. More: `rate_limited`. */
  invitationsOfAddressPerDayMax: 20,
  /** Organizations that one person owns. More: `plan_limit`. */
  organizationsOwnedMax: 100,
  /** Memberships in a person's list of organizations, the oldest first. */
  organizationListMax: 1_000,
  /** Milliseconds an invitation is valid (decisions: 14 days). */
  invitationTtlMs: 14 * 86_400_000,
  /** Milliseconds in which the use of an API key is noted at most once. */
  keyUseNotedMs: 60_000,
  /** Milliseconds for which a slug is claimed while its organization is being made. Then it lapses. */
  slugClaimMs: 600_000,
  /** Mails of one organization under way at once. */
  organizationMailsMax: 8,
  /** Milliseconds over which an organization's mail is tried again, from the first wait, which doubles up to the longest. Then it is given up (audit log). */
  organizationMailForMs: 86_400_000,
  organizationMailRetryMs: 5_000,
  organizationMailRetryMaxMs: 3_600_000,
  /** Milliseconds after which an organization with work under way looks whether its host was lost. Above `mailDeadlineMs` and `effectDeadlineMs`. */
  organizationWakeMs: 150_000,
  /** Milliseconds before an organization tries again to keep its slug, or to erase its data; doubles up to the maximum, and never ends. */
  organizationRetryMs: 1_000,
  organizationRetryMaxMs: 300_000,
  /** Milliseconds after the first erasure at which it is done again, for what was still under way: above a capability's life. */
  eraseAgainMs: 20 * 60_000,
  /** Milliseconds an access token lives (setting JWT_ACCESS_EXPIRY_MS), one of the api-token page, and one of the web console. */
  accessTtlMs: 86_400_000,
  apiTokenTtlMs: 90 * 86_400_000,
  consoleTokenTtlMs: 15 * 60_000,
  /** Logins (browsers, devices, tokens) of one person. More: the least recently used of the same kind ends, else of any. */
  grantsMax: 64,
  /** Identities of sign-in providers that an account remembers; the oldest is forgotten. All of them had the account's verified address. */
  identitiesMax: 16,
  /** Rotated refresh tokens of one person that are known when they come again; the oldest is forgotten, and then merely refused. */
  formerRefreshMax: 2_048,
  /** Access tokens of one person that were revoked singly and have not expired. More: the token's whole login ends. */
  revokedTokensMax: 1_024,
  /** Milliseconds in which the use of a login is noted, and a browser session prolonged, at most once. */
  grantTouchMs: 3_600_000,
  /** Memberships that an access token names; further ones are left out (the token is only a hint, and has to fit `bearerMaxBytes`). */
  tokenOrgsMax: 64,
  /** Milliseconds between two looks whether the logins and memberships behind open streams still stand, besides their feeds; so many are asked at once. */
  accessCheckMs: 60_000,
  accessChecksMax: 32,
  /** Access tokens whose signature one daemon remembers; the least recently used is forgotten. */
  accessTokensKnownMax: 50_000,
  /** Milliseconds a sign-in code is good; wrong tries that count for it from one address block, and from all blocks but the one it was asked for from. */
  signinCodeTtlMs: 600_000,
  signinTriesMax: 5,
  signinTriesAllMax: 25,
  /** Codes mailed to one address in an hour, asked for from one address block, and in all. More: `rate_limited`. */
  signinMailsPerBlockMax: 5,
  signinMailsPerHourMax: 20,
  /** Milliseconds after the last of it at which what an address' sign-in codes, a device authorization, and a counted key left is erased. */
  signinForgetMs: 86_400_000,
  deviceForgetMs: 86_400_000,
  allowanceForgetMs: 2 * 86_400_000,
  /** Milliseconds before a sign-in code's mail is tried again when mail is unavailable; doubles, as long as the code is good. */
  signinMailRetryMs: 5_000,
  /** Sign-in codes asked for, and tried, from one remote address in a minute and in a day. More: `rate_limited`. */
  signinStartsPerMinuteMax: 30,
  signinStartsPerDayMax: 1_000,
  signinTriesPerMinuteMax: 60,
  signinTriesPerDayMax: 5_000,
  /** Milliseconds a refresh token and a browser session live without being used. */
  refreshTtlMs: 7 * 86_400_000,
  browserSessionTtlMs: 7 * 86_400_000,
  /** Seconds a gateway token (Tier 1) made here lives. */
  gatewayTokenTtlSec: 900,
  /** Seconds a device authorization lives, and between two polls (interface 2.1). */
  deviceTtlSec: 900,
  deviceIntervalSec: 5,
  /** Milliseconds after its end for which an approval given in time can still be fetched. Then it has expired. */
  deviceLateMs: 60_000,
  /** Milliseconds a poll must have left for an approval to be used up in it. Less: `deadline_exceeded`, and the next poll gets it. */
  deviceRedeemMs: 3_000,
  /** Milliseconds after its end for which a device authorization still says that it expired or what was decided. Then it is unknown. */
  deviceKeptMs: 3_600_000,
  /** User codes drawn for one device authorization until one is free. Then `overloaded`. */
  userCodeDrawsMax: 5,
  /** User codes that one person looked for in vain, a minute and a day (RFC 8628 section 5.1). More: `rate_limited`. */
  userCodeMissesPerMinuteMax: 20,
  userCodeMissesPerDayMax: 100,
  /** Milliseconds a step with Google or GitHub may take, all its requests together; bytes of one answer. Beyond: `provider_unavailable`. */
  providerDeadlineMs: 8_000,
  providerAnswerMaxBytes: 256 * 1024,
  /** Such steps of one daemon at once. More: `provider_unavailable`. */
  providerSignInsMax: 64,
  /** Milliseconds for which an OpenID provider's discovery is kept, and after which one that could not be renewed is tried again. */
  discoveryTtlMs: 3_600_000,
  discoveryRetryMs: 30_000,
  /** Seconds between sending a browser to a provider and its coming back. */
  signinCookieSec: 600,
  /** Such returns of one remote address in a minute. More: `rate_limited`. */
  signinCallbacksPerMinuteMax: 30,
  /** People of whom one daemon remembers that they guessed too often; the least recent is forgotten, and asked for again. */
  userCodeGuessersMax: 10_000,
  /** Requests a minute: device codes of one address, polls of one device code and address, refreshes of one address (interface 8.2; decisions). */
  deviceCodesPerMinuteMax: 10,
  devicePollsPerMinuteMax: 5,
  refreshesPerMinuteMax: 10,

  // --- public chat -------------------------------------------------------------------------------------------------
  /** Bytes of a chat request's body: a whole conversation. Longer: `payload_too_large`. Within `linkFrameMaxBytes` and `attachmentMaxBytes`. */
  chatBodyMaxBytes: 3 * 1024 * 1024,
  /** Characters of one event of an answer that the console's chat page takes. Longer: `upstream_error`. */
  chatEventMaxChars: 4 * 1024 * 1024,
  /** Messages of one request, and parts of one message; tools of one request, and calls of one message. More: `validation_error`. */
  chatMessagesMax: 4_096,
  chatToolsMax: 128,
  /** Levels of nesting of a tool's parameters. Deeper: `validation_error`. A call's arguments that are deeper stay text. */
  chatDepthMax: 64,
  /** Characters of a request's short texts (user, stop, name) and of X-Session-Id. Longer: `validation_error`. */
  chatNoteMaxChars: 256,
  /** Chat requests that one daemon answers at once. More: `overloaded`. */
  chatStreamsMax: 10_000,
  /** Bytes of a request that are journaled as they are; a larger one is stored as a blob that the journal names. */
  completionInlineMaxBytes: 16 * 1024,
  /** Completions of one conversation that run at once. More: `session_busy`. */
  completionsPerActorMax: 32,
  /** Calls of one conversation that wait for a person, or whose results are kept for a repeated answer. More: the oldest is forgotten, one that has its result first. */
  completionApprovalsMax: 16,
  /** Characters that the model and its tools have added to one completion. More: it ends after the step with finish reason `length`. */
  completionTranscriptMaxChars: 256 * 1024,
  /** Milliseconds that a client's stream is without room before the model is not read any more, and without a byte taken before the answer is given up. */
  chatSlowMs: 250,
  chatStallMs: 60_000,
  /** Milliseconds a model is not read for a slow client. Then it is, as nobody may be left to say so. More than `chatStallMs`. */
  completionHoldMs: 90_000,
  /** Milliseconds between two looks whether the client takes again. */
  completionHoldLookMs: 25,
  /** Bytes of commits that wait for one reader of a journal's end. More: it reads on from the journal. */
  tailQueueMaxBytes: 256 * 1024,
  /** Milliseconds of silence after which such a reader looks whether a commit was dropped on the way, and between its tries when the journal does not answer. */
  tailCheckMs: 5_000,
  tailRetryMs: 100,
  /** Milliseconds of silence after which a stream of events gets a comment (decisions: 15 s). */
  sseKeepAliveMs: 15_000,

  // --- billing -----------------------------------------------------------------------------------------------------
  /** Ended turns whose ids a wallet remembers, so that none is charged twice; one told again after that many others would be. */
  walletTurnsMax: 4_096,
  /** Bytes of one event of the payment processor. Larger: `payload_too_large`. */
  paymentEventMaxBytes: 512 * 1024,
  /** Seconds that the time of its signature may be off, before or after (decisions, Billing). More: `bad_request`. */
  paymentSignatureSec: 300,
  /** Milliseconds one request to the payment processor may take. Then `payment_error`. Below `upstreamDeadlineMs`. */
  paymentsDeadlineMs: 8_000,
  /** Requests of one daemon to the payment processor at once. More: `payment_error`. */
  paymentsCallsMax: 64,
  /** What an organization's payments remember: ids of events, of paid invoices and of customers, each for itself, and subscriptions, of which the oldest ended ones are forgotten. */
  paymentsEventsMax: 512,
  paymentsInvoicesMax: 512,
  paymentsCustomersMax: 8,
  paymentsSubscriptionsMax: 64,
  /** Milliseconds before the cancelling of a subscription is tried again, doubling up to the longest, without end. */
  paymentsRetryMs: 5_000,
  paymentsRetryMaxMs: 3_600_000,

  // --- trust -------------------------------------------------------------------------------------------------------
  /** Domains of one person that are verified or are to be. More: the oldest unverified is forgotten; of verified ones alone: `validation_error`. */
  trustDomainsMax: 16,
  /** Milliseconds a look for a domain's TXT record may take; records of it that are looked at; such looks of one daemon at once. Beyond: not found, not looked at, `overloaded`. */
  domainLookupMs: 4_000,
  domainRecordsMax: 64,
  domainLookupsMax: 64,
  /** Domain looks of one person in a minute and in a day. More: `rate_limited`. */
  domainLooksPerMinuteMax: 20,
  domainLooksPerDayMax: 500,
  /** Organizations that a caller and the person whose score is asked for have in common, of which the caller's say is looked up; owners of an organization whose scores count for its agents. The oldest membership first. */
  trustSharedMax: 32,
  trustOwnersMax: 16,
  /** Bytes of a certification's evidence as JSON; characters of a decision's reason. More: `validation_error`. */
  certificationEvidenceMaxBytes: 16 * 1024,
  certificationReasonMaxChars: 1_000,
  /** Milliseconds from submission to the estimated review (decisions: 7 days). */
  certificationReviewMs: 7 * 86_400_000,
  /** Certifications that one organization applies for in a minute and in a day. More: `rate_limited`. */
  certificationsPerMinuteMax: 10,
  certificationsPerDayMax: 50,
  /** Parameters in the path of a platform route. */
  pathParamsMax: 4,

  // --- deployments -------------------------------------------------------------------------------------------------
  /** Deployments of one organization on any plan, those that end included until they have. More: `plan_limit`. */
  deploymentsMax: 32,
  /** Milliseconds for which an organization keeps a place for a deployment that is being made. Then it lapses. */
  deploymentReservedMs: 600_000,
  /** Failures in a row after which a deployment's work makes it `degraded`; it is tried on. */
  deploymentTriesMax: 3,
  /** Milliseconds that making a deployment waits for it to run. Then the answer says `provisioning`. */
  deploymentSettleMs: 5_000,
  /** Characters of what a deployment's agent is for. Longer: `validation_error`. */
  deploymentPurposeMaxChars: 1_000,
  /** Seconds an agent's token lives at most. */
  agentTokenTtlSec: 900,

  // --- names and allowances ----------------------------------------------------------------------------------------
  /** Milliseconds for which a name can be claimed without being confirmed. More: `bad_request`. */
  nameClaimMaxMs: 86_400_000,
  /** Requests of one key that one ask of its allowance counts; the rest form the next. */
  allowanceCountMax: 4_096,
  /** Requests of one daemon that wait for an answer of an allowance. More: `overloaded`. */
  allowanceWaitersMax: 16_384,
  /** Milliseconds one ask of an allowance may take, tries included; a request waits for two at most, no longer than `upstreamDeadlineMs`. Then the fault. */
  allowanceWaitMs: 5_000,
  /** Requests that one ask takes ahead at most; all together never more than 1 % of the limit. */
  allowanceAheadMax: 1_024,
  /** Processes of which an allowance remembers in a minute what they took ahead; further ones take nothing ahead. */
  allowanceTakersMax: 64,
  /** Keys of which one daemon remembers a refusal or what it took ahead; the least recently used is forgotten, and asked for again. */
  allowancesKnownMax: 100_000,
  /** People of whom one daemon remembers which membership is their oldest, and milliseconds for which; then, and once it has ended, it is read again. */
  payersKnownMax: 100_000,
  payersKnownMs: 60_000,
} as const;
