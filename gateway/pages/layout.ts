/**
 * The frame of every server-rendered page, and the headers it is answered with (page.ts has the strict ones).
 *
 * The pages work without JavaScript; `/pages.js` only adds comfort (copying, no second press). Nothing inline, nothing from elsewhere.
 */
import { pageHeaders as strict } from '../page.ts';
import { html, type Html, type Part } from './html.ts';

export const pageHeaders: Readonly<Record<string, string>> = {
  ...strict,
  'content-type': 'text/html; charset=utf-8',
  'x-frame-options': 'DENY',
};

export interface View {
  /** Without the product's name. Also the page's heading unless `heading` says otherwise. */
  readonly title: string;
  readonly heading?: string;
  readonly body: Part;
  /** Wider than a form: a table is on it. */
  readonly wide?: boolean;
  /** Who is signed in: shown at the foot with a way out. Needs `csrf`. */
  readonly person?: { readonly email: string; readonly csrf: string } | undefined;
}

/** Ends the session of this browser; comes back to the sign-in page. */
const foot = (person: NonNullable<View['person']>): Html => html`<footer>
<p>Signed in as <strong>${person.email}</strong></p>
<form method="post" action="/api/auth/signout"><input type="hidden" name="csrf" value="${person.csrf}"><button class="link">Sign out</button></form>
</footer>`;

/** The finished document. */
export const documentOf = ({ title, heading, body, person, wide = false }: View): string => html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title} · Troupe</title>
<link rel="icon" href="/pages.svg" type="image/svg+xml">
<link rel="stylesheet" href="/pages.css">
<script type="module" src="/pages.js"></script>
</head>
<body${wide ? html` class="wide"` : undefined}>
<header><a href="/console"><img src="/pages.svg" alt="" width="24" height="24">Troupe</a></header>
<main>
<h1>${heading ?? title}</h1>
${body}
</main>
${person === undefined ? undefined : foot(person)}
</body>
</html>
`.text;

/** Something went wrong: read aloud at once. */
export const alert = (text: Part): Html => html`<p class="alert" role="alert">${text}</p>`;

/** What became of something: read aloud when there is time. */
export const result = (text: Part): Html => html`<p class="result" role="status">${text}</p>`;
