/** What the handlers of a deployment's services share: types only, so that each handler file needs no other. */
import type { DeploymentCaller } from '../../../contracts/deployment.ts';
import type { RequestContext } from '../../../contracts/platform.ts';
import type { Blobs } from '../../blobs/blobs.ts';
import type { BlobStore } from '../../blobs/store.ts';
import type { KnowledgeReader } from '../../knowledge/reader.ts';
import type { Shelves } from '../../knowledge/shelf.ts';
import type { Projections } from '../../projections/projections.ts';
import type { Registry } from '../../providers/registry.ts';
import type { Sender } from '../../runtime/message.ts';
import type { Upcast } from '../frames.ts';
import type { Log } from '../log.ts';
import type { PlatformResult } from '../platform/serve.ts';
import type { StreamAnswer } from '../platform/stream-answer.ts';
import type { TailSource } from '../tail.ts';

/** A request whose credential was verified. */
export interface DeploymentRequest<Who extends DeploymentCaller | undefined = DeploymentCaller> {
  readonly caller: Who;
  readonly context: RequestContext;
  /** Parsed by the route's schemas. */
  readonly query: unknown;
  readonly body: unknown;
  readonly signal: AbortSignal;
  /** As `performance.now()`; of a streamed answer none. */
  readonly deadlineAt?: number | undefined;
}

export type DeploymentHandler = (request: DeploymentRequest) => Promise<PlatformResult>;
/** For routes without a credential. */
export type OpenHandler = (request: DeploymentRequest<undefined>) => Promise<PlatformResult>;
/** Resolves when the answer has ended. */
export type DeploymentStreamHandler = (request: DeploymentRequest, answer: StreamAnswer) => Promise<void>;

/** Handlers of one subject (one file), by route id. */
export interface DeploymentHandlers {
  readonly plain?: Readonly<Record<string, DeploymentHandler>>;
  readonly open?: Readonly<Record<string, OpenHandler>>;
  readonly streams?: Readonly<Record<string, DeploymentStreamHandler>>;
}

export interface DeploymentDeps {
  readonly actors: Pick<Sender, 'ask'>;
  readonly registry: Registry;
  readonly tails: TailSource;
  /** Attachments of chats. */
  readonly blobs: Pick<Blobs, 'put' | 'get'>;
  readonly deploymentBlobs: BlobStore;
  /** Searches deployments' documents, and where their texts lie. */
  readonly knowledge: { readonly reader: KnowledgeReader; readonly shelves: Shelves };
  /** Of sessions' events. */
  readonly upcast: Upcast;
  readonly projections: Projections;
  readonly log: Log;
  /** Unix milliseconds. */
  readonly now: () => number;
  readonly newUlid: () => string;
}
