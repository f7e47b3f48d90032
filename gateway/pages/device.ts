/** The page where a person approves the sign-in of a device or command line (RFC 8628 section 3.3), and its outcomes. */
import { html } from './html.ts';
import { alert, result, type View } from './layout.ts';
import { problemText, type Problem } from './problem.ts';

type Person = NonNullable<View['person']>;

/** Asks for the code that the device shows. */
export const deviceCodeView = (input: { readonly person: Person; readonly code?: string; readonly problem?: Problem | undefined }): View => ({
  title: 'Connect a device', person: input.person,
  body: html`
${input.problem === undefined ? undefined : alert(input.problem.code === 'not_found' ? 'There is no such code, or it was used already. Check what your device shows.' : problemText(input.problem))}
<p>Enter the code that your device or command line shows.</p>
<form method="get" action="/device">
<label for="code">Code</label>
<input id="code" name="code" class="code" autocomplete="off" autocapitalize="characters" spellcheck="false" placeholder="ABCD-2345" required maxlength="16" value="${input.code ?? ''}" autofocus>
<button>Continue</button>
</form>`,
});

/** Shows who asks; one form, two buttons. Nothing is chosen beforehand: Enter in an empty place approves nothing. */
export const deviceApproveView = (input: { readonly person: Person; readonly clientId: string; readonly userCode: string; readonly expiresInSec: number }): View => ({
  title: 'Approve this sign-in?', person: input.person,
  body: html`
<p>An application wants to act as you on Troupe, with everything you may do yourself.</p>
<dl>
<div><dt>Application</dt><dd>${input.clientId}</dd></div>
<div><dt>Code</dt><dd><code class="code">${input.userCode}</code></dd></div>
<div><dt>Your account</dt><dd>${input.person.email}</dd></div>
</dl>
<p>Approve only if you started this yourself just now and your device shows the same code. It is valid for another ${minutes(input.expiresInSec)}.</p>
<form method="post" action="/api/auth/device/authorize" class="choice">
<input type="hidden" name="csrf" value="${input.person.csrf}">
<input type="hidden" name="user_code" value="${input.userCode}">
<button name="action" value="approve">Approve</button>
<button name="action" value="deny" class="quiet">Deny</button>
</form>`,
});

export const deviceDecidedView = (status: 'approved' | 'denied', person: Person | undefined): View => ({
  title: status === 'approved' ? 'Approved' : 'Denied', person,
  body: status === 'approved'
    ? html`${result('The device is signed in. You can close this page and go back to it.')}
<p>You see and end all your sign-ins in <a href="/console/account">your account</a>.</p>`
    : html`${result('The device was refused and got no access. You can close this page.')}
<p>If you did not start this yourself, nothing is left to do: whoever did cannot use the code again.</p>`,
});

/** Expired, used or unknown. */
export const deviceGoneView = (code: 'device_expired' | 'not_found', person: Person | undefined): View => ({
  title: code === 'device_expired' ? 'This code has expired' : 'This code is not valid', person,
  body: html`${alert(code === 'device_expired' ? 'A code is valid for 15 minutes. Start again on your device: it will show a new one.' : 'It does not exist or was used already. Check what your device shows, or start again there.')}
<p><a href="/device">Enter another code</a></p>`,
});

const minutes = (seconds: number): string => {
  const whole = Math.max(1, Math.ceil(seconds / 60));
  return whole === 1 ? 'minute' : `${whole} minutes`;
};
