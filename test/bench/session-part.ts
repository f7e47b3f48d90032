/**
 * The daemon of the stream benchmarks: the product's own, started by its own code, with a session type that emits on demand.
 *
 * Everything an event passes is the product's: turn, commit, journal, RePublish, hub, link. Only what decides to emit is not:
 * the chat loop joins text that arrives during a commit into one event, so the number of its events is not the load's choice.
 */
import { z } from 'zod';
import { readDaemonConfig, readSecrets } from '../../actors/daemon/config.ts';
import { startDaemon, type Daemon } from '../../actors/daemon/daemon.ts';
import { defineActor } from '../../actors/runtime/define.ts';
import { sessionEvents } from '../../contracts/session.ts';
import { silent } from '../harness/log.ts';
import { serve } from './part.ts';
import { eventText, org, sub } from './sessions.ts';

const none = z.strictObject({});

const session = defineActor({
  type: 'session',
  events: { SessionCreated: sessionEvents.SessionCreated, TextDelta: sessionEvents.TextDelta },
  initial: () => ({ events: 0 }),
  apply: { SessionCreated: (state) => state, TextDelta: (state) => ({ events: state.events + 1 }) },
  feed: { kinds: ['TextDelta'], running: () => false },
  commands: (command) => ({
    create: command({
      input: none, output: none,
      handle: (turn) => {
        turn.emit('SessionCreated', { user_id: sub, project_id: 'bench', label: null, model: 'mock', agent_id: 'bench', created_at_unix: 1 });
        return {};
      },
    }),
    emit: command({
      input: z.strictObject({ count: z.int().min(1) }), output: none,
      handle: (turn, { count }) => {
        for (let i = 0; i < count; i++) turn.emit('TextDelta', { text: eventText, run_id: 'bench', step: 0 });
        return {};
      },
    }),
  }),
});

let daemon: Daemon | undefined;
const actor = (sid: string) => {
  if (daemon === undefined) throw new Error('the daemon is not started');
  return daemon.host.actors.ref(session, org, sid).ask;
};

const jobs = {
  start: async ({ configPath }: { readonly configPath: string }) => {
    const config = await readDaemonConfig(configPath);
    daemon = await startDaemon({ config, secrets: await readSecrets(config), log: silent, definitions: [session] });
  },
  create: async ({ sids }: { readonly sids: readonly string[] }) => {
    for (const sid of sids) await actor(sid).create({});
  },
  /** Emits `total` events in each session, `perCommit` a turn, one turn in flight a session. Gives when it began, Unix milliseconds. */
  emit: async ({ sids, total, perCommit }: { readonly sids: readonly string[]; readonly total: number; readonly perCommit: number }) => {
    const asks = sids.map(actor);
    const startedAt = performance.timeOrigin + performance.now();
    await Promise.all(asks.map(async (ask) => {
      for (let left = total; left > 0; left -= perCommit) await ask.emit({ count: Math.min(left, perCommit) });
    }));
    return { startedAt, emittedAt: performance.timeOrigin + performance.now() };
  },
  collect: async () => { for (let i = 0; i < 3; i++) globalThis.gc?.(); },
};
export type SessionJobs = typeof jobs;
serve(jobs);
