/** The sender of deliveries that the configuration asks for: the rules of production, or those of development. */
import type { DaemonConfig } from '../../contracts/config.ts';
import { isPrivateAddress } from './address.ts';
import { createPost, type Post } from './post.ts';
import { networkResolve, systemResolve } from './resolve.ts';

export interface OpenPostOptions {
  readonly config: DaemonConfig['webhooks'];
  /** Text of the file that `webhooks.ca_path` names. */
  readonly ca?: string | undefined;
}

/** For one process. Holds no connection. */
export const openPost = ({ config, ca }: OpenPostOptions): Post =>
  createPost(config.allow_private ? { resolve: systemResolve, refuses: () => false, ca } : { resolve: networkResolve(), refuses: isPrivateAddress, ca });
