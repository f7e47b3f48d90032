/** What actors of the platform reach beyond the cluster, opened from the configuration: mail, receivers of webhooks, derived secrets, an organization's data. */
import type { DaemonConfig } from '../../../contracts/config.ts';
import type { PlatformActorDeps } from '../../definitions.ts';
import { openMailer } from '../../mail/open.ts';
import { coded } from '../../../contracts/errors.ts';
import type { DeploymentDeps } from '../../deployment/work.ts';
import type { Erase } from '../../organization/erasure.ts';
import type { Retain } from '../../organization/retention.ts';
import type { Processor } from '../../payments/stripe.ts';
import { openPost } from '../../webhook/open.ts';
import { webhookSecret } from '../../webhook/signature.ts';
import type { Secrets } from '../config.ts';
import type { Log } from '../../runtime/log.ts';
import { createInvitationTokens } from './organization-tokens.ts';
import { createSigninCodes } from './signin-code.ts';

export interface OutsideOptions {
  readonly config: Pick<DaemonConfig, 'mail' | 'platform' | 'webhooks' | 'deployments'>;
  readonly secrets: Pick<Secrets, 'masterKey' | 'smtpPassword' | 'smtpCa' | 'webhookCa'>;
  readonly log: Log;
  /** Erases what a deleted organization has. */
  readonly erase: Erase;
  /** Deletes sessions that are older than an organization keeps them. */
  readonly retain: Retain;
  /** Puts down and erases what a deployment has. */
  readonly remains: DeploymentDeps;
  readonly processor: Pick<Processor, 'cancel'> | undefined;
}

export interface Outside {
  readonly deps: PlatformActorDeps;
  /** Ends the connections to the mail server. */
  close(): void;
}

/** Opens no connection yet. */
export const openOutside = ({ config, secrets, log, erase, retain, remains, processor }: OutsideOptions): Outside => {
  const now = Date.now;
  const mailer = openMailer({ config: config.mail, password: secrets.smtpPassword, ca: secrets.smtpCa, log, now });
  const invitations = createInvitationTokens(secrets.masterKey);
  const page = `${config.platform?.base_url ?? ''}/invite`;
  return {
    deps: {
      payments: { cancel: processor?.cancel ?? (() => Promise.reject(coded('payment_error', 'No payment processor is configured.'))) },
      signin: { mailer, codeOf: createSigninCodes(secrets.masterKey) },
      organization: { mailer, erase, retain, now, invitationLink: (orgId, invitationId) => `${page}?token=${invitations.make(orgId, invitationId)}` },
      deployment: { ...remains, modeHoldMs: config.deployments.mode_hold_ms },
      webhook: { post: openPost({ config: config.webhooks, ca: secrets.webhookCa }), secret: (orgId, version) => webhookSecret(secrets.masterKey, orgId, version), now },
    },
    close: () => mailer.close(),
  };
};
