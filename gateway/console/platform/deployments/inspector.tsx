/**
 * The session inspector: what happens in a session while it happens, and at any event of its past. One place in time (the slider) rules
 * everything on the page: conversation, journal, state, where a branch begins. At the end it follows what comes.
 */
import type { VNode } from 'preact';
import { useEffect, useId, useMemo, useState } from 'preact/hooks';
import type { Deployment } from '../../../../contracts/deployment.ts';
import { limits } from '../../../../contracts/limits.ts';
import { allows } from '../../../../contracts/roles.ts';
import { fields, flag } from '../../read.ts';
import { useAction, useDesk } from '../desk.ts';
import { Button, ProblemText, Select, Waiting } from '../form.tsx';
import type { Listed } from '../resources.ts';
import { Branches } from './branches.tsx';
import { Conversation } from './conversation.tsx';
import { JournalPanel } from './journal.tsx';
import { useLive, type Watching } from './live.ts';
import { nextStop, speeds, type Speed } from './replay.ts';
import { branchQuery, mainBranch, servicePath, type Envelope } from './services.ts';
import { StatePanel } from './state.tsx';
import { To } from './to.tsx';
import { isRunning, transcriptOf } from './transcript.ts';

const watchingWords: Readonly<Record<Watching, string>> = {
  connecting: 'Connecting …', live: 'Live: new events come as they happen', looking: `Not connected: looking every ${limits.inspectorLookMs / 1_000} seconds`,
};

const Time = ({ events, shown, onGo, onEnd }: { events: readonly Envelope[]; shown: number; onGo: (shown: number, playing?: boolean) => void; onEnd: () => void }): VNode => {
  const id = useId();
  const [speed, setSpeed] = useState<Speed>('1×');
  const [playing, setPlaying] = useState(false);
  useEffect(() => {
    if (!playing) return;
    const stop = nextStop(events, shown, speed);
    if (stop === undefined) {
      setPlaying(false);
      onEnd();
      return;
    }
    const timer = setTimeout(() => { onGo(stop.shown, true); }, stop.afterMs);
    return () => { clearTimeout(timer); };
  }, [playing, shown, speed, events.length]);
  const go = (to: number): void => {
    setPlaying(false);
    onGo(Math.max(1, Math.min(events.length, to)));
  };
  const here = events[shown - 1];
  return (
    <section class="card time" aria-label="Time">
      <label for={id}>Event {shown} of {events.length}{here === undefined ? '' : `: ${here.kind}`}</label>
      <input
        id={id} type="range" min={1} max={Math.max(1, events.length)} step={1} value={shown} aria-valuetext={`${shown} of ${events.length}${here === undefined ? '' : `, ${here.kind}`}`}
        onInput={(event) => { go(event.currentTarget.valueAsNumber); }}
      />
      <div class="choices">
        <p class="actions">
          <Button onClick={() => { go(1); }}>First</Button>
          <Button onClick={() => { go(shown - 1); }}>Previous</Button>
          <Button
            class="" onClick={() => {
              // Paused, the state of the event is worth asking for.
              if (playing) onGo(shown);
              else if (shown >= events.length) onGo(1, true);
              setPlaying(!playing);
            }}
          >
            {playing ? 'Pause' : 'Replay'}
          </Button>
          <Button onClick={() => { go(shown + 1); }}>Next</Button>
          <Button
            onClick={() => {
              setPlaying(false);
              onEnd();
            }}
          >
            Latest
          </Button>
        </p>
        <Select label="Replay speed" name="speed" value={speed} options={speeds} onChange={setSpeed} />
      </div>
    </section>
  );
};

const Stop = ({ deployment, session, branch, onStopped }: { deployment: string; session: string; branch: string; onStopped: () => void }): VNode => {
  const desk = useDesk();
  const action = useAction();
  const stop = (): void => {
    void action.run(async () => {
      await desk.api.send('POST', servicePath(deployment, 'sessions', session, 'cancel'), branchQuery(branch), fields({ cancelled: flag }));
      desk.say('The turn was told to stop');
      onStopped();
    });
  };
  return <><Button class="cancel" busy={action.busy} onClick={stop}>Stop the turn</Button><ProblemText problem={action.problem} /></>;
};

interface InspectorProps {
  readonly organization: Listed;
  readonly deployment: Deployment;
  readonly session: string;
  readonly branch: string;
}

export const Inspector = ({ organization, deployment: { id: deployment }, session, branch }: InspectorProps): VNode => {
  const { events, complete, full, problem, watching, look } = useLive({ org: organization.id, deployment, session, branch });
  /** Undefined: at the end, wherever that is. */
  const [place, setPlace] = useState<{ readonly shown: number; readonly playing: boolean }>();
  const shown = place?.shown ?? events.length;
  const items = useMemo(() => transcriptOf(events.slice(0, shown)), [events, shown]);
  const atEnd = place === undefined || shown === events.length;
  const running = useMemo(() => isRunning(events), [events]);
  const mayWrite = allows(organization.role, 'chat.create');
  const event = events[shown - 1];
  return (
    <div class="inspector">
      <div class="head">
        <p><To org={organization.id} within={{ deployment, part: 'sessions' }}>Sessions</To></p>
        <h2>{session}{branch !== mainBranch && ` › ${branch}`}</h2>
        <p class={`hint watching ${watching}`} role="status">{watchingWords[watching]}</p>
        <span class="tag">{running ? 'a turn runs' : 'at rest'}</span>
        {running && mayWrite && <Stop deployment={deployment} session={session} branch={branch} onStopped={look} />}
      </div>
      <ProblemText problem={problem} />
      {full && <p class="alert asked">This page takes {limits.inspectorEventsMax} events; the session may have more.</p>}
      {!complete && <Waiting what="the journal" />}
      {events.length > 0 && (
        <>
          <Time events={events} shown={shown} onGo={(to, playing = false) => { setPlace({ shown: to, playing }); }} onEnd={() => { setPlace(undefined); }} />
          <div class="panes">
            <div class="pane">
              <Conversation items={items} decides={atEnd && mayWrite ? { deployment, session, branch, onDecided: look } : undefined} />
              <StatePanel deployment={deployment} session={session} branch={branch} event={event} number={shown} resting={place?.playing !== true} />
            </div>
            <div class="pane">
              <JournalPanel events={events} shown={shown} onGo={(to) => { setPlace({ shown: to, playing: false }); }} />
              <Branches organization={organization} deployment={deployment} session={session} branch={branch} event={event} number={shown} running={running} />
            </div>
          </div>
        </>
      )}
    </div>
  );
};
