/** Asks actors as the system does, over NATS: for what only other parts of the product may do (plans), and to look at an actor's state. */
import { randomUUID } from 'node:crypto';
import { connect } from 'nats';
import { decodeAnswer, encodeOwnerRequest } from '../../actors/runtime/cluster/wire.ts';
import { limits } from '../../contracts/limits.ts';
import { ownerSubject, partitionOf, type ActorAddress } from '../../contracts/subjects.ts';

export interface SystemClient {
  /** Rejects with the actor's coded errors. */
  ask(address: ActorAddress, command: string, input: unknown): Promise<unknown>;
  close(): Promise<void>;
}

export const systemClient = async (at: { readonly nats: { readonly url: string } }): Promise<SystemClient> => {
  const nc = await connect({ servers: at.nats.url });
  return {
    ask: async (address, command, input) => {
      const data = encodeOwnerRequest({ input, principal: { kind: 'system' }, id: randomUUID(), deadlineMs: limits.askDeadlineMs });
      return decodeAnswer(await nc.request(ownerSubject(partitionOf(address, limits.partitions), address, command), data, { timeout: limits.askDeadlineMs }));
    },
    close: () => nc.close(),
  };
};
