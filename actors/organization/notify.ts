/** What an organization tells its webhook (contracts/webhook.ts): durable, at least once in effect once, and nothing without a URL. */
import { idOf } from '../../contracts/ids.ts';
import { limits } from '../../contracts/limits.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';
import type { WebhookType } from '../../contracts/webhook.ts';
import type { OrganizationTurn } from './turn.ts';

/** The actor that delivers an organization's webhook. */
export const webhookAddress = (organizationId: string): ActorAddress => ({ org: organizationId, type: 'webhook', key: organizationId });

/** A durable tell that its host did not come to send is sent by the next activation: this makes one. */
const wake = (turn: OrganizationTurn): void => turn.remind('tells', { inMs: limits.organizationWakeMs });

/** Tells of a change that this turn has emitted. */
export const notify = (turn: OrganizationTurn, type: WebhookType, data: Readonly<Record<string, unknown>>): void => {
  if (turn.state.phase !== 'live' || turn.state.settings.webhookUrl === null) return;
  // With the address: this tell may overtake the one that sets it.
  const target = { url: turn.state.settings.webhookUrl, revision: turn.state.webhook_revision };
  turn.tell(webhookAddress(turn.self.key), 'notify', { id: idOf('evt', turn.newId()), type, created: new Date(turn.now).toISOString(), data, target });
  wake(turn);
};

/** Tells the URL as it is now. `revision` keeps an older tell from winning over a later one. */
export const configure = (turn: OrganizationTurn): void => {
  if (turn.state.phase !== 'live') return;
  turn.tell(webhookAddress(turn.self.key), 'configure', { url: turn.state.settings.webhookUrl, revision: turn.state.webhook_revision });
  wake(turn);
};
