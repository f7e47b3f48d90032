/**
 * A process that claims and serves a daemon socket, for tests of the claim: `node claim-socket.ts <path> <gids>`.
 * Prints `bound` when it serves, or the code and sentence of the refusal, then `admitted` for each socket; lives until it is killed.
 */
import { createLinkServer } from '../../actors/daemon/link.ts';
import { createPeerLookup } from '../../actors/daemon/peer.ts';
import { claimSocket } from '../../actors/daemon/socket.ts';
import { CodedError } from '../../contracts/errors.ts';
import { silent } from './log.ts';

const say = (line: string): void => void process.stdout.write(`${line}\n`);
const [, , path = '', gids = ''] = process.argv;
try {
  const rule = { uids: [], gids: gids === '' ? [] : gids.split(',').map(Number) };
  const socket = await claimSocket({ path, rule, lookup: createPeerLookup(), log: silent, release: 'test' });
  const link = createLinkServer({
    release: 'test', host: 'h', partitions: 1, log: silent,
    handlers: { request: async () => ({ status: 200, body: '"OK"' }), open: () => undefined },
  });
  await socket.listen((accepted) => {
    say('admitted');
    link.accept(accepted);
  });
  say('bound');
  setInterval(() => undefined, 60_000);
} catch (error) {
  say(error instanceof CodedError ? `${error.code} ${error.message}` : String(error));
  process.exitCode = 1;
}
