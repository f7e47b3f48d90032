/** Billing periods: calendar months in UTC, named `YYYY-MM`; with a subscription, from one paid invoice to the next (state.ts). */

/** The period of a time in Unix milliseconds. */
export const periodOf = (atMs: number): string => new Date(atMs).toISOString().slice(0, 7);

/** Unix milliseconds of a period's first moment, and of the next one's. */
export const boundsOf = (period: string): { readonly startMs: number; readonly endMs: number } => {
  const [year = 0, month = 1] = period.split('-').map(Number);
  return { startMs: Date.UTC(year, month - 1), endMs: Date.UTC(year, month) };
};
