/**
 * A session on an actor host: the real definitions over the scripted model, one owner, and words to read its journal with.
 */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { z } from 'zod';
import { memoryBlobs } from '../../actors/blobs/memory.ts';
import { definitions } from '../../actors/definitions.ts';
import { mock } from '../../actors/providers/mock.ts';
import type { Provider } from '../../actors/providers/provider.ts';
import { createRegistry } from '../../actors/providers/registry.ts';
import { builtinTools, toolSet, type Tool } from '../../actors/tools/index.ts';
import { modelEntry } from '../../contracts/config.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { sessionCommands } from '../../contracts/session.ts';
import { actorHost, type ActorHost } from './actor-host.ts';

export const sid = 'abcdefghijklmnopqrstuvwxyz';
export const address = { org: 'u-ann', type: 'session', key: sid };
export const user_id = 'ann';
export const ann = { kind: 'user', sub: 'ann', org: 'u-ann', scopes: [] } as const;

export interface SessionSetup {
  readonly host: ActorHost;
  readonly blobs: ReturnType<typeof memoryBlobs>;
  send(content: string, more?: { message_id?: string; attachment_blob_ref?: string }): Promise<string>;
  /** The journal once so many runs have ended. */
  ends(runs: number): Promise<StoredEvent[]>;
  describe(): Promise<z.output<typeof sessionCommands.describe.output>>;
}

export const sessionSetup = async (t: TestContext, options: { provider?: Provider; tools?: readonly Tool[]; idleMs?: number; create?: boolean } = {}): Promise<SessionSetup> => {
  const blobs = memoryBlobs();
  const registry = createRegistry({
    default: 'plain',
    registry: [
      modelEntry.parse({ id: 'plain', provider: 'mock' }),
      modelEntry.parse({ id: 'dear', provider: 'mock', input_usd_per_mtok: 1_000, output_usd_per_mtok: 10_000 }),
    ],
  }, { mock: options.provider ?? mock() });
  const tools = options.tools === undefined ? builtinTools({ fetchAllow: [] }) : toolSet(options.tools);
  const host = actorHost(definitions({ registry, tools, blobs, ...(options.idleMs === undefined ? {} : { idleMs: options.idleMs }) }));
  t.after(() => { host.stop(); });
  if (options.create !== false) await host.ask(address, 'create', { user_id, project_id: 'p1' }, ann);
  return {
    host, blobs,
    send: async (content, more = {}) => sessionCommands.send.output.parse(await host.ask(address, 'send', { user_id, content, ...more }, ann)).accepted,
    ends: async (runs) => host.until(address, (events) => events.filter((e) => e.k === 'RunFinished' || e.k === 'RunErrored').length >= runs),
    describe: async () => sessionCommands.describe.output.parse(await host.ask(address, 'describe', { user_id }, ann)),
  };
};

/** Domain events by kind, neighbouring deltas as one, without the names of effects. */
export const kinds = (events: readonly StoredEvent[]): string[] => {
  const shown = events.map((e) => e.k).filter((k) => !k.startsWith('$') && k !== 'StepStarted' && k !== 'ToolStarted');
  return shown.filter((k, i) => k !== 'TextDelta' || shown[i - 1] !== 'TextDelta');
};
/** Payloads of one kind. */
export const only = (events: readonly StoredEvent[], kind: string): StoredEvent['d'][] => events.filter((e) => e.k === kind).map((e) => e.d);
/** All streamed text. */
export const said = (events: readonly StoredEvent[]): string => only(events, 'TextDelta').map((d) => String(d['text'])).join('');
/** The payload of the only event of a kind. */
export const one = (events: readonly StoredEvent[], kind: string): StoredEvent['d'] => {
  const found = only(events, kind);
  assert.equal(found.length, 1, `${found.length} events of ${kind}`);
  return found[0] ?? assert.fail();
};
export const count = (events: readonly StoredEvent[], kind: string): number => only(events, kind).length;
