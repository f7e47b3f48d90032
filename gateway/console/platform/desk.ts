/**
 * What every view of the console is given: the API, who is signed in, how to go elsewhere; and the two ways it talks to the server:
 * loading something to show, and an action. Both show errors plainly, and 401 anywhere ends in "you are not signed in".
 */
import { createContext } from 'preact';
import { useCallback, useContext, useEffect, useRef, useState } from 'preact/hooks';
import { CodedError, shown } from '../../../contracts/errors.ts';
import type { Api, Person } from '../api.ts';
import type { Keep } from './keep.ts';
import type { Place } from './place.ts';

export interface Desk {
  readonly api: Api;
  readonly person: Person;
  /** Whether the terms in force are accepted. */
  readonly legalAccepted: boolean;
  /** What stays for the length of the tab. */
  readonly keep: Keep;
  go(place: Place): void;
  /** Said to screen readers and shown at the foot for a moment. */
  say(text: string): void;
  /** Leaves the console for another address. */
  leave(address: string): void;
  /** Nobody is signed in here any more. */
  signedOut(): void;
  /** The caller's organizations or roles have changed. */
  refresh(): Promise<void>;
}

const context = createContext<Desk | undefined>(undefined);
export const DeskProvider = context.Provider;

export const useDesk = (): Desk => {
  const desk = useContext(context);
  if (desk === undefined) throw new TypeError('a view stands outside the console');
  return desk;
};

export interface Problem {
  readonly code: string;
  readonly message: string;
  /** The field of the request it is about, in the API's words. */
  readonly field: string | undefined;
}

const waitText = (details: CodedError['details']): string => {
  const seconds = details?.['retry_after'];
  return typeof seconds === 'number' ? ` (in ${Math.ceil(seconds)} seconds)` : '';
};

/** An error as it is shown. A bug of this page also reaches the browser's own log. */
export const problemOf = (error: unknown): Problem => {
  if (!(error instanceof CodedError)) reportError(error);
  const { code, message } = shown(error);
  const details = error instanceof CodedError ? error.details : undefined;
  const field = details?.['field'];
  return { code, message: `${message}${waitText(details)}`, field: typeof field === 'string' && field !== '' ? field : undefined };
};

export type Loaded<T> =
  | { readonly state: 'loading' }
  | { readonly state: 'ready'; readonly value: T }
  | { readonly state: 'failed'; readonly problem: Problem };

/** Loads once for each `key`; `reload` keeps showing what there is until the new answer is here. An answer that comes too late is dropped. */
export const useLoaded = <T>(key: string, load: () => Promise<T>): { readonly loaded: Loaded<T>; readonly reload: () => Promise<void>; readonly change: (to: (value: T) => T) => void } => {
  const desk = useDesk();
  const [held, setHeld] = useState<{ key: string; loaded: Loaded<T> }>({ key, loaded: { state: 'loading' } });
  const current = useRef(0);
  const run = useCallback(async (): Promise<void> => {
    const turn = ++current.current;
    const set = (loaded: Loaded<T>): void => { if (turn === current.current) setHeld({ key, loaded }); };
    try {
      set({ state: 'ready', value: await load() });
    } catch (error) {
      if (error instanceof CodedError && error.entry.http === 401) desk.signedOut();
      else set({ state: 'failed', problem: problemOf(error) });
    }
  }, [key]);
  useEffect(() => {
    void run();
    return () => { current.current += 1; };
  }, [run]);
  const change = (to: (value: T) => T): void => {
    setHeld((before) => (before.loaded.state === 'ready' ? { key: before.key, loaded: { state: 'ready', value: to(before.loaded.value) } } : before));
  };
  return { loaded: held.key === key ? held.loaded : { state: 'loading' }, reload: run, change };
};

export interface Action {
  readonly busy: boolean;
  readonly problem: Problem | undefined;
  /** Runs one at a time; resolves to whether it succeeded. */
  run(work: () => Promise<void>): Promise<boolean>;
  clear(): void;
}

/** `inWords`: says a problem as this form does. Once for each failure: a field takes the focus when its problem is a new one. */
export const useAction = (inWords: (problem: Problem) => Problem = (problem) => problem): Action => {
  const desk = useDesk();
  const [state, setState] = useState<{ busy: boolean; problem: Problem | undefined }>({ busy: false, problem: undefined });
  const running = useRef(false);
  return {
    ...state,
    clear: () => { setState({ busy: false, problem: undefined }); },
    run: async (work) => {
      if (running.current) return false;
      running.current = true;
      setState({ busy: true, problem: undefined });
      try {
        await work();
        setState({ busy: false, problem: undefined });
        return true;
      } catch (error) {
        if (error instanceof CodedError && error.entry.http === 401) desk.signedOut();
        setState({ busy: false, problem: inWords(problemOf(error)) });
        return false;
      } finally {
        running.current = false;
      }
    },
  };
};
