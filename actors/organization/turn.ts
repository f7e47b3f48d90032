/** The part of a turn that an organization's handlers need; commands', reminders' and effects' turns all have it. */
import { z } from 'zod';
import type { OrganizationEvents } from '../../contracts/organization-events.ts';
import type { PayloadOf, Turn } from '../runtime/define.ts';
import type { OrganizationState } from './state.ts';

/** Which mail of the outbox is to be sent, which slug is to be kept, and which pass of the erasure is to be done. */
export const mailInput = z.strictObject({ mail: z.string() });
export const slugInput = z.strictObject({ slug: z.string() });
export const eraseInput = z.strictObject({ pass: z.int() });
/** Days of the setting that a pass of the retention is for. */
export const retainInput = z.strictObject({ days: z.int() });

export interface OrganizationTurn extends Pick<Turn<OrganizationState, OrganizationEvents, Record<never, never>>, 'state' | 'now' | 'self' | 'newId' | 'tell' | 'remind' | 'forget'> {
  emit<K extends keyof OrganizationEvents>(kind: K, payload: PayloadOf<OrganizationEvents[K]>): void;
  effect(name: 'mail', input: z.output<typeof mailInput>): string;
  effect(name: 'slug', input: z.output<typeof slugInput>): string;
  effect(name: 'erase', input: z.output<typeof eraseInput>): string;
  effect(name: 'retain', input: z.output<typeof retainInput>): string;
}
