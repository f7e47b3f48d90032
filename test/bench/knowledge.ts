/**
 * Search in a deployment's knowledge of 10,000 notes, made of the markdown files of the installed packages: a whole request of the daemon, with the
 * look into the journal that makes it see every write. Floor: that look alone. And what an import, a restart and the memory cost.
 */
import { limits } from '../../contracts/limits.ts';
import { durabilityOf, median, shortNumber, type Benchmark } from './figure.ts';
import type { KnowledgeJobs } from './knowledge-part.ts';
import { memoryOf } from './machine.ts';
import { startBenchNats } from './nats.ts';
import { startPart } from './part.ts';

const notes = 10_000;
const searches = 1_000;

export const knowledgeSearch: Benchmark = async (settings, add) => {
  const nats = await startBenchNats(settings);
  const part = await startPart<KnowledgeJobs>('./knowledge-part.ts', { name: 'knowledge', profiles: settings.profiles, nodeArgs: ['--expose-gc'] });
  try {
    await part.run('start', { url: nats.url });
    const { files, own, bytes } = await part.run('vault', { count: notes, seed: 1 });
    const corpus = `${notes.toLocaleString('en-US')} notes, ${shortNumber(bytes / 1e6)} MB; ${own.toLocaleString('en-US')} of them the text of ${files} installed markdown files, the others put together from their paragraphs`;
    const { ms, documents } = await part.run('fill', undefined as never);
    const durability = durabilityOf(settings);
    add({ figure: 'import of 10,000 notes', unit: 'notes/s', kind: 'rate', durability, value: documents / (ms / 1_000), samples: [documents / (ms / 1_000)], notes: [corpus, 'until a search finds all of them; four requests at once, in the daemon itself'] });
    settings.say(`import: ${shortNumber(documents / (ms / 1_000))} notes/s`);

    await part.run('search', { count: searches, seed: 99 });
    const p50: number[] = [];
    const p99: number[] = [];
    const floor50: number[] = [];
    const floor99: number[] = [];
    for (let run = 0; run < settings.runs; run++) {
      const look = await part.run('look', { count: searches });
      const search = await part.run('search', { count: searches, seed: run });
      p50.push(search.p50);
      p99.push(search.p99);
      floor50.push(look.p50);
      floor99.push(look.p99);
    }
    const floorIs = 'reading the journal\'s last message from its leader';
    const queries = `${searches.toLocaleString('en-US')} queries a sample, each of one to four words of a note; ${limits.knowledgeResultsUsual} results with excerpts`;
    for (const [figure, samples, floorSamples, aim] of [['search, p50', p50, floor50, undefined], ['search, p99', p99, floor99, { of: 'value', bound: 20 }]] as const) {
      add({
        figure: `${figure}, 10,000 notes`, unit: 'ms', kind: 'cost', durability: '-', value: median(samples), samples, floor: median(floorSamples), floorSamples, floorIs,
        ratio: median(samples.map((sample, i) => sample / (floorSamples[i] ?? Number.NaN))), notes: [corpus, queries], ...(aim === undefined ? {} : { aim }),
      });
      settings.say(`${figure}: ${shortNumber(median(samples))} ms, floor ${shortNumber(median(floorSamples))}`);
    }

    const library = await part.run('library', { count: searches, seed: 0 });
    add({ figure: 'MiniSearch, p99, the same notes', unit: 'ms', kind: 'cost', durability: '-', value: library.p99, samples: [library.p99], notes: [`what we would have used: p50 ${shortNumber(library.p50)} ms; in one thread, without a look into the journal`] });
    settings.say(`MiniSearch: p50 ${shortNumber(library.p50)} ms, p99 ${shortNumber(library.p99)} ms`);

    const restarts: number[] = [];
    for (let run = 0; run < settings.runs; run++) restarts.push((await part.run('restart', undefined as never)).ms);
    add({ figure: 'first search after a restart, 10,000 notes', unit: 'ms', kind: 'cost', durability: '-', value: median(restarts), samples: restarts, notes: ['a new thread, the snapshot read from NATS and unpacked; no document is read'] });
    await part.run('settle', undefined as never);
    const held = memoryOf(part.pid);
    await part.run('drop', undefined as never);
    await part.run('settle', undefined as never);
    const memory = held - memoryOf(part.pid);
    add({ figure: 'memory of an index of 10,000 notes', unit: 'MB', kind: 'cost', durability: '-', value: memory / 1e6, samples: [memory / 1e6], notes: ['what the process (PSS) has less when the thread and its index are gone, the thread\'s own heap included'] });
    settings.say(`restart: ${shortNumber(median(restarts))} ms; memory: ${shortNumber(memory / 1e6)} MB`);
  } finally {
    await part.stop();
    await nats.stop();
  }
};
