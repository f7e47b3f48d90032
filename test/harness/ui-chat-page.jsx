/**
 * A page of somebody who builds with AI SDK v6 and React: `useChat` and the library's default transport, unmodified, at the address of the gateway
 * that served it. The access token is in the address, behind `#`. A test's bundler makes it one script; no type checker reads it.
 */
import { useChat } from '@ai-sdk/react';
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from 'ai';
import { useState } from 'react';
import { createRoot } from 'react-dom/client';

const transport = new DefaultChatTransport({ api: '/api/chat', headers: { authorization: `Bearer ${location.hash.slice(1)}` } });

const Part = ({ part, decide }) => {
  if (part.type === 'text') return <p>{part.text}</p>;
  if (part.toolCallId === undefined) return null;
  return (
    <div className="tool" data-state={part.state}>
      {[part.type, part.state, JSON.stringify(part.input), part.state === 'output-available' ? JSON.stringify(part.output) : ''].join(' ')}
      {part.state === 'approval-requested' && (
        <>
          <button type="button" onClick={() => decide({ id: part.approval.id, approved: true })}>Allow</button>
          <button type="button" onClick={() => decide({ id: part.approval.id, approved: false, reason: 'not on this page' })}>Deny</button>
        </>
      )}
    </div>
  );
};

const Chat = () => {
  const { messages, status, error, sendMessage, stop, regenerate, addToolApprovalResponse } = useChat({
    transport, sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  });
  const [text, setText] = useState('');
  const submit = (event) => {
    event.preventDefault();
    void sendMessage({ text: text.replaceAll('\\n', '\n') });
    setText('');
  };
  return (
    <>
      <div role="log">
        {messages.map((message) => (
          <article key={message.id} className={message.role}>
            {message.parts.map((part, at) => <Part key={at} part={part} decide={addToolApprovalResponse} />)}
          </article>
        ))}
      </div>
      <div role="status">{status}</div>
      <div role="alert">{error?.message ?? ''}</div>
      <form onSubmit={submit}>
        <input aria-label="Message" value={text} onChange={(event) => setText(event.target.value)} />
        <button type="submit">Send</button>
        <button type="button" onClick={() => stop()}>Stop</button>
        <button type="button" onClick={() => regenerate()}>Again</button>
      </form>
    </>
  );
};

createRoot(document.body.appendChild(document.createElement('main'))).render(<Chat />);
