/** The nats-server of a benchmark: as the settings ask, and gone with this process even when a signal ends it in between. */
import { rmSync } from 'node:fs';
import { startNats } from '../harness/nats.ts';
import type { Settings } from './figure.ts';

export interface BenchNats {
  readonly url: string;
  readonly pid: number;
  stop(): Promise<void>;
}

export const startBenchNats = async ({ sync }: Pick<Settings, 'sync'>): Promise<BenchNats> => {
  const nats = await startNats(sync ? { sync: 'always' } : {});
  const { url, pid, dir } = nats;
  const net = (): void => {
    process.kill(pid, 'SIGKILL');
    rmSync(dir, { recursive: true, force: true });
  };
  process.once('exit', net);
  return {
    url, pid,
    stop: async () => {
      process.off('exit', net);
      await nats.stop();
    },
  };
};
