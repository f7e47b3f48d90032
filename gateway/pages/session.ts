/** What the pages learn of the platform: who is signed in, checked as it arrives. Nothing here decides anything; the daemon does. */
import { z } from 'zod';
import { returnTo } from '../../contracts/auth-routes.ts';
import { coded } from '../../contracts/errors.ts';
import type { Ask, Asked } from '../page.ts';
import type { View } from './layout.ts';
import type { SigninWay } from './signin.ts';

const sessionAnswer = z.object({
  user: z.object({ id: z.string(), email: z.string(), name: z.string() }).nullable(), csrf: z.string().nullable(),
  legalAccepted: z.boolean(), providers: z.array(z.enum(['email', 'google', 'github'])),
});

export interface BrowserSession {
  /** Undefined = nobody is signed in. */
  readonly person: View['person'];
  readonly legalAccepted: boolean;
  readonly ways: readonly SigninWay[];
}

/** The JSON of an answer. Throws `upstream_error` for one that is not of this shape. */
export const answerOf = <T extends z.ZodType>(schema: T, asked: Pick<Asked, 'json'>): z.output<T> => {
  const parsed = schema.safeParse(asked.json);
  if (!parsed.success) throw coded('upstream_error', undefined, { cause: parsed.error });
  return parsed.data;
};

export const browserSession = async (ask: Ask): Promise<BrowserSession> => {
  const { user, csrf, legalAccepted, providers } = answerOf(sessionAnswer, await ask('session'));
  return { person: user === null || csrf === null ? undefined : { email: user.email, csrf }, legalAccepted, ways: providers };
};

/** A path of this site, or undefined for anything else. */
export const pathOf = (text: string | undefined): string | undefined => returnTo.safeParse(text).data;
