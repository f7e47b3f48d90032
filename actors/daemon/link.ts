/**
 * The daemon's end of the link: every gateway that was admitted to the socket, what is announced to all of them, and the way
 * down (goaway, wait, close).
 *
 * Guarantee: at most `limits.linkPeersMax` gateways; after `drain` nothing new is served and what ran has been answered.
 * It does not admit peers (socket.ts, peer.ts) and does not know what routes do (serve.ts, hub.ts).
 */
import type { Socket } from 'node:net';
import { encodeFrame, frameType, linkVersion, type Hello } from '../../contracts/link.ts';
import { limits } from '../../contracts/limits.ts';
import { closeCodes } from '../../contracts/stream.ts';
import { LinkPeer, type PeerHandlers } from './link-peer.ts';
import type { Log } from './log.ts';

export interface LinkServerOptions {
  readonly release: string;
  /** Name of this host, told to gateways. */
  readonly host: string;
  /** Partitions of the cluster. */
  readonly partitions: number;
  readonly log: Log;
  readonly handlers: PeerHandlers;
  /** A gateway's socket has room again after it was full. */
  readonly onDrain?: (peer: LinkPeer) => void;
  /** Default `limits.linkHelloMs`. */
  readonly helloMs?: number;
  /** Default `limits.linkPingMs`. */
  readonly pingMs?: number;
}

export interface LinkServer {
  /** Serves an admitted, still paused socket. */
  accept(socket: Socket): void;
  /** Tells every gateway, now and later ones, what this daemon owns. */
  own(partitions: readonly number[]): void;
  readonly peers: ReadonlySet<LinkPeer>;
  /** Says goaway; resolves when every request has been answered. Streams run on. */
  drain(): Promise<void>;
  /** Ends every stream with 1001 and every connection; what was written leaves first. */
  close(): void;
}

export const createLinkServer = (options: LinkServerOptions): LinkServer => {
  const { log } = options;
  const peers = new Set<LinkPeer>();
  const self: Hello = {
    version: linkVersion, role: 'daemon', release: options.release, pid: process.pid, host: options.host, partitions: options.partitions,
  };
  let owned = encodeFrame(frameType.owns, 0, JSON.stringify({ partitions: [] }));
  let leaving = false;
  const idle = new Set<() => void>();

  const settled = (): void => {
    for (const peer of peers) if (peer.calls > 0) return;
    for (const resolve of idle) resolve();
    idle.clear();
  };

  return {
    peers,
    accept: (socket) => {
      if (peers.size >= limits.linkPeersMax) {
        log.warn({ peers: peers.size }, 'too many gateways, connection closed');
        socket.destroy();
        return;
      }
      const peer = new LinkPeer(socket, {
        self, log, handlers: options.handlers,
        helloMs: options.helloMs ?? limits.linkHelloMs,
        pingMs: options.pingMs ?? limits.linkPingMs,
        onReady: (ready) => ready.announce(owned),
        onEnd: (ended) => {
          peers.delete(ended);
          settled();
        },
        onIdle: settled,
        onDrain: (drained) => options.onDrain?.(drained),
      });
      peers.add(peer);
      if (leaving) peer.leave('draining');
    },
    own: (partitions) => {
      owned = encodeFrame(frameType.owns, 0, JSON.stringify({ partitions }));
      for (const peer of peers) peer.announce(owned);
    },
    drain: () => {
      leaving = true;
      for (const peer of peers) peer.leave('draining');
      return new Promise((resolve) => {
        idle.add(resolve);
        settled();
      });
    },
    close: () => {
      for (const peer of peers) {
        peer.closeStreams(closeCodes.going_away.code, closeCodes.going_away.reason);
        peer.close();
      }
    },
  };
};
