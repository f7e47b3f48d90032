/**
 * The chat page: a conversation with a model of the installation over `/api/chat`, paid by an organization or by the person's own workspace.
 *
 * Guarantee: what was said is kept for the tab whenever an answer ends and when the page goes, so a reload shows it; an answer that was under way
 * then is shown as far as it came. Leaving the view ends the answer that is under way.
 */
import type { VNode } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { allows } from '../../../../contracts/roles.ts';
import { limits } from '../../../../contracts/limits.ts';
import { fields, list, text } from '../../read.ts';
import { useDesk, useLoaded } from '../desk.ts';
import { Button, Failed, Select, Waiting } from '../form.tsx';
import type { Listed } from '../resources.ts';
import { TurnShown } from './answer.tsx';
import { readTalk } from './part.ts';
import { speak, type Speaking } from './speak.ts';
import { afterReload, again, asked, decided, goesOn, isDecided, type Talk } from './talk.ts';

const modelList = fields({ data: list(fields({ id: text })) });
const personal = 'personal';

const Composer = ({ busy, disabled, onSend, onStop }: { busy: boolean; disabled: boolean; onSend: (text: string) => void; onStop: () => void }): VNode => {
  const [written, setWritten] = useState('');
  const send = (): void => {
    if (busy || disabled || written.trim() === '') return;
    onSend(written.trim());
    setWritten('');
  };
  return (
    <form class="composer" aria-label="Message" onSubmit={(event) => { event.preventDefault(); send(); }}>
      <label for="message">Message</label>
      <div class="row">
        <textarea
          id="message" name="message" rows={2} value={written} aria-describedby="message-keys" onInput={({ currentTarget }) => { setWritten(currentTarget.value); }}
          onKeyDown={(event) => {
            if (event.key === 'Escape' && busy) onStop();
            // While an input method composes, Enter belongs to it.
            if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            send();
          }}
        />
        {busy ? <Button class="danger" onClick={onStop}>Stop</Button> : <button aria-disabled={disabled || written.trim() === ''}>Send</button>}
      </div>
      <p class="hint" id="message-keys">Enter sends, Shift+Enter makes a new line, Escape stops the answer.</p>
    </form>
  );
};

const Conversation = ({ models, organizations, start }: { models: readonly string[]; organizations: readonly Listed[]; start: string | undefined }): VNode => {
  const desk = useDesk();
  const name = `chat.${desk.person.id}`;
  const payers = [...organizations.filter(({ role }) => allows(role, 'chat.create')).map(({ id }) => id), personal];
  const [talk, setTalk] = useState<Talk>(() => afterReload(readTalk(desk.keep.read(name))));
  const [model, setModel] = useState(() => [talk.at(-1)?.model, models[0]].find((id) => id !== undefined && models.includes(id)) ?? '');
  const [payer, setPayer] = useState(() => [start, desk.keep.read(`${name}.payer`), payers[0]].find((id) => id !== undefined && payers.includes(id)) ?? personal);
  const [speaking, setSpeaking] = useState<Speaking>();
  const [notice, setNotice] = useState('');
  const [kept, setKept] = useState(true);
  const latest = useRef(talk);
  const under = useRef<Speaking | undefined>(undefined);
  const end = useRef<HTMLDivElement>(null);
  const busy = speaking !== undefined;

  const show = (next: Talk): void => {
    latest.current = next;
    setTalk(next);
  };
  const leaving = useRef(false);
  const keep = (): boolean => leaving.current || desk.keep.write(name, JSON.stringify(latest.current));
  useEffect(() => {
    // The page that goes breaks its own connection, which is no failure to remember: what was under way before that counts.
    const leave = (): void => {
      keep();
      leaving.current = true;
    };
    const stay = (): void => { leaving.current = false; };
    const when = [['beforeunload', leave], ['pagehide', leave], ['pageshow', stay]] as const;
    for (const [event, listener] of when) addEventListener(event, listener);
    return () => {
      for (const [event, listener] of when) removeEventListener(event, listener);
      keep();
      under.current?.stop();
    };
  }, []);
  const waits = talk.at(-1)?.end.kind === 'waiting';
  // Who has scrolled away to read is left there, unless a decision is needed.
  useEffect(() => {
    const fromEnd = document.documentElement.scrollHeight - innerHeight - scrollY;
    if ((busy && fromEnd < 200) || waits) end.current?.scrollIntoView({ block: 'end' });
  }, [talk, busy, waits]);

  const run = (next: Talk): void => {
    leaving.current = false;
    show(next);
    setNotice('Answering …');
    const now = speak(desk.api, next, payer, show);
    under.current = now;
    setSpeaking(now);
    void now.done.then((finished) => {
      // The view may be gone, or the person has begun anew.
      if (under.current !== now) return;
      under.current = undefined;
      setSpeaking(undefined);
      show(finished);
      setKept(keep());
      const kind = finished.at(-1)?.end.kind;
      setNotice(kind === 'complete' ? 'Answer complete.' : kind === 'waiting' ? 'Your approval is needed.' : kind === 'failed' ? '' : 'The answer has ended.');
    });
  };
  const decide = (id: string, allowed: boolean): void => {
    const next = decided(latest.current, id, allowed);
    const turn = next.at(-1);
    if (turn !== undefined && isDecided(turn)) run(goesOn(next));
    else show(next);
  };
  const beginAnew = (): void => {
    under.current?.stop();
    under.current = undefined;
    setSpeaking(undefined);
    show([]);
    setKept(keep());
    setNotice('A new conversation.');
    document.getElementById('message')?.focus();
  };
  const named = (id: string): string => organizations.find((organization) => organization.id === id)?.name ?? 'Your own workspace';
  const org = payer === personal ? undefined : payer;
  const full = talk.length >= limits.clientEntriesMax;
  return (
    <section class="card talk" aria-labelledby="conversation">
      <h2 id="conversation" class="hidden">Conversation</h2>
      <div class="choices">
        <Select label="Model" name="model" value={model} options={models} onChange={setModel} />
        <Select
          label="Paid by" name="payer" value={payer} options={payers} named={named}
          onChange={(chosen) => {
            setPayer(chosen);
            desk.keep.write(`${name}.payer`, chosen);
          }}
        />
        <Button onClick={beginAnew}>New conversation</Button>
      </div>
      {talk.length === 0 && <p class="hint">Ask something. What is said here stays in this tab until you close it, begin anew or sign out.</p>}
      <div class="turns" role="log" aria-live="off" aria-label="Conversation">
        {talk.map((turn, at) => {
          const open = at === talk.length - 1 && !busy;
          return <TurnShown key={at} turn={turn} org={org} onDecide={open ? decide : undefined} onAgain={open ? () => { run(again(latest.current, model)); } : undefined} />;
        })}
      </div>
      {!kept && <p class="alert asked" role="status">This conversation is too long for the browser to keep: a reload would lose it.</p>}
      {full && <p class="alert asked" role="status">This conversation has become too long. Begin a new one.</p>}
      <Composer busy={busy} disabled={model === '' || full} onSend={(question) => { run(asked(latest.current, question, model)); }} onStop={() => { under.current?.stop(); }} />
      <p class="hint" role="status">{notice}</p>
      <div ref={end} />
    </section>
  );
};

/** `org`: of the address; it pays unless another payer is chosen. */
export const Chat = ({ organizations, org }: { organizations: readonly Listed[]; org: string | undefined }): VNode => {
  const desk = useDesk();
  const { loaded, reload } = useLoaded('models', () => desk.api.get('/api/v1/models', {}, modelList));
  if (loaded.state === 'loading') return <Waiting what="models" />;
  if (loaded.state === 'failed') return <Failed problem={loaded.problem} onRetry={() => { void reload(); }} />;
  const models = loaded.value.data.map(({ id }) => id);
  if (models.length === 0) return <p class="alert" role="alert">This installation has no model to chat with. Its operator sets them up (`models` in the daemon's configuration).</p>;
  return <Conversation models={models} organizations={organizations} start={org} />;
};
