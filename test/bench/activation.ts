/**
 * Cold activation: from an ask to its answer, for an actor that is not in memory, with a journal of 100 and 1,000 commits of
 * one event, with and without a snapshot.
 *
 * Floor: the round trips that the guarantees need (last message, fenced append, the journal in one batch), bytes untouched.
 */
import type { ActivationJobs } from './activation-part.ts';
import { durabilityOf, measure, type Benchmark } from './figure.ts';
import { startBenchNats } from './nats.ts';
import { startPart } from './part.ts';

/** Actors a sample activates; it is their median. */
const actors = 20;

export const activation: Benchmark = async (settings, add) => {
  const nats = await startBenchNats(settings);
  const part = await startPart<ActivationJobs>('./activation-part.ts', { name: 'activation', profiles: settings.profiles });
  try {
    await part.run('start', { url: nats.url });
    for (const [index, events] of [100, 1_000].entries()) {
      const crowd = { events, actors, first: index * 1_000 };
      await part.run('prepare', crowd);
      for (const type of ['plain', 'snapshotted'] as const) {
        const bound = events !== 1_000 ? undefined : type === 'plain' ? 15 : 3;
        add(await measure(settings, {
          figure: `cold activation, ${events.toLocaleString('en-US')} events${type === 'plain' ? '' : ', snapshot'}`, unit: 'ms', kind: 'cost', durability: durabilityOf(settings),
          ...(bound === undefined ? {} : { aim: { of: 'value', bound } as const }),
          floorIs: type === 'plain' ? 'last message, then fenced append and the whole journal in one batch, bytes untouched' : 'last message and snapshot, then fenced append',
          sample: () => part.run('activate', { ...crowd, type, expect: type === 'plain' ? events - 1 : events }),
          sampleFloor: () => part.run('floor', { ...crowd, type }),
        }));
      }
    }
  } finally {
    await part.stop();
    await nats.stop();
  }
};
