/** The page that makes an API token: a button, then the token, once. The token is in this answer only, never in an address. */
import { html } from './html.ts';
import { alert, result, type View } from './layout.ts';
import { problemText, type Problem } from './problem.ts';

type Person = NonNullable<View['person']>;

export const tokenView = (input: { readonly person: Person; readonly problem?: Problem | undefined }): View => ({
  title: 'API token', person: input.person,
  body: html`
${input.problem === undefined ? undefined : alert(problemText(input.problem))}
<p>A token lets a script or a command line without a browser act as you. It is valid for 90 days and may do all that you may do.</p>
<p>It is shown once. You can end it at any time in <a href="/console/account">your account</a>.</p>
<form method="post" action="/api/auth/api-token">
<input type="hidden" name="csrf" value="${input.person.csrf}">
<button>Make a token</button>
</form>`,
});

export const madeTokenView = (input: { readonly person?: Person | undefined; readonly token: string; readonly refreshToken: string; readonly expiresAt: string }): View => ({
  title: 'Your API token', person: input.person,
  body: html`
${result('Copy it now: it is not shown again.')}
<label for="token">Token</label>
<textarea id="token" class="secret" readonly rows="6" autocomplete="off" spellcheck="false">${input.token}</textarea>
<p class="actions"><button type="button" class="quiet" data-copy="token" hidden>Copy</button></p>
<p>It ends on <time datetime="${input.expiresAt}">${input.expiresAt.slice(0, 10)}</time>, after 90 days, or when you revoke it in <a href="/console/account">your account</a>.</p>
<h2>With the command line</h2>
<p>Run this and paste the token when it asks:</p>
<pre><code>troupe auth login --manual</code></pre>
<p>Or, for scripts, put it in the environment variable <code>TROUPE_TOKEN</code>.</p>
<details>
<summary>Refresh token</summary>
<p>For programs that renew by themselves: valid for 7 days, works once and is replaced each time.</p>
<label for="refresh">Refresh token</label>
<textarea id="refresh" class="secret" readonly rows="2" autocomplete="off" spellcheck="false">${input.refreshToken}</textarea>
</details>`,
});
