/** An organization's actor over memory stores, with a clock the test moves, its mails in a list and its erasure in the test's hands. */
import { z } from 'zod';
import { name } from '../../actors/name/name.ts';
import { organization } from '../../actors/organization/organization.ts';
import type { Mail } from '../../actors/mail/mailer.ts';
import { webhook } from '../../actors/webhook/webhook.ts';
import { CodedError } from '../../contracts/errors.ts';
import { organizationCommands } from '../../contracts/organization.ts';
import type { Role } from '../../contracts/permissions.ts';
import type { By } from '../../contracts/platform.ts';
import { inboxSubject, partitionOf } from '../../contracts/subjects.ts';
import { codeOf, createCluster, createHost, domainOf, partitions, type Cluster, type Host } from './memory-host.ts';

export const orgId = 'org_01jd0000000000000000000000';
export const address = { org: orgId, type: 'organization', key: orgId };

type Commands = typeof organizationCommands;
export type Asked<K extends keyof Commands> = z.output<Commands[K]['output']>;

/** A person: id, e-mail and name of one word. */
export const person = (who: string): By => ({ actor: `usr_${who}`, email: `${who}@example.com`, name: who, ip: '192.0.2.1', user_agent: 'test' });
export const asKey = (id: string, scopes: readonly string[]): By => ({ actor: id, scopes: [...scopes], ip: '192.0.2.2', user_agent: 'key' });

export interface OrganizationActor {
  readonly cluster: Cluster;
  readonly host: Host;
  readonly mails: Mail[];
  /** Code a mail fails with from now on; undefined = they are sent. */
  mailFails: string | undefined;
  /** Code an ask of a name's actor fails with from now on. */
  nameFails: string | undefined;
  /** Asks of a name's actor wait for it. */
  nameGate: Promise<void> | undefined;
  /** Tells are never sent from now on, as by a host that dies. */
  tellsLost: boolean;
  /** Erasures begun; each waits for the test to end it. */
  readonly erasures: { readonly orgId: string; end(error?: Error): void }[];
  /** Passes of retention begun; each waits for the test to end it. */
  readonly retentions: { readonly days: number; readonly end: (outcome: Error | { readonly more: boolean }) => void }[];
  ask<K extends keyof Commands>(command: K, input: z.input<Commands[K]['input']>): Promise<Asked<K>>;
  /** The code a command is refused with. */
  refused<K extends keyof Commands>(command: K, input: z.input<Commands[K]['input']>): Promise<string>;
  /** Made by `owner`; gives the members that join, all by invitation. */
  found(members?: Readonly<Record<string, Exclude<Role, 'owner'>>>): Promise<void>;
  events(): string[];
  /** A further host with the next epoch, as after a crash of the one before. */
  restart(): OrganizationActor;
  /** Resolves when what was begun (effects, tells) has settled. */
  quiet(): Promise<void>;
}

export const organizationActor = (cluster: Cluster = createCluster(), epoch = 1, mails: Mail[] = [], erasures: OrganizationActor['erasures'] = [], retentions: OrganizationActor['retentions'] = []): OrganizationActor => {
  const deps = {
    mailer: {
      send: async (mail: Mail): Promise<void> => {
        if (self.mailFails !== undefined) throw new CodedError(self.mailFails);
        mails.push(mail);
      },
    },
    invitationLink: (id: string, invitation: string) => `https://troupe.example/invite?token=${id}.${invitation}.secret`,
    now: () => cluster.clock.now(),
    erase: (id: string) => new Promise<void>((resolve, reject) => {
      erasures.push({ orgId: id, end: (error) => (error === undefined ? resolve() : reject(error)) });
    }),
    retain: (_id: string, days: number) => new Promise<{ readonly more: boolean }>((resolve, reject) => {
      retentions.push({ days, end: (outcome) => (outcome instanceof Error ? reject(outcome) : resolve(outcome)) });
    }),
  };
  const hooks = webhook({ post: async () => ({ ok: true, status: 200 }), secret: () => 'whsec_test', now: () => cluster.clock.now() });
  const host: Host = createHost(cluster, {
    definitions: [organization(deps), name(), hooks], epoch,
    sender: {
      ask: async (message) => {
        if (message.address.type === 'name' && self.nameFails !== undefined) throw new CodedError(self.nameFails);
        if (message.address.type === 'name') await self.nameGate;
        return host.engine.deliver(message);
      },
      tell: async (target, command, input, id) => {
        if (self.tellsLost) await new Promise<never>(() => undefined);
        await cluster.stores.inbox.send(inboxSubject(partitionOf(target, partitions), target, command), id, Buffer.from(JSON.stringify(input)));
      },
    },
  });
  const ask: OrganizationActor['ask'] = async (command, input) =>
    organizationCommands[command].output.parse(await host.ask(address, command, input)) as Asked<typeof command>;
  const self: OrganizationActor = {
    cluster, host, mails, erasures, retentions, mailFails: undefined, nameFails: undefined, nameGate: undefined, tellsLost: false, ask,
    refused: (command, input) => codeOf(host.ask(address, command, input)),
    found: async (members = {}) => {
      await ask('create', { name: 'Acme', slug: 'acme', default_model: 'mock', by: person('owner') });
      for (const [who, role] of Object.entries(members)) {
        await ask('invite', { id: `inv_${who}`, email: `${who}@example.com`, role, by: person('owner') });
        await ask('accept', { invitation_id: `inv_${who}`, by: person(who) });
      }
    },
    events: () => domainOf(cluster, address),
    restart: () => {
      host.engine.close();
      return organizationActor(cluster, epoch + 1, mails, erasures, retentions);
    },
    quiet: async () => {
      // Effects and their ends are turns of the same actor: what is asked after them is answered after them.
      for (let turns = 0; turns < 8; turns++) {
        await new Promise((resolve) => { setImmediate(resolve); });
        await host.deliverTells();
      }
    },
  };
  return self;
};
