/** The journal around the event one looks at, and that event as it stands there. */
import type { VNode } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { limits } from '../../../../contracts/limits.ts';
import type { Envelope } from './services.ts';
import { summaryOf } from './transcript.ts';

const clock = (at: number): string => new Date(at).toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const shortMax = 80;
const short = (text: string): string => (text.length > shortMax ? `${text.slice(0, shortMax)}…` : text);

/** `shown`: how many events one looks at; the last of them is the event. */
export const JournalPanel = ({ events, shown, onGo }: { events: readonly Envelope[]; shown: number; onGo: (shown: number) => void }): VNode => {
  const from = Math.max(0, Math.min(shown - Math.ceil(limits.inspectorRowsMax / 2), events.length - limits.inspectorRowsMax));
  const here = events[shown - 1];
  const list = useRef<HTMLOListElement>(null);
  useLayoutEffect(() => {
    const row = list.current?.querySelector<HTMLElement>('[aria-current]');
    if (list.current === null || row === null || row === undefined) return;
    // The list scrolls, the page does not.
    const below = row.offsetTop - list.current.offsetTop;
    if (below < list.current.scrollTop || below + row.offsetHeight > list.current.scrollTop + list.current.clientHeight) list.current.scrollTop = below - list.current.clientHeight / 2;
  }, [shown, events.length]);
  return (
    <section class="card" aria-labelledby="journal">
      <h2 id="journal">Journal</h2>
      <ol ref={list} class="journal" start={from + 1}>
        {events.slice(from, from + limits.inspectorRowsMax).map((event, index) => {
          const number = from + index + 1;
          return (
            <li key={event.id}>
              <button type="button" class="line" aria-current={number === shown ? 'true' : undefined} onClick={() => { onGo(number); }}>
                <span class="mono">{number}</span> <span>{event.kind}</span> <span class="hint">{short(summaryOf(event))}</span> <span class="hint mono">{clock(event.timestamp)}</span>
              </button>
            </li>
          );
        })}
      </ol>
      {here !== undefined && (
        <details>
          <summary>Event {shown}: {here.kind}</summary>
          <p class="hint"><code>{here.id}</code></p>
          <pre tabIndex={0} aria-label={`Payload of event ${shown}`}><code>{JSON.stringify(here.payload, null, 2)}</code></pre>
        </details>
      )}
    </section>
  );
};
