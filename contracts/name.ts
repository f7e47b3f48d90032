/**
 * The name actor's contract: who holds a name that only one may have (a slug, an e-mail address, a user code, an identity).
 * Org token `platform`, key from `nameAddress` (actors/name/address.ts). All commands are for the daemon and other actors.
 *
 * Guarantee: a name has at most one holder. Of several claims at once exactly one is `mine`; it stays so until it lapses unconfirmed
 * or is released by its holder.
 */
import { z } from 'zod';
import { limits } from './limits.ts';
import { isId } from './validate.ts';

/** Who holds a name: the id of a user, an organization, a device authorization. */
const holder = z.string().refine(isId);

/** What can have a name. E-mail addresses and identities stand in keys as SHA-256. */
export const nameKinds = ['slug', 'email', 'user-code', 'identity', 'customer', 'deployment', 'agent'] as const;
export type NameKind = (typeof nameKinds)[number];

export const nameCommands = {
  /**
   * Takes the name if it is free or its claim has lapsed; else says who holds it. `forMs`: the claim lapses after so long unless it is
   * confirmed or claimed anew; absent = for good. The holder's own repeat is `mine` again, makes a lapsing claim last as it says, and
   * never makes one for good lapse.
   */
  claim: {
    input: z.strictObject({ holder, forMs: z.int().min(1).max(limits.nameClaimMaxMs).optional() }),
    output: z.strictObject({ holder, mine: z.boolean() }),
  },
  /** Makes the holder's claim one for good; a repeat changes nothing. `conflict` if the name is not this holder's: a told one is then a dead letter. */
  confirm: { input: z.strictObject({ holder }), output: z.strictObject({}) },
  /** Gives the name up. From anybody but the holder it changes nothing. */
  release: { input: z.strictObject({ holder }), output: z.strictObject({}) },
  /** Who holds the name now; null if nobody does. */
  holder: { input: z.strictObject({}), output: z.strictObject({ holder: holder.nullable() }) },
} as const;

export const nameEvents = {
  /** `until`: Unix milliseconds at which the claim lapses; null = never. */
  NameClaimed: z.strictObject({ holder: z.string(), until: z.int().nullable() }),
  NameConfirmed: z.strictObject({ holder: z.string() }),
  NameReleased: z.strictObject({ holder: z.string() }),
} as const;
