/**
 * The platform's routes of public chat (interface 4.2; decisions, Chat). Bearer required; errors in the shape of each endpoint's clients.
 * An answer comes over a link stream whether it is streamed to the client or not: a model may take longer than a request may.
 */
import { chatCompletion, chatHeaders, completionRequest, modelList } from './chat.ts';
import { limits } from './limits.ts';
import { platformRoute } from './platform.ts';
import { acceptHeader, uiAnswer, uiChatRequest } from './ui-chat.ts';

const refusals = [
  'unauthorized', 'forbidden', 'not_found', 'validation_error', 'model_not_supported', 'legal_acceptance_required', 'stale_policy', 'rate_limited', 'credits_exhausted', 'session_busy',
  'payload_too_large', 'provider_error', 'provider_timeout', 'overloaded', 'upstream_unavailable',
] as const;
const common = { surface: 'platform', auth: { kind: 'access' }, errorShape: 'openai', invalidStatus: 400 } as const;

export const chatRoutes = {
  models: platformRoute({
    ...common, id: 'models', wire: 180, method: 'GET', path: '/api/v1/models', summary: 'The models that a chat may name.',
    bodyMaxBytes: 0, answers: { 200: modelList }, errors: ['unauthorized'], serve: { by: 'daemon' },
  }),
  completions: platformRoute({
    ...common, id: 'chat_completions', wire: 181, method: 'POST', path: '/api/v1/chat/completions',
    summary: 'One answer of a model to a conversation: JSON, or with `stream` server-sent events that end with `[DONE]`. Tools are the client\'s own.',
    body: completionRequest, bodyMaxBytes: limits.chatBodyMaxBytes, headers: [chatHeaders.organization, chatHeaders.session], answers: { 200: chatCompletion },
    errors: refusals,
    serve: { by: 'stream' },
  }),
  uiChat: platformRoute({
    surface: 'platform', auth: { kind: 'access' }, id: 'ui_chat', wire: 182, method: 'POST', path: '/api/chat',
    summary: 'One answer of a model for a user interface: JSON, or with `stream` or `Accept: text/event-stream` UiPart events; messages with `parts` get the AI SDK v6 UI message stream. The installation\'s tools run within the answer.',
    body: uiChatRequest, bodyMaxBytes: limits.chatBodyMaxBytes, headers: [chatHeaders.organization, chatHeaders.session, acceptHeader], answers: { 200: uiAnswer },
    errors: [...refusals, 'approval_unknown'], serve: { by: 'stream' },
  }),
} as const;
