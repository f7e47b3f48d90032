/** `troupe status`: whether the gateway and the daemon behind it answer, and the gateway's own report where one may see it. */
import { coded, shown } from '../../contracts/errors.ts';
import { createEdge } from '../client/edge.ts';
import { askAdmin } from './admin.ts';
import { exitCodes, type ExitCode } from './exit.ts';
import type { Target } from './target.ts';
import type { Transport } from './transport.ts';
import type { Out } from './printer.ts';

export const runStatus = async (target: Target, transport: Transport, json: boolean, out: Out): Promise<ExitCode> => {
  const edge = createEdge({ url: target.gatewayUrl, token: target.token, fetch: transport.fetch });
  const gateway = await edge.healthy().then(
    (healthy) => (healthy ? { ok: true as const } : { ok: false as const, ...shown(coded('upstream_unavailable', 'The gateway answers, its daemon does not.')) }),
    (error: unknown) => ({ ok: false as const, ...shown(error) }),
  );
  const admin = target.adminSocket === undefined
    ? undefined
    : await askAdmin(target.adminSocket, { op: 'health' }).then(
      (result) => ({ ok: true as const, result }),
      (error: unknown) => ({ ok: false as const, ...shown(error) }),
    );
  if (json) {
    out.write(`${JSON.stringify({ gateway: { url: target.gatewayUrl, ...gateway }, admin: admin ?? null })}\n`);
  } else {
    out.write(`gateway  ${target.gatewayUrl}  ${gateway.ok ? 'ok, daemon answers' : `${gateway.code}: ${gateway.message}`}\n`);
    if (admin !== undefined) out.write(`admin    ${target.adminSocket}  ${admin.ok ? JSON.stringify(admin.result) : `${admin.code}: ${admin.message}`}\n`);
    if (!gateway.ok) out.write('Start Troupe with `npm start`.\n');
  }
  return gateway.ok ? exitCodes.ok : exitCodes.unreachable;
};
