/** The field a message is written in: Enter sends, Shift+Enter makes a new line, one file may go along. */
import type { VNode } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { limits } from '../../contracts/limits.ts';

export interface ComposerProps {
  readonly busy: boolean;
  readonly disabled: boolean;
  /** True if the message was taken; then the field is emptied. */
  readonly onSend: (text: string, file: File | undefined) => Promise<boolean>;
  readonly onCancel: () => void;
}

export const Composer = ({ busy, disabled, onSend, onCancel }: ComposerProps): VNode => {
  const [text, setText] = useState('');
  const [file, setFile] = useState<File>();
  const [sending, setSending] = useState(false);
  const field = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  useEffect(() => { field.current?.focus(); }, [disabled]);

  const send = async (): Promise<void> => {
    if (sending || disabled || (text.trim() === '' && file === undefined)) return;
    setSending(true);
    const taken = await onSend(text.trim(), file);
    setSending(false);
    if (taken) {
      setText('');
      setFile(undefined);
      if (picker.current !== null) picker.current.value = '';
    }
    field.current?.focus();
  };
  const tooLarge = file !== undefined && file.size > limits.attachmentMaxBytes;
  return (
    <form class="composer" onSubmit={(event) => { event.preventDefault(); void send(); }}>
      {file !== undefined && (
        <p class={tooLarge ? 'file error' : 'file'}>
          {file.name} ({file.size.toLocaleString()} bytes{tooLarge ? `, at most ${limits.attachmentMaxBytes.toLocaleString()}` : ''})
          <button type="button" class="quiet" aria-label={`Remove ${file.name}`} onClick={() => { setFile(undefined); if (picker.current !== null) picker.current.value = ''; }}>✕</button>
        </p>
      )}
      <div class="row">
        <button type="button" class="quiet attach" disabled={disabled} title="Attach a file" aria-label="Attach a file" onClick={() => { picker.current?.click(); }}>+</button>
        <input ref={picker} type="file" hidden onChange={({ currentTarget }) => { setFile(currentTarget.files?.[0]); field.current?.focus(); }} />
        <textarea
          ref={field} rows={1} value={text} disabled={disabled} aria-label="Message" placeholder="Message"
          title="Enter sends, Shift+Enter makes a new line, Escape cancels the running turn"
          onInput={({ currentTarget }) => { setText(currentTarget.value); }}
          onKeyDown={(event) => {
            // While an input method composes, Enter belongs to it.
            if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            void send();
          }}
        />
        {busy && <button type="button" class="cancel" onClick={onCancel}>Cancel</button>}
        <button type="submit" disabled={disabled || sending || tooLarge || (text.trim() === '' && file === undefined)}>Send</button>
      </div>
    </form>
  );
};
