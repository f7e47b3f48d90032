/** The actor types of this product. A host runs exactly these; a new type is one folder and one line here. */
import { agent } from './agent/agent.ts';
import { allowance } from './allowance/allowance.ts';
import { certification } from './certification/certification.ts';
import { completion } from './completion/completion.ts';
import { custody } from './custody/custody.ts';
import { deployment } from './deployment/deployment.ts';
import type { DeploymentDeps } from './deployment/work.ts';
import { device } from './device/device.ts';
import { knowledge } from './knowledge/knowledge.ts';
import { name } from './name/name.ts';
import { organization, type OrganizationDeps } from './organization/organization.ts';
import { payments, type PaymentsDeps } from './payments/payments.ts';
import { regulation } from './regulation/regulation.ts';
import type { ActorDefinition } from './runtime/define.ts';
import { session, type SessionDeps } from './session/session.ts';
import { signin, type SigninDeps } from './signin/signin.ts';
import { stream } from './stream/stream.ts';
import type { Tools } from './tools/tool.ts';
import { user } from './user/user.ts';
import { wallet } from './wallet/wallet.ts';
import { webhook, type WebhookDeps } from './webhook/webhook.ts';

/** What actors of the platform reach beyond the cluster: mail, receivers of webhooks, keys to derive from, data to erase. */
export interface PlatformActorDeps {
  readonly signin: SigninDeps;
  readonly organization: OrganizationDeps;
  readonly webhook: WebhookDeps;
  readonly payments: PaymentsDeps;
  readonly deployment: DeploymentDeps;
}

/** What the definitions need: the model registry, the tools, the blobs; idle time and instructions of sessions. */
export interface DefinitionDeps extends SessionDeps {
  /** Absent = no platform: no accounts, no organizations. */
  readonly platform?: PlatformActorDeps | undefined;
  /** Tools that run for `/api/chat`. Default none. */
  readonly chatTools?: Tools;
}

export const definitions = (deps: DefinitionDeps): readonly ActorDefinition[] => [
  session({ ...deps, metered: deps.platform !== undefined }), agent(), custody(), name(), allowance(), device(),
  ...(deps.platform === undefined ? [] : [completion({ ...deps, tools: deps.chatTools ?? new Map() }), ...platformDefinitions(deps.platform)]),
];

const platformDefinitions = (deps: PlatformActorDeps): readonly ActorDefinition[] => [
  user(), wallet(), certification(), regulation(), stream(), knowledge(), signin(deps.signin), organization(deps.organization), webhook(deps.webhook), payments(deps.payments), deployment(deps.deployment),
];
