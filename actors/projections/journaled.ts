/** Events of a projection's commits one by one, read with today's schemas. What cannot be read is left out and reported: the rest counts. */
import type { z } from 'zod';
import type { StoredEvent } from '../../contracts/event.ts';
import type { ProjectedCommit } from './projection.ts';

/** An event's payload in today's version. Throws `journal_unreadable` for what the code does not know. */
export type Upcast = (event: StoredEvent) => Readonly<Record<string, unknown>>;

export interface JournaledOptions {
  readonly upcast: Upcast;
  /** Told of an event that cannot be read. */
  readonly onBroken: (at: ProjectedCommit, error: unknown) => void;
}

type Schemas = Readonly<Record<string, z.ZodType>>;

/** An event of one of the kinds. */
export type Journaled<Events extends Schemas> = {
  readonly [K in keyof Events & string]: {
    readonly kind: K;
    readonly payload: z.output<Events[K]>;
    readonly id: string;
    /** Key of the actor. */
    readonly key: string;
    readonly at: Date;
  }
}[keyof Events & string];

/** The actors' own events, in order. */
export const journaled = <const Events extends Schemas>(events: Events, commits: readonly ProjectedCommit[], options: JournaledOptions): readonly Journaled<Events>[] => {
  const read: Journaled<Events>[] = [];
  for (const projected of commits) {
    const { address, commit } = projected;
    for (const event of commit.ev) {
      if (event.k.startsWith('$')) continue;
      try {
        const payload = options.upcast(event);
        const schema = Object.hasOwn(events, event.k) ? events[event.k] : undefined;
        if (schema === undefined) throw new TypeError(`there is no event ${event.k}`);
        // Kind and schema belong together by the look-up.
        read.push({ kind: event.k, payload: schema.parse(payload), id: event.id, key: address.key, at: new Date(event.t ?? commit.t) } as Journaled<Events>);
      } catch (error) {
        options.onBroken(projected, error);
      }
    }
  }
  return read;
};

/** Text as Postgres can hold it: without NUL and half characters. */
export const storable = (text: string): string => text.toWellFormed().replaceAll('\u0000', '\uFFFD');
