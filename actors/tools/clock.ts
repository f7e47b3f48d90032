/** The clock tool: the time now, in UTC and in an IANA time zone. */
import { z } from 'zod';
import { refuse } from '../../contracts/errors.ts';
import { defineTool } from './tool.ts';

export const clock = defineTool({
  name: 'clock',
  description: 'Tells the current date and time, in UTC and optionally in an IANA time zone such as Europe/Berlin.',
  parameters: z.strictObject({ time_zone: z.string().max(64).optional() }),
  needsApproval: false,
  idempotent: true,
  outward: false,
  preview: () => 'Read the clock.',
  run: async ({ time_zone: zone }, context) => {
    const now = new Date(context.now());
    const utc = { utc: now.toISOString(), unix: Math.floor(now.getTime() / 1_000) };
    if (zone === undefined) return utc;
    try {
      const local = new Intl.DateTimeFormat('en-GB', { timeZone: zone, dateStyle: 'full', timeStyle: 'long' }).format(now);
      return { ...utc, time_zone: zone, local };
    } catch (error) {
      if (error instanceof RangeError) throw refuse('unknown_time_zone', 'There is no such time zone.');
      throw error;
    }
  },
});
