/**
 * A page of somebody who builds with AI SDK v6: its default transport and its chat, unmodified, at the address of the gateway that served it.
 * Plain elements instead of a framework. The access token is in the address, behind `#`.
 */
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses, type UIMessage } from 'ai';
import { TestChat } from './ui-chat-state.ts';

const token = location.hash.slice(1);
const chat = new TestChat({
  transport: new DefaultChatTransport({ api: '/api/chat', headers: { authorization: `Bearer ${token}` } }),
  sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
}, () => { render(); });

const element = (name: string, text: string, attributes: Readonly<Record<string, string>> = {}): HTMLElement => {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  return made;
};
const button = (text: string, onClick: () => Promise<void>): HTMLElement => {
  const made = element('button', text, { type: 'button' });
  made.addEventListener('click', () => { void onClick(); });
  return made;
};

const partsOf = ({ parts }: UIMessage): HTMLElement[] => parts.flatMap((part) => {
  if (part.type === 'text') return [element('p', part.text)];
  if (!('toolCallId' in part)) return [];
  const tool = element('div', `${part.type} ${part.state} ${JSON.stringify(part.input)} ${part.state === 'output-available' ? JSON.stringify(part.output) : ''}`, { class: 'tool', 'data-state': part.state });
  if (part.state === 'approval-requested') {
    const { id } = part.approval;
    tool.append(
      button('Allow', async () => chat.addToolApprovalResponse({ id, approved: true })),
      button('Deny', async () => chat.addToolApprovalResponse({ id, approved: false, reason: 'not on this page' })),
    );
  }
  return [tool];
});

const log = element('div', '', { role: 'log' });
const status = element('div', 'ready', { role: 'status' });
const problem = element('div', '', { role: 'alert' });
const field = element('input', '', { 'aria-label': 'Message' }) as HTMLInputElement;
const form = element('form', '');

function render(): void {
  log.replaceChildren(...chat.messages.map((message) => {
    const article = element('article', '', { class: message.role });
    article.append(...partsOf(message));
    return article;
  }));
  status.textContent = chat.status;
  problem.textContent = chat.error?.message ?? '';
}

form.append(
  field, element('button', 'Send', { type: 'submit' }),
  button('Stop', async () => chat.stop()), button('Again', async () => chat.regenerate()),
);
form.addEventListener('submit', (event) => {
  event.preventDefault();
  void chat.sendMessage({ text: field.value.replaceAll('\\n', '\n') });
  field.value = '';
});
document.body.append(log, status, problem, form);
