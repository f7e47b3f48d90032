/**
 * The table of server-rendered pages: which path shows what, and what becomes of their forms.
 *
 * Guarantees: whoever is not signed in is sent to the sign-in page and comes back to where they were, within this site only; an error is a
 * page with a sentence and the status it had; no page shows a token but the one that was just made by its own form.
 */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { coded, CodedError, errorEntry } from '../../contracts/errors.ts';
import { upgradeUrl } from '../../contracts/plans.ts';
import type { Answer } from '../answer.ts';
import type { ConsoleFiles } from '../console/files.ts';
import type { Ask, FormOutcome, FormPage, PageHandler, PageRequest, Pages } from '../page.ts';
import { deviceApproveView, deviceCodeView, deviceDecidedView, deviceGoneView } from './device.ts';
import { inviteGoneView, inviteView } from './invite.ts';
import { alert, documentOf, pageHeaders, type View } from './layout.ts';
import { legalDocumentView, legalView, type LegalInput } from './legal.ts';
import { html } from './html.ts';
import { pricingView } from './pricing.ts';
import { namedInAddress, problemText, type Problem } from './problem.ts';
import { answerOf, browserSession, pathOf, type BrowserSession } from './session.ts';
import { codeView, signinPath, signinView } from './signin.ts';
import { madeTokenView, tokenView } from './token.ts';

/** Where people go who came from nowhere. */
const home = '/console';

const page = (view: View, status = 200): Answer => ({ status, headers: pageHeaders, body: documentOf(view) });
const seeOther = (location: string): Answer => ({ status: 303, headers: { location, 'cache-control': 'no-store' }, body: '' });

type Refused = Extract<FormOutcome, { kind: 'refused' }>;
const waitOf = (details: Readonly<Record<string, unknown>> | undefined): Pick<Problem, 'retryAfterSec'> => {
  const seconds = details?.['retry_after'];
  return typeof seconds === 'number' ? { retryAfterSec: seconds } : {};
};
const problemOf = ({ code, message, details }: Pick<Refused, 'code' | 'message'> & { details?: Refused['details'] | undefined }): Problem => ({ code, message, ...waitOf(details) });

const problemPage = (problem: Problem, status: number, again: { readonly path: string; readonly text: string }): Answer =>
  page({ title: 'That did not work', body: html`${alert(problemText(problem))}<p><a href="${again.path}">${again.text}</a></p>` }, status);

/** A page that throws a refusal or a fault shows it in words; a bug goes on to the gateway, which logs it under a correlation id. */
const inWords = (handler: PageHandler): PageHandler => async (request, ask) => {
  try {
    return await handler(request, ask);
  } catch (error) {
    if (!(error instanceof CodedError) || error.entry.kind === 'bug') throw error;
    return problemPage(problemOf(error), error.entry.http, { path: home, text: 'To the console' });
  }
};

const signin: PageHandler = async ({ query }, ask) => {
  const returnTo = pathOf(query['return_to']);
  const { person, ways } = await browserSession(ask);
  if (person !== undefined) return seeOther(returnTo ?? home);
  const code = query['error'];
  return page(signinView({ ways, returnTo, problem: code !== undefined && namedInAddress.has(code) ? { code, message: '' } : undefined }));
};

const deviceAnswer = z.object({ client_id: z.string(), user_code: z.string(), expires_in: z.number() });

const device: PageHandler = async ({ query }, ask) => {
  const code = query['code'];
  const { person } = await browserSession(ask);
  if (person === undefined) return seeOther(signinPath(code === undefined ? '/device' : `/device?${new URLSearchParams({ code: code.slice(0, 64) }).toString()}`));
  if (code === undefined || code.trim() === '') return page(deviceCodeView({ person }));
  try {
    const shown = answerOf(deviceAnswer, await ask('device_show', { query: { user_code: code } }));
    return page(deviceApproveView({ person, clientId: shown.client_id, userCode: shown.user_code, expiresInSec: shown.expires_in }));
  } catch (error) {
    if (!(error instanceof CodedError) || error.entry.kind === 'bug') throw error;
    if (error.code === 'device_expired') return page(deviceGoneView('device_expired', person), 410);
    const unknown = error.code === 'validation_error' ? 'not_found' : error.code;
    return page(deviceCodeView({ person, code: code.slice(0, 16), problem: { ...problemOf(error), code: unknown } }), unknown === 'not_found' ? 404 : error.entry.http);
  }
};

const apiToken: PageHandler = async (_request, ask) => {
  const { person } = await browserSession(ask);
  return person === undefined ? seeOther(signinPath('/api/auth/api-token')) : page(tokenView({ person }));
};

const invitationAnswer = z.object({
  organizationName: z.string(), invitation: z.object({ email: z.string(), role: z.string(), status: z.string(), expiresAt: z.string() }),
});

const invitePage = async (token: string, ask: Ask, refused?: Refused): Promise<Answer> => {
  const { person } = await browserSession(ask);
  const problem = refused === undefined ? undefined : problemOf(refused);
  try {
    const shown = answerOf(invitationAnswer, await ask('show_invitation', { body: { token } }));
    return page(inviteView({ ...shown, token, person, problem }), refused?.status ?? 200);
  } catch (error) {
    if (!(error instanceof CodedError) || error.entry.kind === 'bug') throw error;
    return page(inviteGoneView(person, problemOf(error)), error.entry.http);
  }
};

const manifestAnswer = z.object({ version: z.string(), hash: z.string(), documents: z.array(z.object({ id: z.string(), title: z.string(), url: z.string(), sha256: z.string() })) });

const legalPage = async (returnTo: string | undefined, ask: Ask, refused?: Refused): Promise<Answer> => {
  const [{ person, legalAccepted }, manifest] = await Promise.all([browserSession(ask), ask('manifest')]);
  const input: LegalInput = { manifest: answerOf(manifestAnswer, manifest), person, accepted: legalAccepted, returnTo, problem: refused && problemOf(refused) };
  return page(legalView(input), refused?.status ?? 200);
};

/** Sends a person whose session has ended to sign in, and back. */
const signInAgain = ({ code }: Refused, path: string): Answer | undefined => (code === 'unauthorized' ? seeOther(signinPath(path)) : undefined);

const joined = z.object({ organization: z.object({ id: z.string() }) });
const decided = z.object({ status: z.enum(['approved', 'denied']) });
const tokens = z.object({ token: z.string(), refresh_token: z.string(), expires_at: z.string() });

const emailForms = async (routeId: string, outcome: FormOutcome, { fields }: PageRequest, ask: Ask): Promise<Answer> => {
  const email = (fields['email'] ?? '').trim();
  const returnTo = pathOf(fields['return_to']);
  if (outcome.kind === 'answered') return routeId === 'email_verify' ? seeOther(returnTo ?? home) : page(codeView({ email, returnTo }));
  const problem = problemOf(outcome);
  if (routeId === 'email_verify') {
    return page(codeView({ email, returnTo, problem: problem.code === 'validation_error' ? { ...problem, code: 'bad_code' } : problem }), outcome.status);
  }
  const { ways } = await browserSession(ask);
  const said = problem.code === 'validation_error' ? { ...problem, message: 'This is not an e-mail address we can write to. Check it, please.' } : problem;
  return page(signinView({ ways, returnTo, email, problem: said }), outcome.status);
};

const deviceForm = async (outcome: FormOutcome, { fields }: PageRequest, ask: Ask): Promise<Answer> => {
  const back = `/device?${new URLSearchParams({ code: fields['user_code'] ?? '' }).toString()}`;
  if (outcome.kind === 'refused') {
    const { code } = outcome;
    if (code === 'device_expired' || code === 'not_found') return page(deviceGoneView(code, (await browserSession(ask)).person), outcome.status);
    return signInAgain(outcome, back) ?? problemPage(problemOf(outcome), outcome.status, { path: back, text: 'Back' });
  }
  return page(deviceDecidedView(answerOf(decided, outcome).status, (await browserSession(ask)).person));
};

const tokenForm = async (outcome: FormOutcome, ask: Ask): Promise<Answer> => {
  const { person }: BrowserSession = await browserSession(ask);
  if (outcome.kind === 'refused') {
    if (person === undefined) return seeOther(signinPath('/api/auth/api-token'));
    return page(tokenView({ person, problem: problemOf(outcome) }), outcome.status);
  }
  const made = answerOf(tokens, outcome);
  return page(madeTokenView({ person, token: made.token, refreshToken: made.refresh_token, expiresAt: made.expires_at }));
};

const formPage: FormPage = async (routeId, outcome, request, ask) => {
  const { fields } = request;
  switch (routeId) {
    case 'email_start':
    case 'email_verify':
      return emailForms(routeId, outcome, request, ask);
    case 'device_authorize':
      return deviceForm(outcome, request, ask);
    case 'make_api_token':
      return tokenForm(outcome, ask);
    case 'signout':
      return outcome.kind === 'answered' || outcome.code === 'unauthorized' ? seeOther('/signin')
        : problemPage(problemOf(outcome), outcome.status, { path: home, text: 'To the console' });
    case 'join': {
      if (outcome.kind === 'answered') return seeOther(`${home}/members?${new URLSearchParams({ org: answerOf(joined, outcome).organization.id }).toString()}`);
      return invitePage(fields['token'] ?? '', ask, outcome);
    }
    case 'accept_legal': {
      const returnTo = pathOf(fields['return_to']);
      if (outcome.kind === 'answered') return seeOther(returnTo ?? home);
      return signInAgain(outcome, '/legal') ?? legalPage(returnTo, ask, outcome);
    }
    default:
      return undefined;
  }
};

/** Shown only while it is the document in force: an installation with a manifest of its own does not show ours. */
const legalDocument = (id: string, text: string): PageHandler => {
  const sha256 = createHash('sha256').update(text, 'utf8').digest('hex');
  return async (_request, ask) => {
    const { documents } = answerOf(manifestAnswer, await ask('manifest'));
    if (!documents.some((document) => document.id === id && document.sha256 === sha256)) throw coded('not_found');
    return page(legalDocumentView(text, (await browserSession(ask)).person));
  };
};

export interface PageParts {
  /** Texts of our own legal documents by id, for `/legal/<id>`. */
  readonly documents: ReadonlyMap<string, string>;
  /** Style, script and icon by path. */
  readonly files: ConsoleFiles;
}

export const createPages = ({ documents, files }: PageParts): Pages => {
  const routes: readonly (readonly [string, PageHandler])[] = [
    ['/signin', signin],
    ['/device', device],
    ['/api/auth/api-token', apiToken],
    ['/invite', ({ query }, ask) => invitePage(query['token'] ?? '', ask)],
    [upgradeUrl, async (_request, ask) => page(pricingView((await browserSession(ask)).person))],
    ['/legal', ({ query }, ask) => legalPage(pathOf(query['return_to']), ask)],
    ...[...documents].map(([id, text]) => [`/legal/${id}`, legalDocument(id, text)] as const),
  ];
  const assets = [...files].map(([path, file]) => [path, (): Answer => ({ status: 200, headers: { 'content-type': file.type, 'cache-control': 'max-age=300' }, body: file.body })] as const);
  return { routes: new Map([...routes.map(([path, handler]) => [path, inWords(handler)] as const), ...assets].map(([path, handler]) => [`GET ${path}` as `GET /${string}`, handler])), formPage: shownForm };
};

/** Refusals whose page asks nothing (page.ts). */
const unasked: ReadonlySet<string> = new Set(['rate_limited', 'overloaded', 'payload_too_large']);

const backs: Readonly<Record<string, string>> = { device_authorize: '/device', make_api_token: '/api/auth/api-token', accept_legal: '/legal' };
const backOf = (routeId: string): string => backs[routeId] ?? '/signin';

/** As `inWords`, for the outcome of a form. */
const shownForm: FormPage = async (routeId, outcome, request, ask) => {
  if (outcome.kind === 'refused' && unasked.has(outcome.code)) return problemPage(problemOf(outcome), outcome.status, { path: backOf(routeId), text: 'Back' });
  try {
    return await formPage(routeId, outcome, request, ask);
  } catch (error) {
    if (!(error instanceof CodedError) || error.entry.kind === 'bug') throw error;
    return problemPage(problemOf(error), errorEntry(error.code).http, { path: home, text: 'To the console' });
  }
};
