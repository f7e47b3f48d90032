/** Sign-in: the address, then the code that was mailed to it; or one of the providers. Works step by step without JavaScript. */
import { html, type Html } from './html.ts';
import { alert, type View } from './layout.ts';
import { problemText, type Problem } from './problem.ts';

export type SigninWay = 'email' | 'google' | 'github';

export interface SigninInput {
  readonly ways: readonly SigninWay[];
  /** A checked path of this site. */
  readonly returnTo: string | undefined;
  readonly email?: string;
  readonly problem?: Problem | undefined;
}

const providerNames = { google: 'Google', github: 'GitHub' } as const;

const returnField = (returnTo: string | undefined): Html | undefined =>
  (returnTo === undefined ? undefined : html`<input type="hidden" name="return_to" value="${returnTo}">`);

const providerLink = (way: 'google' | 'github', returnTo: string | undefined): Html => {
  const query = returnTo === undefined ? '' : `?${new URLSearchParams({ return_to: returnTo }).toString()}`;
  return html`<a class="button quiet" href="/api/auth/signin/${way}${query}">Continue with ${providerNames[way]}</a>`;
};

/** Where somebody goes to sign in and comes back from. */
export const signinPath = (returnTo: string): string => `/signin?${new URLSearchParams({ return_to: returnTo }).toString()}`;

/** Asks for the address. */
export const signinView = ({ ways, returnTo, email, problem }: SigninInput): View => {
  const providers = ways.filter((way) => way !== 'email');
  return {
    title: 'Sign in',
    body: html`
${problem === undefined ? undefined : alert(problemText(problem))}
<p>New here? Signing in makes your account.</p>
${ways.includes('email') ? html`<form method="post" action="/api/auth/email/start">
${returnField(returnTo)}
<label for="email">E-mail address</label>
<input id="email" name="email" type="email" autocomplete="email" required maxlength="254" value="${email ?? ''}" autofocus>
<button>Send me a code</button>
</form>` : undefined}
${providers.length === 0 ? undefined : html`<div class="ways">${providers.map((way) => providerLink(way, returnTo))}</div>`}`,
  };
};

export interface CodeInput {
  readonly email: string;
  readonly returnTo: string | undefined;
  readonly problem?: Problem | undefined;
}

/** Asks for the code. Says the same whether the address has an account or not. */
export const codeView = ({ email, returnTo, problem }: CodeInput): View => ({
  title: 'Enter your code',
  body: html`
${problem === undefined ? undefined : alert(problemText(problem))}
<p>We sent a code of 8 digits to <strong>${email}</strong>. It is valid for 10 minutes and works once.</p>
<form method="post" action="/api/auth/email/verify">
<input type="hidden" name="email" value="${email}">
${returnField(returnTo)}
<label for="code">Code</label>
<input id="code" name="code" class="code" inputmode="numeric" autocomplete="one-time-code" pattern="\\s*[0-9]{8}\\s*" title="8 digits" required maxlength="16" autofocus>
<button>Sign in</button>
</form>
<div class="others">
<form method="post" action="/api/auth/email/start">
<input type="hidden" name="email" value="${email}">
${returnField(returnTo)}
<button class="link">Send a new code</button>
</form>
<a href="${returnTo === undefined ? '/signin' : signinPath(returnTo)}">Use another address</a>
</div>`,
});
