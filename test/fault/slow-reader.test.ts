/**
 * A watcher that reads nothing while 50,000 events of its session pass (G5): it is a cursor into the journal, not a buffer. The
 * memory of daemon and gateway is looked at all the while; then it reads on, and has every event once.
 */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { WebSocket } from 'ws';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { createNatsStores } from '../../actors/runtime/nats/stores.ts';
import { faultConfig, within } from '../harness/chaos.ts';
import { startStack, type GatewayProcess, type TestStack } from '../harness/stack.ts';
import { sessionWriter, sidOf } from '../harness/viewer.ts';

const events = 50_000;
const perCommit = 100;
const textBytes = 2_048;
const watchers = 5;
/** What one buffered copy for each watcher that does not read would take is five times 100 MiB; this is what may be used in all. */
const growthMaxMiB = 200;

const rssMiB = async (pid: number): Promise<number> => {
  const kib = /^VmRSS:\s+(\d+) kB$/m.exec(await readFile(`/proc/${pid}/status`, 'utf8'))?.[1];
  return Number(kib) / 1_024;
};

/** A watcher that checks each frame as it comes. */
class Reader {
  last: number;
  closed: number | undefined;
  problem: string | undefined;
  readonly socket: WebSocket;
  #waits: (() => void)[] = [];

  constructor(stack: TestStack, gateway: GatewayProcess, sid: string, token: string, last = 0) {
    this.last = last;
    this.socket = new WebSocket(`${gateway.wsUrl}/v1/agent/stream?sid=${sid}&last_seq_no=${last}`, { ca: stack.ca, headers: { authorization: `Bearer ${token}` }, perMessageDeflate: false });
    this.socket.on('message', (data: Buffer) => {
      // By hand: this test's process reads half a million frames.
      const number = /^\{"kind":"agent_event","seq_no":(\d+),/.exec(data.toString('latin1', 0, 64))?.[1];
      if (number !== undefined) {
        if (Number(number) !== this.last + 1) this.problem ??= `event ${number} after ${this.last}`;
        this.last = Number(number);
      }
      this.#wake();
    });
    this.socket.on('close', (code) => { this.closed = code; this.#wake(); });
    this.socket.on('error', (error) => { this.problem ??= String(error); this.#wake(); });
    this.socket.on('open', () => { this.#wake(); });
  }

  async until(test: () => boolean): Promise<void> {
    while (!test()) {
      if (this.problem !== undefined) throw new Error(this.problem);
      await new Promise<void>((resolve) => { this.#waits.push(resolve); });
    }
    assert.equal(this.problem, undefined);
  }

  #wake(): void {
    for (const wake of this.#waits.splice(0)) wake();
  }
}

test('slow reader - watchers that read nothing while 50,000 events pass cost no memory and miss nothing afterwards [G5] [G3]', { timeout: 115_000 }, async (t) => {
  const patientMs = 600_000;
  const stack = await startStack(t, {
    gateways: 2, daemon: faultConfig.daemon,
    gateway: (index) => ({ ...faultConfig.gateway, slow_consumer_ms: index === 0 ? patientMs : 500 }),
  });
  const [patient, strict] = stack.gateways;
  const [daemon] = stack.daemons;
  assert.ok(patient && strict && daemon);
  const { partitions } = faultConfig.daemon;
  const nc = await connectNats({ url: stack.nats.url, name: 'writer' });
  const { journal, lean } = createNatsStores(nc, { partitions, journalStreams: 1, replicas: 1 });
  t.after(async () => { lean.close(); await nc.close(); });
  const sid = sidOf(7);
  const writer = sessionWriter(journal, 'u-ann', sid, 'ann', partitions);
  await writer.create();
  await writer.write(['first']);
  const token = await stack.token('ann');

  const stuck = Array.from({ length: watchers }, () => new Reader(stack, patient, sid, token));
  const thrown = new Reader(stack, strict, sid, token);
  const prompt = new Reader(stack, patient, sid, token);
  t.after(() => { for (const reader of [...stuck, thrown, prompt]) reader.socket.terminate(); });
  await Promise.all([...stuck, thrown, prompt].map((reader) => reader.until(() => reader.last === 1)));
  for (const reader of [...stuck, thrown]) reader.socket.pause();

  const processes = [daemon, patient, strict];
  const before = await Promise.all(processes.map(({ pid }) => rssMiB(pid)));
  const peak = [...before];
  const text = 'x'.repeat(textBytes);
  for (let commit = 0; commit < events / perCommit; commit++) {
    await writer.write(Array.from({ length: perCommit }, () => text));
    if (commit % 10 !== 0) continue;
    for (const [i, { pid }] of processes.entries()) peak[i] = Math.max(peak[i] ?? 0, await rssMiB(pid));
  }
  assert.equal(writer.head, events + 1);
  const report = (): string => `${[...stuck, thrown, prompt].map((r) => `${r.last} ${r.closed}`).join(', ')}\n${stack.report()}`;
  // The one that reads has everything: it was all sent.
  await within(60_000, 'the prompt reader has all', prompt.until(() => prompt.last === events + 1), report);
  for (const [i, { pid }] of processes.entries()) peak[i] = Math.max(peak[i] ?? 0, await rssMiB(pid));
  for (const reader of stuck) assert.ok(reader.last < events / 2, 'a stopped reader was not stopped');
  const grown = peak.map((mib, i) => Math.round(mib - (before[i] ?? 0)));
  t.diagnostic(`grown by at most: daemon ${grown[0]} MiB, gateways ${grown[1]} and ${grown[2]} MiB, while ${watchers} watchers left ${Math.round((events * textBytes) / 2 ** 20)} MiB each unread`);
  for (const mib of grown) assert.ok(mib <= growthMaxMiB, `memory grew by ${grown.join(', ')} MiB`);

  // They read on where they stopped, without a reconnect.
  for (const reader of stuck) reader.socket.resume();
  await within(60_000, 'the stopped readers have all', Promise.all(stuck.map((reader) => reader.until(() => reader.last === events + 1))), report);
  for (const reader of stuck) assert.equal(reader.closed, undefined);
  // The one that a stricter gateway sent away comes back with what it has, and misses nothing either.
  thrown.socket.resume();
  await within(60_000, 'the slow one is sent away', thrown.until(() => thrown.closed !== undefined), report);
  // The close frame stands behind what it did not read; who does not read for long is cut off before it (1006). Both mean: come back.
  assert.ok(thrown.closed === 4002 || thrown.closed === 1006, `closed with ${thrown.closed}`);
  assert.ok(thrown.last < events);
  const again = new Reader(stack, strict, sid, token, thrown.last);
  t.after(() => { again.socket.terminate(); });
  await within(60_000, 'the one sent away has all', again.until(() => again.last === events + 1), report);
});
