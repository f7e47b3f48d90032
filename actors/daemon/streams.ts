/**
 * One opened link stream: capability verified, position parsed, attached to the hub, client messages to the session actor.
 *
 * Guarantee: nothing is read or asked for a stream before its capability was verified here; it ends with the login or membership behind it
 * (admission.ts); every way it can fail ends it with a close code of contracts/close.ts.
 */
import type { z } from 'zod';
import { closeCodes, type CloseName } from '../../contracts/close.ts';
import { CodedError } from '../../contracts/errors.ts';
import type { DeploymentRoute } from '../../contracts/deployment.ts';
import type { PlatformRoute } from '../../contracts/platform.ts';
import { streamOpen, type Route } from '../../contracts/routes.ts';
import { parseJson, parseValue } from '../../contracts/validate.ts';
import type { Sender } from '../runtime/message.ts';
import type { Admission } from './admission.ts';
import { ClientCommands } from './commands.ts';
import { closeNameOf, type Hub } from './hub.ts';
import type { Stream } from './link-stream.ts';
import type { Log } from './log.ts';

export interface StreamsOptions {
  readonly admission: Pick<Admission, 'hold'>;
  readonly hub: Hub;
  readonly actors: Pick<Sender, 'ask'>;
  /** Serves streams of the platform surface (chat). Absent = they are refused. */
  readonly platform?: ((stream: Stream, route: PlatformRoute) => void) | undefined;
  /** Serves streams of deployments. Absent = they are refused. */
  readonly deployments?: ((stream: Stream, route: DeploymentRoute) => void) | undefined;
  readonly log: Log;
}

/** Serves the streams that gateways open. */
export const createStreams = ({ admission, hub, actors, platform, deployments, log }: StreamsOptions): ((stream: Stream) => void) => {
  const serve = async (stream: Stream, route: Route): Promise<void> => {
    let lost = false;
    let leave = (): void => undefined;
    const end = (name: CloseName): void => {
      leave();
      stream.close(closeCodes[name].code, closeCodes[name].reason);
    };
    const held = await admission.hold(route, stream.token, () => {
      lost = true;
      end('token_expired');
    });
    if (held === undefined || lost) return;
    const { principal } = held;
    const open = openOf(stream, held.release);
    const commands = new ClientCommands({ address: { org: principal.org, type: 'session', key: open.sid }, principal, actors, log, mayWrite: held.mayWrite, onFail: end });
    const watch = hub.attach({ org: principal.org, sub: principal.sub, sid: open.sid, lastSeqNo: open.last_seq_no }, {
      id: stream.id,
      peer: stream.peer,
      get credit() {
        return stream.credit;
      },
      room: (bytes, texts) => stream.room(bytes, texts),
      close: (code, reason) => {
        held.release();
        commands.end();
        stream.close(code, reason);
      },
    });
    leave = () => {
      held.release();
      commands.end();
      watch.detach();
    };
    // Until then texts wait in the stream: nothing of somebody else's session is touched.
    if (!(await watch.attached)) {
      leave();
      return;
    }
    stream.listen({ onText: (text) => commands.take(text), onRoom: () => watch.onRoom(), onEnd: () => leave() });
    watch.onRoom();
  };

  return (stream) => {
    const { route } = stream;
    if (route.surface !== 'edge') {
      if (route.surface === 'platform' && platform !== undefined) platform(stream, route);
      else if (route.surface === 'deployment' && deployments !== undefined) deployments(stream, route);
      else stream.close(closeCodes.internal_error.code, closeCodes.internal_error.reason);
      return;
    }
    serve(stream, route).catch((error: unknown) => {
      const name = refusalOf(error);
      if (name === 'internal_error') log.error({ err: error }, 'a stream failed on our side');
      else log.debug({ error: error instanceof CodedError ? error.code : 'internal_error' }, 'a stream was refused');
      stream.close(closeCodes[name].code, closeCodes[name].reason);
    });
  };
};

/** What is to be opened; of a body that is not the contract's, `release` is called. */
const openOf = (stream: Stream, release: () => void): z.output<typeof streamOpen> => {
  try {
    return parseValue(streamOpen, parseJson(stream.body.toString('utf8')));
  } catch (error) {
    release();
    throw error;
  }
};

/** Why a stream is not opened: without a good capability the bearer must be renewed (1008); a body that is not the contract's is 1007. */
const refusalOf = (error: unknown): CloseName => {
  if (!(error instanceof CodedError)) return 'internal_error';
  switch (error.code) {
    case 'unauthorized':
    case 'access_ended':
    case 'forbidden':
    case 'wrong_audience':
    case 'scope_insufficient':
      return 'token_expired';
    case 'bad_request':
    case 'validation_error':
      return 'invalid_payload';
    default:
      return closeNameOf(error);
  }
};
