/** A gateway's link and a scripted daemon at its other end, both ended with the test. */
import type { TestContext } from 'node:test';
import { CodedError } from '../../contracts/errors.ts';
import { routes } from '../../contracts/routes.ts';
import { connectLink, type Link, type LinkOpen, type LinkOptions, type LinkStream } from '../../gateway/link.ts';
import { startPeer, type Peer, type PeerOptions } from './peer.ts';

export const silent = { debug: () => undefined, info: () => undefined, warn: () => undefined };

export const started = async (t: TestContext, options: PeerOptions = {}): Promise<Peer> => {
  const peer = await startPeer(options);
  t.after(() => peer.stop());
  return peer;
};

export const linked = (t: TestContext, socketPath: string, options: Partial<LinkOptions> = {}): Link => {
  const link = connectLink({ socketPath, release: 'test', log: silent, rescanMs: 20, ...options });
  t.after(() => link.close());
  return link;
};

/** Resolves when the link has exactly that many ready daemons. */
export const connected = (link: Link, count: number): Promise<void> =>
  new Promise((resolve) => {
    if (link.state().connected === count) {
      resolve();
      return;
    }
    const stop = link.onState((state) => {
      if (state.connected !== count) return;
      stop();
      resolve();
    });
  });

export const pair = async (t: TestContext, peerOptions: PeerOptions = {}, linkOptions: Partial<LinkOptions> = {}): Promise<{ peer: Peer; link: Link }> => {
  const peer = await started(t, peerOptions);
  const link = linked(t, peer.socketPath, linkOptions);
  await connected(link, 1);
  return { peer, link };
};

export const ask = { token: 'token', body: '{"n":1}' };
export const hasCode = (code: string) => (error: unknown): boolean => error instanceof CodedError && error.code === code;

/** An open stream whose texts and end can be awaited. */
export const opened = (link: Link, options: Partial<LinkOpen> = {}) => {
  const texts: string[] = [];
  const waits: { count: number; resolve: () => void }[] = [];
  const end = Promise.withResolvers<{ code: number; reason: string }>();
  const stream: LinkStream = link.open(routes.stream, {
    token: 'token', body: '{"sid":"s"}',
    onTexts: (views) => {
      for (const view of views) texts.push(view.toString('utf8'));
      for (const wait of waits) if (texts.length >= wait.count) wait.resolve();
    },
    onClose: (code, reason) => end.resolve({ code, reason }),
    ...options,
  });
  const received = (count: number): Promise<void> => (texts.length >= count ? Promise.resolve() : new Promise((resolve) => waits.push({ count, resolve })));
  return { stream, texts, received, ended: end.promise };
};
