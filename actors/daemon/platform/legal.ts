/**
 * The legal manifest, its acceptance, and what the chat endpoints ask of a caller (decisions, Billing: legal; TOK-055 … 062).
 *
 * Guarantees: an acceptance names the manifest it is for, so nobody accepts what they were not shown; it is journaled with the address and
 * the browser it came from. Reading and accepting need no acceptance.
 */
import { createHash } from 'node:crypto';
import { authRoutes } from '../../../contracts/auth-routes.ts';
import { coded } from '../../../contracts/errors.ts';
import { developmentDocuments, developmentVersion, legalManifest, type LegalManifest } from '../../../contracts/legal.ts';
import type { Caller } from '../../../contracts/platform.ts';
import { userCommands } from '../../../contracts/user.ts';
import { parseJson } from '../../../contracts/validate.ts';
import { userAddress } from '../../user/address.ts';
import { askBy } from './ask.ts';
import { personOf } from './callers.ts';
import type { Manifest, PlatformDeps } from './deps.ts';
import { forAnyone, forCaller, type PlatformHandler, type PlatformHandlerRequest } from './serve.ts';
import { bodyOf } from './typed.ts';

const sha256 = (text: string): string => createHash('sha256').update(text, 'utf8').digest('hex');

const hashed = ({ version, documents }: LegalManifest): Manifest => {
  // Members in the order of their names, no white space: canonical JSON, since all values are text.
  const canonical = JSON.stringify({ documents: documents.map((d) => ({ id: d.id, sha256: d.sha256, title: d.title, url: d.url })), version });
  return { version, documents, hash: sha256(canonical) };
};

/** The manifest of a file's text, or the built-in one of development. Throws `bad_request` for a text that is none. */
export const readManifest = (text: string | undefined, baseUrl: string): Manifest => {
  if (text !== undefined) {
    const parsed = legalManifest.safeParse(parseJson(text));
    if (!parsed.success) throw coded('bad_request', `platform.legal_manifest_path: ${parsed.error.issues.map((i) => `${i.path.map(String).join('.')}: ${i.message}`).join('; ')}`);
    return hashed(parsed.data);
  }
  const documents = [...developmentDocuments].map(([id, document]) => ({
    id, title: /^# (.+)$/m.exec(document)?.[1] ?? id, url: `${baseUrl}/legal/${id}`, sha256: sha256(document),
  }));
  return hashed({ version: developmentVersion, documents });
};

/**
 * Passes if the caller may chat: the presented token stands for the manifest in force. Throws `legal_acceptance_required` where nothing was
 * ever accepted, `stale_policy` where something else was, or where the token is older than the acceptance (decisions, Billing; Small print).
 */
export const requirePolicy = (caller: Caller, manifest: Pick<Manifest, 'hash'>): void => {
  if (caller.policy === manifest.hash) return;
  const accepted = caller.kind === 'user' ? caller.accepted : caller.policy;
  throw coded(accepted === '' ? 'legal_acceptance_required' : 'stale_policy');
};

export const legalHandlers = ({ actors, manifest }: Pick<PlatformDeps, 'actors' | 'manifest'>): Readonly<Record<string, PlatformHandler>> => {
  const askUser = askBy(actors, userCommands);
  const accept = async ({ caller, context: { ip, user_agent } }: PlatformHandlerRequest, hash: string) => {
    const { userId } = personOf(caller);
    if (hash !== manifest.hash) throw coded('conflict', 'These are not the documents in force. Read them again.');
    await askUser(userAddress(userId), 'accept_policy', { hash, version: manifest.version, ip, user_agent }, 'once');
    return { status: 200, body: { accepted: true, hash, version: manifest.version } };
  };
  return {
    manifest: forAnyone(async () => ({ status: 200, body: { version: manifest.version, hash: manifest.hash, documents: manifest.documents } })),
    acceptance: forCaller(async (request) => accept(request, bodyOf(authRoutes.acceptance, request).hash)),
    accept_legal: forCaller(async (request) => accept(request, bodyOf(authRoutes.acceptLegal, request).hash)),
  };
};
