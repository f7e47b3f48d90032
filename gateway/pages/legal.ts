/** The documents in force, one document, and the acceptance of all of them. */
import { html, type Html } from './html.ts';
import { alert, result, type View } from './layout.ts';
import { problemText, type Problem } from './problem.ts';

type Person = NonNullable<View['person']>;

export interface Manifest {
  readonly version: string;
  readonly hash: string;
  readonly documents: readonly { readonly id: string; readonly title: string; readonly url: string }[];
}

export interface LegalInput {
  readonly manifest: Manifest;
  readonly person: Person | undefined;
  readonly accepted: boolean;
  /** A checked path of this site to go to afterwards. */
  readonly returnTo: string | undefined;
  readonly problem?: Problem | undefined;
}

/** What is agreed to, in the order of the form. Each must be ticked by hand. */
const agreements: readonly (readonly [name: string, text: string])[] = [
  ['terms', 'I accept the terms of service.'],
  ['privacy', 'I have read the privacy notice.'],
  ['processing', 'I agree that what I send is processed by the model providers as described.'],
  ['age', 'I am of legal age.'],
];

/** Only http and https: a manifest's address never becomes a script. */
const linkTo = ({ title, url }: Manifest['documents'][number]): Html =>
  (/^https?:\/\//.test(url) ? html`<a href="${url}">${title}</a>` : html`${title}`);

export const legalView = ({ manifest, person, accepted, returnTo, problem }: LegalInput): View => ({
  title: 'Terms and privacy', person,
  body: html`
${problem === undefined ? undefined : alert(problem.code === 'conflict' ? 'The documents have changed in the meantime. Please read them again.' : problem.code === 'validation_error' ? 'Please tick all four.' : problemText(problem))}
<p>The documents in force (version ${manifest.version}):</p>
<ul>${manifest.documents.map((document) => html`<li>${linkTo(document)}</li>`)}</ul>
${person === undefined ? undefined : accepted ? html`${result('You have accepted them.')}<p><a href="${returnTo ?? '/console'}">Continue</a></p>` : html`<form method="post" action="/legal">
<input type="hidden" name="csrf" value="${person.csrf}">
<input type="hidden" name="hash" value="${manifest.hash}">
${returnTo === undefined ? undefined : html`<input type="hidden" name="return_to" value="${returnTo}">`}
<fieldset><legend>To go on, please confirm</legend>
${agreements.map(([name, text]) => html`<label class="tick"><input type="checkbox" name="${name}" value="true" required> ${text}</label>`)}
</fieldset>
<button>Accept and continue</button>
</form>`}`,
});

/** One line of text of a document: `# ` and `## ` are headings, everything else is a paragraph. */
const blockOf = (block: string): Html => {
  const heading = /^##\s+(.+)$/.exec(block)?.[1];
  return heading === undefined ? html`<p>${block}</p>` : html`<h2>${heading}</h2>`;
};

/** A document of ours: blocks between empty lines. Its first line `# …` is the title. */
export const legalDocumentView = (text: string, person: Person | undefined): View => {
  const blocks = text.split(/\n\s*\n/).map((block) => block.trim().replaceAll('\n', ' ')).filter((block) => block !== '');
  const title = /^#\s+(.+)$/.exec(blocks[0] ?? '')?.[1];
  return { title: title ?? 'Document', person, body: html`${(title === undefined ? blocks : blocks.slice(1)).map(blockOf)}<p><a href="/legal">All documents</a></p>` };
};
