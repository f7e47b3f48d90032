/** The gateway's admin socket as a client: one JSON line there, one back (contracts/admin.ts). Its answer is validated. */
import { connect } from 'node:net';
import { adminReply, type AdminRequest } from '../../contracts/admin.ts';
import { coded, refuse } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { readLines } from './lines.ts';

/**
 * The result of one operation. Throws the gateway's own code when it refuses, `forbidden` when the socket turns this user
 * away, `upstream_unavailable` when nobody serves the socket, `deadline_exceeded` after `deadlineMs`.
 */
export const askAdmin = async (path: string, request: AdminRequest, deadlineMs: number = limits.clientRequestMs): Promise<unknown> => {
  const socket = connect(path);
  const deadline = setTimeout(() => { socket.destroy(coded('deadline_exceeded')); }, deadlineMs);
  try {
    socket.write(`${JSON.stringify(request)}\n`);
    for await (const line of readLines(socket, limits.clientReceiveMaxBytes)) {
      let value: unknown;
      try {
        value = JSON.parse(line);
      } catch (cause) {
        throw coded('protocol_error', 'The admin socket did not answer JSON.', { cause });
      }
      const reply = adminReply.safeParse(value);
      if (!reply.success) throw coded('protocol_error', 'The admin socket answered something else.');
      if (!reply.data.ok) throw refuse(reply.data.error.code, reply.data.error.message);
      return reply.data.result;
    }
    throw coded('forbidden', `The admin socket ${path} closed without an answer: your user is not in its group.`);
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    if (code === 'ENOENT' || code === 'ECONNREFUSED') throw coded('upstream_unavailable', `Nobody serves the admin socket ${path}.`, { cause: error });
    if (code === 'EACCES') throw coded('forbidden', `You may not open the admin socket ${path}.`, { cause: error });
    if (code === 'EPIPE' || code === 'ECONNRESET') throw coded('forbidden', `The admin socket ${path} turned this user away.`, { cause: error });
    throw error;
  } finally {
    clearTimeout(deadline);
    socket.destroy();
  }
};
