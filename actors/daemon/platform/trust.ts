/**
 * Handlers of the trust routes (interface 4.4; decisions, Trust): scores, verifications, certifications.
 *
 * Guarantees: another's score is shown only to who is admin or owner, at this moment and by the organization actor's word, of an organization in
 * which the other is a member; an unknown id is `not_found` for everybody. A domain is verified only by a record whose value is derived
 * from the account, the domain and the challenge with a key of ours, so that one account's record proves nothing for another. The value is
 * stored nowhere. Certifications are decided by configured staff alone.
 */
import { randomUUID } from 'node:crypto';
import { coded, CodedError } from '../../../contracts/errors.ts';
import { idOf } from '../../../contracts/ids.ts';
import { limits } from '../../../contracts/limits.ts';
import { organizationAddress, organizationReached } from '../../../contracts/organization-routes.ts';
import { organizationCommands } from '../../../contracts/organization.ts';
import { allows } from '../../../contracts/permissions.ts';
import { byOf, type Caller } from '../../../contracts/platform.ts';
import { signinCode, signinCommands } from '../../../contracts/signin.ts';
import { trustRoutes as routes } from '../../../contracts/trust-routes.ts';
import { certificationCommands, domainRecordLabel, type certificationAnswer, type verifyAnswer } from '../../../contracts/trust.ts';
import { userCommands } from '../../../contracts/user.ts';
import { endpointAllowance } from '../../allowance/address.ts';
import { certificationAddress } from '../../certification/address.ts';
import { administeredTogether } from '../../projections/trust.ts';
import { signinAddress } from '../../signin/address.ts';
import { userAddress } from '../../user/address.ts';
import type { z } from 'zod';
import { addressBlock } from './address.ts';
import { askBy } from './ask.ts';
import { current } from './audit.ts';
import { personOf, type UserCaller } from './callers.ts';
import type { PlatformDeps } from './deps.ts';
import { deriveKey, proofOf } from './derive.ts';
import type { HasTxt } from './dns.ts';
import { forCaller, type PlatformHandler, type PlatformHandlerRequest } from './serve.ts';
import { createTrustScores } from './trust-scores.ts';
import { bodyOf, queryOf } from './typed.ts';

export interface TrustHandlerDeps extends Pick<PlatformDeps, 'config' | 'masterKey' | 'actors' | 'projections' | 'allowances' | 'now' | 'newUlid'> {
  readonly hasTxt: HasTxt;
}

type Verified = Omit<z.output<typeof verifyAnswer>, 'newScore'>;
type Certification = Pick<z.output<typeof certificationCommands.submit.output>, 'certification_id' | 'status' | 'submitted_at'>;

const shownCertification = ({ certification_id, status, submitted_at }: Certification): z.output<typeof certificationAnswer> =>
  ({ certificationId: certification_id, status, estimatedReview: new Date(submitted_at + limits.certificationReviewMs).toISOString() });

export const trustHandlers = (deps: TrustHandlerDeps): Readonly<Record<string, PlatformHandler>> => {
  const { config, actors, projections, allowances, hasTxt } = deps;
  const scores = createTrustScores(deps);
  const askUser = askBy(actors, userCommands);
  const askSignin = askBy(actors, signinCommands);
  const askOrganization = askBy(actors, organizationCommands);
  const askCertification = askBy(actors, certificationCommands);
  const domainKey = deriveKey(deps.masterKey, 'trust domain');
  const staff: ReadonlySet<string> = new Set(config.staff ?? []);

  const isStaff = (caller: Caller): boolean => caller.kind === 'user' && (staff.has(caller.userId) || staff.has(caller.email));

  /** Whether the caller administers somebody by an organization. The rows name candidates, its actor says what is so. */
  const administers = async (request: PlatformHandlerRequest, person: UserCaller, userId: string): Promise<boolean> => {
    await current(deps, 'organizations', undefined);
    for (const id of await projections.read((sql) => administeredTogether(sql, person.userId, userId))) {
      try {
        const { members } = await askOrganization(organizationAddress(id), 'members', { by: byOf(person, request.context) });
        const role = members.find((member) => member.userId === person.userId)?.role;
        if (role !== undefined && allows(role, 'org.update') && members.some((member) => member.userId === userId)) return true;
      } catch (error) {
        // Deleted, or left, a moment ago.
        if (!(error instanceof CodedError) || error.code !== 'not_found') throw error;
      }
    }
    return false;
  };

  const verifyEmail = async (request: PlatformHandlerRequest, person: UserCaller, token: string): Promise<Verified> => {
    const refused = { verified: false, type: 'email' };
    const code = signinCode.safeParse(token);
    if (!code.success) return refused;
    await allowances.take({ ...endpointAllowance('signin-try', addressBlock(request.context.ip)), signal: request.signal });
    const { state } = await askSignin(signinAddress(person.email), 'verify', { code: code.data, from: addressBlock(request.context.ip) }, 'once');
    if (state !== 'verified') return refused;
    await askUser(userAddress(person.userId), 'verify_email', {}, 'once');
    return { verified: true, type: 'email' };
  };

  const recordOf = (userId: string, domain: string, id: string): { readonly name: string; readonly value: string } =>
    ({ name: `${domainRecordLabel}.${domain}`, value: `troupe-domain=${proofOf(domainKey, userId, domain, id).toString('base64url')}` });

  const challenge = async (request: PlatformHandlerRequest, person: UserCaller, domain: string): Promise<Verified> => {
    await allowances.take({ ...endpointAllowance('domain-look', person.userId), signal: request.signal });
    const { id } = await askUser(userAddress(person.userId), 'challenge_domain', { domain, id: deps.newUlid() }, 'once');
    return { verified: false, type: 'domain', txtRecord: recordOf(person.userId, domain, id) };
  };

  const confirm = async (request: PlatformHandlerRequest, person: UserCaller, domain: string): Promise<Verified> => {
    const refused = { verified: false, type: 'domain_confirm' };
    const address = userAddress(person.userId);
    const { id } = await askUser(address, 'domain_challenge', { domain });
    // Nothing is asked of DNS for what was never wanted.
    if (id === null) return refused;
    await allowances.take({ ...endpointAllowance('domain-look', person.userId), signal: request.signal });
    const { name, value } = recordOf(person.userId, domain, id);
    if (!await hasTxt(name, value)) return refused;
    const { known } = await askUser(address, 'confirm_domain', { domain, id }, 'once');
    return { verified: known, type: 'domain_confirm' };
  };

  const verify = async (request: PlatformHandlerRequest, person: UserCaller): Promise<Verified> => {
    const body = bodyOf(routes.verify, request);
    switch (body.type) {
      case 'email':
        return verifyEmail(request, person, body.token);
      case 'oauth': {
        const { identities } = await askUser(userAddress(person.userId), 'trust_facts', {});
        return { verified: identities.some((provider) => provider !== 'email'), type: 'oauth' };
      }
      case 'domain':
        return challenge(request, person, body.domain);
      case 'domain_confirm':
        return confirm(request, person, body.domain);
    }
  };

  return {
    [routes.trustScore.id]: forCaller(async (request) => {
      const { userId, agentId } = queryOf(routes.trustScore, request);
      if (agentId !== undefined) {
        await current(deps, 'sessions', undefined);
        return { status: 200, body: await scores.ofAgent(agentId, request.caller) };
      }
      const person = personOf(request.caller);
      const asked = userId ?? person.userId;
      const score = await scores.ofUser(asked);
      if (asked !== person.userId && !await administers(request, person, asked)) {
        throw coded('forbidden', 'Another person\'s score is for admins of an organization with that person.');
      }
      return { status: 200, body: score };
    }),

    [routes.verify.id]: forCaller(async (request) => {
      const person = personOf(request.caller);
      const verified = await verify(request, person);
      const { score } = await scores.ofUser(person.userId);
      return { status: 200, body: { ...verified, newScore: score } };
    }),

    [routes.certify.id]: forCaller(async (request) => {
      const { entityType, entityId, certType, evidence } = bodyOf(routes.certify, request);
      if (entityType === 'agent') await current(deps, 'sessions', undefined);
      const organizationId = entityType === 'organization' ? entityId : await scores.deployedBy(entityId);
      const by = byOf(request.caller, request.context);
      await askOrganization(organizationReached(request.caller, organizationId), 'authorise', { permission: 'org.update', by });
      await allowances.take({ ...endpointAllowance('certify', organizationId), signal: request.signal });
      const made = await actors.ask({
        address: certificationAddress(idOf('crt', deps.newUlid())), command: 'submit',
        input: { entity_type: entityType, entity_id: entityId, organization_id: organizationId, cert_type: certType, evidence, by },
        principal: { kind: 'system' }, id: randomUUID(), deadlineAt: request.deadlineAt, signal: request.signal,
      });
      return { status: 200, body: shownCertification(certificationCommands.submit.output.parse(made)) };
    }),

    [routes.certification.id]: forCaller(async (request) => {
      const found = await askCertification(certificationAddress(request.context.params?.[0] ?? ''), 'read', {});
      if (!isStaff(request.caller)) {
        await askOrganization(organizationReached(request.caller, found.organization_id), 'authorise', { permission: 'org.update', by: byOf(request.caller, request.context) });
      }
      const { entity_type: entityType, entity_id: entityId, cert_type: certType, evidence } = found;
      return { status: 200, body: { ...shownCertification(found), entityType, entityId, certType, evidence } };
    }),

    [routes.decide.id]: forCaller(async (request) => {
      if (!isStaff(request.caller)) throw coded('forbidden', 'Certifications are decided by the platform\'s staff.');
      const { decision, reason } = bodyOf(routes.decide, request);
      const input = { decision, ...(reason === undefined ? {} : { reason }), by: byOf(request.caller, request.context) };
      const decided = await askCertification(certificationAddress(request.context.params?.[0] ?? ''), 'decide', input, 'once');
      return { status: 200, body: shownCertification(decided) };
    }),
  };
};
