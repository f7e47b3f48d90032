/**
 * A bad network between daemons and NATS: each daemon has a proxy of its own, and a seeded schedule loses answers, delays, cuts,
 * refuses and half-opens its connection.
 *
 * Guarantee: after `trouble()` everything passes again. Nothing is changed in what passes: TCP is whole or it is cut.
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { Proxy } from './proxy.ts';
import type { Draw } from './seed.ts';

export type Trouble = 'lost-answers' | 'delay' | 'half-open' | 'cut' | 'refused';
const troubles: readonly Trouble[] = ['lost-answers', 'lost-answers', 'delay', 'half-open', 'cut', 'refused'];

export interface Network {
  /** So many troubles, as many as fit into the time. */
  trouble(count: number, withinMs: number, check: () => void): Promise<void>;
  readonly counts: Readonly<Record<Trouble, number>>;
  readonly log: readonly string[];
}

export const badNetwork = (options: { readonly proxies: readonly Proxy[]; readonly random: Draw; readonly everyMs: number; /** The longest that a connection stands still or is refused. */ readonly longestMs: number }): Network => {
  const { proxies, random } = options;
  const counts: Record<Trouble, number> = { 'lost-answers': 0, delay: 0, 'half-open': 0, cut: 0, refused: 0 };
  const log: string[] = [];
  const begun = performance.now();
  /** Troubles under way, by proxy: one at a time each. */
  const busy = new Map<Proxy, Promise<void>>();

  const act = async (proxy: Proxy, trouble: Trouble, ms: number): Promise<void> => {
    switch (trouble) {
      case 'lost-answers': {
        // The server has stored what was sent, and said so, to nobody.
        const dropped = proxy.dropped();
        proxy.dropReplies();
        await dropped;
        await pause(Math.min(ms, 500));
        proxy.cut();
        break;
      }
      case 'delay':
        proxy.stall();
        await pause(ms);
        break;
      case 'half-open':
        // What was sent meanwhile never arrives.
        proxy.stall();
        await pause(ms);
        proxy.cut();
        break;
      case 'cut':
        proxy.cut();
        break;
      case 'refused':
        proxy.refuse();
        proxy.cut();
        await pause(ms);
        break;
    }
    proxy.resume();
    counts[trouble] += 1;
  };

  return {
    counts, log,
    trouble: async (count, withinMs, check) => {
      const until = performance.now() + withinMs;
      let left: Trouble[] = [];
      for (let made = 0; made < count && performance.now() < until; made++) {
        await pause(random.int(0, options.everyMs * 2));
        const at = random.int(0, proxies.length - 1);
        const proxy = proxies[at];
        const ms = random.int(0, options.longestMs);
        if (left.length === 0) left = [...troubles];
        const [trouble] = left.splice(random.int(0, left.length - 1), 1);
        if (proxy === undefined || trouble === undefined) continue;
        await busy.get(proxy);
        log.push(`${((performance.now() - begun) / 1_000).toFixed(2)} s daemon ${at}: ${trouble} ${ms} ms`);
        busy.set(proxy, act(proxy, trouble, ms));
        check();
      }
      await Promise.all(busy.values());
    },
  };
};
