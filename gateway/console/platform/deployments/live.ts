/** The journal of a session as it grows: told of what happens by the gateway's WebSocket, looked at from time to time where that is not to be had. */
import { useEffect, useState } from 'preact/hooks';
import { CodedError } from '../../../../contracts/errors.ts';
import { openSession } from '../../../client/session-stream.ts';
import { platformIdentity } from '../../identity.ts';
import { useDesk } from '../desk.ts';
import { Following, type Journal } from './following.ts';
import { branchQuery, readEvents, servicePath } from './services.ts';
import { sidOf } from './sid.ts';

/** `live`: told of at once; `looking`: looked at every few seconds. */
export type Watching = 'connecting' | 'live' | 'looking';

export interface Live extends Journal {
  readonly watching: Watching;
  /** Looks at once. */
  readonly look: () => void;
}

interface Watched {
  readonly org: string;
  readonly deployment: string;
  readonly session: string;
  readonly branch: string;
}

export const useLive = ({ org, deployment, session, branch }: Watched): Live => {
  const desk = useDesk();
  const { api } = desk;
  const [journal, setJournal] = useState<Journal>({ events: [], complete: false, full: false, problem: undefined });
  const [watching, setWatching] = useState<Watching>('connecting');
  const [look, setLook] = useState<() => void>(() => () => undefined);
  useEffect(() => {
    const path = servicePath(deployment, 'sessions', session, 'events');
    const following = new Following({
      page: async (after) => {
        try {
          return (await api.get(path, { ...branchQuery(branch), ...(after === undefined ? {} : { after }) }, readEvents)).events;
        } catch (error) {
          if (error instanceof CodedError && error.entry.http === 401) desk.signedOut();
          throw error;
        }
      },
      onChange: setJournal,
      later: (call, ms) => {
        const timer = setTimeout(call, ms);
        return () => { clearTimeout(timer); };
      },
      now: () => performance.now(),
    });
    setLook(() => () => { following.poke(); });
    let stream: { close(): void } | undefined;
    let left = false;
    const watch = async (): Promise<void> => {
      const [found, sid] = await Promise.all([platformIdentity(api, org, () => performance.now()), sidOf(deployment, session, branch)]);
      if (found.kind === 'nobody') throw new CodedError('unauthorized');
      const { token, renew } = found.identity;
      const connect = (): void => {
        if (left) return;
        let served = false;
        stream = openSession({
          url: location.origin, sid, token, WebSocket,
          onEvent: () => { following.poke(); },
          onState: (to) => {
            setWatching(to.kind === 'open' ? 'live' : to.kind === 'connecting' ? 'connecting' : 'looking');
            if (to.kind === 'open') {
              served = true;
              following.poke();
            }
            // The connection ended with its token: a new one is had, but not for a connection that never was of use.
            if (to.kind === 'closed' && to.error?.code === 'unauthorized' && served) {
              renew?.();
              connect();
            }
          },
        });
      };
      connect();
    };
    // Without the stream the page looks from time to time, and says so.
    watch().catch((error: unknown) => {
      setWatching('looking');
      if (!(error instanceof CodedError)) reportError(error);
    });
    return () => {
      left = true;
      following.close();
      stream?.close();
    };
  }, [api, org, deployment, session, branch]);
  return { ...journal, watching, look };
};
