/** Fields, buttons, dialogs and what is shown once. A field says its own error; a press that is at work cannot be pressed again. */
import type { ComponentChildren, VNode } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { useAction, type Action, type Problem } from './desk.ts';

export interface FieldProps {
  readonly label: string;
  /** As the form and, at its end, the API's `field` call it: `slug` also takes the error of `settings.slug`. */
  readonly name: string;
  readonly value: string;
  readonly onInput: (value: string) => void;
  readonly problem?: Problem | undefined;
  readonly hint?: string;
  /** What keyboard a phone shows. The form of a value is judged by the server alone. */
  readonly inputMode?: 'text' | 'email' | 'url' | 'numeric';
  readonly required?: boolean;
  readonly maxLength?: number;
  readonly placeholder?: string;
  readonly autocomplete?: 'off' | 'email';
  readonly spellcheck?: boolean;
}

/** Whether a problem is about this field. */
export const concerns = (problem: Problem | undefined, name: string): problem is Problem =>
  problem?.field !== undefined && (problem.field === name || problem.field.endsWith(`.${name}`));

export const Field = ({ label, name, value, onInput, problem, hint, ...rest }: FieldProps): VNode => {
  const id = useId();
  const mine = concerns(problem, name) ? problem : undefined;
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => { if (mine !== undefined) field.current?.focus(); }, [mine]);
  const described = [hint === undefined ? '' : `${id}-hint`, mine === undefined ? '' : `${id}-problem`].filter((part) => part !== '').join(' ');
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        {...rest} ref={field} id={id} name={name} type="text" value={value} onInput={(event) => { onInput(event.currentTarget.value); }}
        aria-invalid={mine === undefined ? undefined : 'true'} aria-describedby={described === '' ? undefined : described}
      />
      {hint !== undefined && <p class="hint" id={`${id}-hint`}>{hint}</p>}
      {mine !== undefined && <p class="error" id={`${id}-problem`} role="alert">{mine.message}</p>}
    </div>
  );
};

/** `named`: what is shown of an option; default itself. */
export const Select = <T extends string>({ label, name, value, options, onChange, hidden = false, named = (option) => option }: {
  label: string; name: string; value: T; options: readonly T[]; onChange: (value: T) => void; hidden?: boolean; named?: (option: T) => string;
}): VNode => {
  const id = useId();
  return (
    <div class="field">
      <label for={id} class={hidden ? 'hidden' : undefined}>{label}</label>
      <select
        id={id} name={name} value={value}
        onChange={(event) => {
          const chosen = options.find((option) => option === event.currentTarget.value);
          if (chosen !== undefined) onChange(chosen);
        }}
      >
        {options.map((option) => <option key={option} value={option}>{named(option)}</option>)}
      </select>
    </div>
  );
};

export const ProblemText = ({ problem }: { problem: Problem | undefined }): VNode | null => (problem === undefined ? null : <p class="alert" role="alert">{problem.message}</p>);

/** `fields`: names of the fields in it; a problem of another is shown above the button. */
export const Form = ({ label, submit, action, fields, onSubmit, children }: {
  label: string; submit: string; action: Action; fields: readonly string[]; onSubmit: () => void; children: ComponentChildren;
}): VNode => (
  <form
    aria-label={label} class="form"
    onSubmit={(event) => {
      event.preventDefault();
      onSubmit();
    }}
  >
    {children}
    {!fields.some((name) => concerns(action.problem, name)) && <ProblemText problem={action.problem} />}
    <p class="actions"><button aria-disabled={action.busy}>{action.busy ? 'One moment …' : submit}</button></p>
  </form>
);

export const Button = ({ busy = false, onClick, class: kind = 'quiet', label, children }: {
  busy?: boolean; onClick: () => void; class?: string; label?: string; children: ComponentChildren;
}): VNode => (
  <button type="button" class={kind} aria-disabled={busy} aria-label={label} onClick={() => { if (!busy) onClick(); }}>{children}</button>
);

/** A button that asks before it acts. `typed`: a word that must be written first. The dialog is the browser's own: Escape leaves it, focus returns. */
export const Confirmed = ({ text, label, question, children, confirm, typed, onConfirm, danger = true }: {
  text: string; label?: string; question: string; children?: ComponentChildren; confirm: string; typed?: string; onConfirm: () => Promise<void>; danger?: boolean;
}): VNode => {
  const dialog = useRef<HTMLDialogElement>(null);
  const title = useId();
  const action = useAction();
  const [written, setWritten] = useState('');
  const ready = typed === undefined || written === typed;
  const close = (): void => { dialog.current?.close(); };
  return (
    <>
      <Button
        class={danger ? 'danger' : 'quiet'} {...(label === undefined ? {} : { label })}
        onClick={() => {
          action.clear();
          setWritten('');
          dialog.current?.showModal();
        }}
      >
        {text}
      </Button>
      <dialog ref={dialog} aria-labelledby={title}>
        <form
          class="form"
          onSubmit={(event) => {
            event.preventDefault();
            if (!ready) return;
            void action.run(onConfirm).then((done) => {
              if (!done) return;
              close();
              // What was confirmed away took the button along: without this the keyboard would start at the top of the page again.
              requestAnimationFrame(() => { if (document.activeElement === document.body) document.getElementById('view')?.focus(); });
            });
          }}
        >
          <h2 id={title}>{question}</h2>
          {children}
          {typed !== undefined && <Field label={`Write ${typed} to confirm`} name="typed" value={written} onInput={setWritten} autocomplete="off" spellcheck={false} />}
          <ProblemText problem={action.problem} />
          <p class="actions">
            <button class={danger ? 'danger' : ''} aria-disabled={action.busy || !ready}>{action.busy ? 'One moment …' : confirm}</button>
            <Button onClick={close}>Cancel</Button>
          </p>
        </form>
      </dialog>
    </>
  );
};

/** A secret that is not shown again, with a way to copy it. */
export const Secret = ({ label, value, onDone }: { label: string; value: string; onDone?: () => void }): VNode => {
  const id = useId();
  const area = useRef<HTMLTextAreaElement>(null);
  const [copied, setCopied] = useState('Copy');
  const copy = (): void => {
    area.current?.select();
    navigator.clipboard.writeText(value).then(() => { setCopied('Copied'); }, () => { setCopied('Press Ctrl+C to copy'); });
  };
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <textarea id={id} ref={area} class="secret" readOnly rows={2} value={value} spellcheck={false} />
      <p class="actions">
        <Button onClick={copy}>{copied}</Button>
        {onDone !== undefined && <Button onClick={onDone}>I have kept it</Button>}
      </p>
    </div>
  );
};

/** What is there while something loads or has failed. */
export const Waiting = ({ what }: { what: string }): VNode => <p class="hint" role="status">Loading {what} …</p>;
export const Failed = ({ problem, onRetry }: { problem: Problem; onRetry: () => void }): VNode => (
  <div class="form">
    <ProblemText problem={problem} />
    <p class="actions"><Button onClick={onRetry}>Try again</Button></p>
  </div>
);
