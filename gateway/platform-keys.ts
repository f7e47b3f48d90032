/** The platform's public keys as the daemon gives them over the link: the gateway needs no address of the platform to know them. */
import { coded } from '../contracts/errors.ts';
import { authRoutes } from '../contracts/auth-routes.ts';
import { limits } from '../contracts/limits.ts';
import type { PlatformCall } from '../contracts/platform.ts';
import type { KeySource } from './jwks.ts';
import type { Link } from './link.ts';
import { readAnswer } from './platform-answer.ts';

/** The gateway itself asks: there is no client behind it. */
const ownCall: PlatformCall = { context: { ip: '', user_agent: '' } };

export const linkKeys = (link: Link): KeySource => ({
  name: 'daemon',
  load: async (signal) => {
    const route = authRoutes.jwks;
    const answer = await link.request(route, { token: '', body: JSON.stringify(ownCall), signal, deadlineMs: limits.jwksFetchMs });
    if (answer.status !== 200) throw coded('upstream_error', `The daemon answered ${answer.status} for its public keys.`);
    if (answer.body.length > limits.jwksMaxBytes) throw coded('payload_too_large', 'The key set is too large.');
    return readAnswer(route, answer).text;
  },
});
