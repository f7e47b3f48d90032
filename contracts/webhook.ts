/**
 * An organization's webhook: what is delivered to its URL, and the actor that delivers it (org = key = the organization's id).
 *
 * What a receiver gets: POST of `deliveredEvent` as JSON, with header `Troupe-Signature: t=<unix seconds>,v1=<hex>`, where v1 is the
 * HMAC-SHA256 of `<t>.<body>` and the key is the secret exactly as it is shown (`whsec_…`, its UTF-8 bytes). For
 * `limits.webhookFormerSecretMs` after a secret was replaced there is a further `v1` of each former one: a receiver takes a delivery if any
 * `v1` is that of the secret it has. At least once: any 2xx
 * within 10 s is a receipt; everything else is tried again with the same id and the same body bytes. Redirects are not followed.
 * Events may overtake each other. Sources: decisions, Organizations; rules AUD-007 to AUD-020.
 */
import { z } from 'zod';
import { limits } from './limits.ts';

/** The types there are; none other is sent (AUD-009). */
export const webhookTypes = ['usage.alert', 'plan.changed', 'session.finished', 'member.joined', 'member.role_changed', 'member.removed'] as const;
export const webhookType = z.enum(webhookTypes);
export type WebhookType = z.infer<typeof webhookType>;

export const signatureHeader = 'troupe-signature';

/** The body of a delivery. */
export const deliveredEvent = z.strictObject({
  id: z.string(),
  type: webhookType,
  created: z.iso.datetime(),
  organizationId: z.string(),
  data: z.record(z.string(), z.unknown()),
});
export type DeliveredEvent = z.infer<typeof deliveredEvent>;

const isTarget = (text: string): boolean => {
  // URL parsers mend what follows (white space, backslashes, extra slashes), and what is not seen reorders the rest: what a person sees would not be where it goes.
  if (!/^https:\/\/[^/?#]/i.test(text) || /[\s\\\p{C}]/u.test(text) || !URL.canParse(text)) return false;
  const url = new URL(text);
  return url.protocol === 'https:' && url.hostname !== '' && url.port !== '0' && url.username === '' && url.password === '' && url.hash === '';
};
/**
 * An absolute https URL without credentials and fragment; any port from 1. Where its name leads is judged at each delivery, not here:
 * what is private today may be public tomorrow, and the other way round.
 */
export const webhookUrl = z.string().max(limits.webhookUrlMaxChars).refine(isTarget, 'must be an https URL without credentials or fragment');

/**
 * Milliseconds from a failed attempt to the next: the n-th failure waits the n-th of these, later ones the last; never beyond
 * `limits.webhookRetryForMs` after the event was queued, when the last attempt is made.
 */
export const retryDelaysMs: readonly number[] = [10_000, 30_000, 120_000, 600_000, 3_600_000, 7_200_000, 14_400_000, 28_800_000, 57_600_000];

/** Why an attempt failed, or an event was given up. */
export const webhookFailure = z.enum([
  /** An answer other than 2xx. */
  'status',
  /** A 3xx answer: not followed. */
  'redirect',
  /** The name leads to a private, loopback, link-local or otherwise special address. */
  'address_refused',
  'host_unknown',
  'tls_failed',
  'connection_failed',
  /** No answer within `limits.webhookDeadlineMs`. */
  'timed_out',
  /** This host had too many deliveries under way. */
  'overloaded',
  /** Something on our side broke. */
  'internal_error',
  /** Given up: newer events filled the queue. */
  'queue_full',
  /** Given up: the URL was removed. */
  'no_url',
]);
export type WebhookFailure = z.infer<typeof webhookFailure>;

const eventId = z.string().regex(/^[A-Za-z0-9_-]{1,64}$/);
const nothing = z.strictObject({});

export const deadLetter = z.strictObject({
  id: z.string(), type: webhookType, created: z.string(), attempts: z.int(),
  /** `webhookFailure`, with the HTTP status where there was one: `status 500`. */
  last_error: z.string(),
  /** Unix milliseconds at which it was given up. */
  at: z.int(),
});
export type DeadLetter = z.infer<typeof deadLetter>;

/** Where to deliver. `revision` counts the changes of its owner: a lower one than was taken before is late and changes nothing; without one it is always taken. */
export const webhookTarget = z.strictObject({ url: webhookUrl.nullable(), revision: z.int().nonnegative().optional(), secret_version: z.int().positive().optional() });
export type WebhookTarget = z.infer<typeof webhookTarget>;

/** All of access `system`. After `forget` everything is refused with `not_found` or, for `notify`, dropped. */
export const webhookCommands = {
  /** Sets or removes the URL. A changed URL is tried at once with what is pending; without a URL what was pending becomes dead letters. */
  configure: { input: webhookTarget, output: nothing },
  /**
   * Queues an event; without a URL, or with an id that is queued or dead already, it does nothing. Data above `limits.webhookDataMaxBytes`:
   * `payload_too_large`. `target` = as for `configure`: tells may overtake each other, and the first event must not be lost to that.
   */
  notify: {
    input: z.strictObject({ id: eventId, type: webhookType, created: z.iso.datetime(), data: z.record(z.string(), z.unknown()), target: webhookTarget.optional() }),
    output: z.strictObject({ queued: z.boolean() }),
  },
  describe: {
    input: nothing,
    output: z.strictObject({ url: z.string().nullable(), secret_version: z.int(), pending: z.int(), dead: z.int() }),
  },
  /** Newest first; at most `limits.webhookDeadMax`. */
  dead_letters: { input: nothing, output: z.strictObject({ dead_letters: z.array(deadLetter) }) },
  /** Queues a dead letter again, same id and body, with a new 24 hours. `not_found`; `conflict` without a URL. */
  redeliver: { input: z.strictObject({ id: eventId }), output: nothing },
  /** Makes the next version of the secret; the former ones go on signing beside it until their end, the newest `limits.webhookFormerSecretsMax` of them. `former_until`: Unix milliseconds. */
  rotate: { input: nothing, output: z.strictObject({ secret_version: z.int(), former_until: z.int() }) },
  /** The organization was deleted: drops everything, for good. */
  forget: { input: nothing, output: nothing },
} as const;

export const webhookEvents = {
  WebhookConfigured: z.strictObject({ url: z.string().nullable(), revision: z.int(), secret_version: z.int(), at: z.int() }),
  /** `body` = the exact bytes of every attempt. */
  DeliveryQueued: z.strictObject({ id: z.string(), type: webhookType, created: z.string(), body: z.string(), at: z.int() }),
  /** `run` numbers the attempts of the actor; `effect` is what to abort. */
  DeliveryStarted: z.strictObject({ id: z.string(), run: z.int(), effect: z.string() }),
  Delivered: z.strictObject({ id: z.string(), status: z.int() }),
  /** `due` = time of the next attempt, Unix milliseconds. */
  DeliveryFailed: z.strictObject({ id: z.string(), error: z.string(), due: z.int() }),
  /** The attempt was called off and does not count. */
  DeliveryCalledOff: z.strictObject({ id: z.string(), at: z.int() }),
  DeliveryGivenUp: z.strictObject({ id: z.string(), error: z.string(), attempts: z.int(), at: z.int() }),
  DeliveryRevived: z.strictObject({ id: z.string(), at: z.int() }),
  /** `version` signs from here on, the one before it as well until `former_until`, Unix milliseconds. */
  SecretRotated: z.strictObject({ version: z.int(), former_until: z.int() }),
  WebhookForgotten: nothing,
} as const;
