/** What the chat page says about a failure: what happened and what to do now. Codes it does not know show the server's own message. */
import { upgradeUrl } from '../../../../contracts/plans.ts';
import { hrefOf } from '../place.ts';
import { when } from '../resources.ts';
import type { Failure } from './talk.ts';

export interface Advice {
  readonly text: string;
  readonly link?: { readonly href: string; readonly text: string };
  /** Whether asking the same again may help. */
  readonly again: boolean;
}

/** Who pays: the id of an organization, or undefined for the person's own workspace. */
export const adviceOn = ({ code, message, details }: Failure, org: string | undefined): Advice => {
  const seconds = details['retry_after'];
  const wait = typeof seconds === 'number' ? `Try again in ${Math.max(1, Math.ceil(seconds))} seconds.` : 'Try again in a moment.';
  const plans = org === undefined ? { href: upgradeUrl, text: 'Compare the plans' } : { href: hrefOf({ view: 'plan', org }), text: 'See plan and credits' };
  switch (code) {
    case 'credits_exhausted': {
      const resetsAt = details['resetsAt'];
      return { text: `The credits of this plan are used up.${typeof resetsAt === 'string' ? ` New ones come on ${when(resetsAt)}.` : ''} A larger plan has more.`, link: plans, again: false };
    }
    case 'legal_acceptance_required':
    case 'stale_policy':
      return {
        text: 'The current terms must be accepted before you can chat. Your conversation stays here.',
        link: { href: `/legal?${new URLSearchParams({ return_to: hrefOf({ view: 'chat', org }) }).toString()}`, text: 'Read and accept them' }, again: true,
      };
    case 'rate_limited':
    case 'rate_limit_exceeded':
    case 'plan_limit':
      return { text: `This is more than the plan allows at once or in a day. ${wait}`, link: plans, again: true };
    case 'session_busy': return { text: `An answer of this conversation is still under way. ${wait}`, again: true };
    case 'overloaded': return { text: `The service is very busy. ${wait}`, again: true };
    case 'model_not_supported': return { text: 'This model is not available any more. Choose another one above and ask again.', again: true };
    case 'provider_error': return { text: 'The model\'s provider failed. Ask again, or choose another model.', again: true };
    case 'provider_timeout': return { text: 'The model\'s provider did not answer in time. Ask again, or choose another model.', again: true };
    case 'approval_unknown': return { text: 'This call does not wait for your word any more. Ask again.', again: true };
    case 'forbidden': return { text: 'Your role in this organization does not allow chatting. Ask one of its admins, or choose another payer above.', again: true };
    case 'not_found': return { text: 'You are not in this organization any more. Choose another payer above.', again: true };
    case 'payload_too_large': return { text: 'This conversation has become too long. Begin a new one.', again: false };
    case 'upstream_unavailable':
    case 'upstream_timeout': return { text: 'The connection was lost before the answer was complete. Check it and ask again.', again: true };
    default: return { text: message, again: true };
  }
};
