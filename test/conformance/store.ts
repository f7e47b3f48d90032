/**
 * What every implementation of `actors/runtime/store.ts` must do, as one suite: run over NATS and over memory, it keeps
 * the two equal, so that what is proved over memory holds over NATS. Faults of a network are not here (nats-faults.test.ts).
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { eventsSubject, inboxSubject, journalSubject, reminderSubject, snapshotSubject, wildcards, type ActorAddress } from '../../contracts/subjects.ts';
import type { Feed, Inbox, Journal, LastValue, StoredMessage } from '../../actors/runtime/store.ts';

export interface Stores {
  readonly journal: Journal;
  readonly snapshots: LastValue;
  readonly reminders: LastValue;
  readonly inbox: Inbox;
  readonly feed: Feed;
}

export const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
export const text = (data: Uint8Array): string => new TextDecoder().decode(data);
export const code = (wanted: string) => (error: unknown): boolean => {
  assert.ok(error instanceof CodedError, `not a coded error: ${String(error)}`);
  assert.equal(error.code, wanted);
  return true;
};
const all = async (batches: AsyncIterable<readonly StoredMessage[]>): Promise<StoredMessage[]> => {
  const messages: StoredMessage[] = [];
  for await (const batch of batches) {
    assert.ok(batch.length > 0 && batch.length <= limits.replayBatchCommits);
    messages.push(...batch);
  }
  return messages;
};

export interface ConformanceOptions {
  /** A list may come from a replica that has not heard of the last deletion. */
  readonly listLags?: boolean;
}

export const storeConformance = (
  name: string, makeStores: () => Promise<{ readonly stores: Stores; stop(): Promise<void> }>, { listLags = false }: ConformanceOptions = {},
): void => {
  describe(`store over ${name}`, { timeout: 120_000 }, () => {
    let stores: Stores;
    let stop: () => Promise<void>;
    let lastKey = 0;
    const partition = 7;
    /** A fresh actor, so that tests do not see each other. */
    const actor = (): ActorAddress => ({ org: 'acme', type: 'counter', key: `k${++lastKey}` });
    const freshSubject = (): string => journalSubject(partition, actor());
    const fill = async (subject: string, count: number, from = 0): Promise<number[]> => {
      const seqs: number[] = [];
      for (let i = 0; i < count; i++) seqs.push(await stores.journal.append(subject, bytes(`e${from + i}`), seqs.at(-1) ?? 0));
      return seqs;
    };

    before(async () => {
      const made = await makeStores();
      ({ stores } = made);
      stop = () => made.stop();
    });
    after(() => stop());

    test('journal - a subject without messages has no last, no first and nothing to read', async () => {
      const subject = freshSubject();
      assert.equal(await stores.journal.last(subject), undefined);
      assert.equal(await stores.journal.firstFrom(subject, 0), undefined);
      assert.equal(await stores.journal.firstFrom(subject, 1), undefined);
      assert.deepEqual(await all(stores.journal.read(subject, 0, 0)), []);
      assert.deepEqual(await all(stores.journal.read(subject, 0, 1_000_000)), []);
    });

    test('journal - an append gives the stream sequence under which the message is found again, byte for byte', async () => {
      const subject = freshSubject();
      const data = Uint8Array.from({ length: 256 }, (_, i) => i);
      const began = Date.now();
      const seq = await stores.journal.append(subject, data, 0);
      const last = await stores.journal.last(subject);
      assert.ok(last !== undefined);
      assert.deepEqual({ subject: last.subject, seq: last.seq, data: [...last.data] }, { subject, seq, data: [...data] });
      assert.ok(Math.abs(last.time - began) < 60_000, 'store time is Unix milliseconds');
      const [read] = await all(stores.journal.read(subject, 0, seq));
      assert.deepEqual({ ...read, data: [...read?.data ?? []] }, { ...last, data: [...data] });
      assert.deepEqual([...(await stores.journal.firstFrom(subject, 0))?.data ?? []], [...data]);
    });

    test('journal - an empty message and one of the greatest size are stored', async () => {
      const subject = freshSubject();
      const first = await stores.journal.append(subject, new Uint8Array(), 0);
      const big = new Uint8Array(limits.commitMaxBytes).fill(7);
      const second = await stores.journal.append(subject, big, first);
      const read = await all(stores.journal.read(subject, 0, second));
      assert.deepEqual(read.map((m) => m.data.length), [0, limits.commitMaxBytes]);
      assert.equal(Buffer.compare(read[1]?.data ?? bytes(''), big), 0);
      assert.equal((await stores.journal.firstFrom(subject, 0))?.data.length, 0);
      assert.equal((await stores.journal.last(subject))?.data.length, limits.commitMaxBytes);
    });

    test('journal - an append with another expectation than the last sequence is fenced and stores nothing', async () => {
      const subject = freshSubject();
      const [first, second] = await fill(subject, 2);
      assert.ok(first !== undefined && second !== undefined);
      for (const expected of [0, first, second + 1, second + 1_000]) {
        await assert.rejects(stores.journal.append(subject, bytes('stale'), expected), code('fenced'));
      }
      await assert.rejects(stores.journal.append(freshSubject(), bytes('stale'), second), code('fenced'));
      assert.deepEqual((await all(stores.journal.read(subject, 0, second))).map((m) => text(m.data)), ['e0', 'e1']);
      assert.equal((await stores.journal.last(subject))?.seq, second);
      await stores.journal.append(subject, bytes('e2'), second);
    });

    test('[G1] journal - of six writers with the same expectation exactly one wins, two hundred times', async () => {
      const subject = freshSubject();
      const writers = 6;
      const races = 200;
      let expected = 0;
      const won: string[] = [];
      for (let race = 0; race < races; race++) {
        const outcomes = await Promise.allSettled(Array.from({ length: writers }, (_, w) => stores.journal.append(subject, bytes(`${race}/${w}`), expected)));
        const winners = outcomes.flatMap((outcome, w) => (outcome.status === 'fulfilled' ? [{ w, seq: outcome.value }] : []));
        for (const outcome of outcomes) if (outcome.status === 'rejected') code('fenced')(outcome.reason);
        const [winner, ...others] = winners;
        assert.ok(winner !== undefined && others.length === 0, `race ${race} had ${winners.length} winners`);
        won.push(`${race}/${winner.w}`);
        expected = winner.seq;
      }
      assert.deepEqual((await all(stores.journal.read(subject, 0, expected))).map((m) => text(m.data)), won);
    });

    test('journal - what is erased up to a sequence is gone, what comes later stays, and an emptied subject begins anew', async () => {
      const subject = freshSubject();
      const other = freshSubject();
      await fill(other, 2);
      const [first, second, third] = await fill(subject, 3);
      assert.ok(first !== undefined && second !== undefined && third !== undefined);
      await stores.journal.erase(subject, second);
      assert.deepEqual((await all(stores.journal.read(subject, 0, third))).map((m) => text(m.data)), ['e2']);
      assert.equal((await stores.journal.last(subject))?.seq, third);
      const fourth = await stores.journal.append(subject, bytes('e3'), third);
      await stores.journal.erase(subject, third);
      await stores.journal.erase(subject, third);
      assert.deepEqual((await all(stores.journal.read(subject, 0, fourth))).map((m) => text(m.data)), ['e3']);
      await stores.journal.erase(subject, fourth);
      assert.equal(await stores.journal.last(subject), undefined);
      await assert.rejects(stores.journal.append(subject, bytes('stale'), fourth), code('fenced'));
      const anew = await stores.journal.append(subject, bytes('anew'), 0);
      assert.ok(anew > fourth);
      assert.deepEqual((await all(stores.journal.read(subject, 0, anew))).map((m) => text(m.data)), ['anew']);
      assert.equal((await all(stores.journal.read(other, 0, anew))).length, 2);
    });

    test('journal - first from a sequence is the first message of the subject at or after it', async () => {
      const subject = freshSubject();
      const other = freshSubject();
      const seqs: number[] = [];
      let otherSeq = 0;
      for (let i = 0; i < 5; i++) {
        seqs.push(await stores.journal.append(subject, bytes(`e${i}`), seqs.at(-1) ?? 0));
        otherSeq = await stores.journal.append(other, bytes('other'), otherSeq);
      }
      const [s0, s1, s2] = seqs;
      const last = seqs.at(-1);
      assert.ok(s0 !== undefined && s1 !== undefined && s2 !== undefined && last !== undefined);
      assert.equal((await stores.journal.firstFrom(subject, 0))?.seq, s0);
      assert.equal((await stores.journal.firstFrom(subject, s1))?.seq, s1);
      assert.equal((await stores.journal.firstFrom(subject, s1 + 1))?.seq, s2);
      assert.equal((await stores.journal.firstFrom(subject, last))?.seq, last);
      assert.equal(await stores.journal.firstFrom(subject, last + 1), undefined);
    });

    test('journal - five thousand messages between others are read complete, in order, in bounded batches, from any position', async () => {
      const subject = freshSubject();
      const others = Array.from({ length: 50 }, freshSubject);
      const otherSeqs = others.map(() => 0);
      const seqs: number[] = [];
      for (let i = 0; i < 5_000; i++) {
        const k = i % others.length;
        const [seq, otherSeq] = await Promise.all([
          stores.journal.append(subject, bytes(`e${i}`), seqs.at(-1) ?? 0),
          stores.journal.append(others[k] ?? '', bytes('other'), otherSeqs[k] ?? 0),
        ]);
        seqs.push(seq);
        otherSeqs[k] = otherSeq;
      }
      const at = (i: number): number => seqs[i] ?? assert.fail();
      const expect = (from: number, to: number): string[] => Array.from({ length: to - from }, (_, i) => `e${from + i}`);
      const read = async (after_: number, upTo: number): Promise<string[]> => {
        const messages = await all(stores.journal.read(subject, after_, upTo));
        assert.deepEqual(messages.map((m) => m.subject), messages.map(() => subject));
        return messages.map((m) => text(m.data));
      };
      assert.deepEqual(await read(0, at(4_999)), expect(0, 5_000));
      assert.deepEqual((await all(stores.journal.read(subject, 0, at(4_999)))).map((m) => m.seq), seqs);
      assert.deepEqual(await read(at(0), at(1)), ['e1']);
      assert.deepEqual(await read(at(4_000), at(4_999)), expect(4_001, 5_000));
      assert.deepEqual(await read(at(99), at(99 + limits.replayBatchCommits)), expect(100, 100 + limits.replayBatchCommits));
      assert.deepEqual(await read(at(10), at(10)), []);
      assert.deepEqual(await read(at(10), at(9)), []);
    });

    test('journal - a bound that is not a message of the subject ends the read before it', async () => {
      const subject = freshSubject();
      const seqs = await fill(subject, 3);
      const last = seqs.at(-1) ?? 0;
      const other = await stores.journal.append(freshSubject(), bytes('other'), 0);
      assert.deepEqual((await all(stores.journal.read(subject, 0, other))).map((m) => m.seq), seqs);
      assert.deepEqual((await all(stores.journal.read(subject, 0, last + 1_000))).map((m) => m.seq), seqs);
    });

    test('journal - a batch is no greater than asked for, but for one message, and nothing is missing between batches', async () => {
      const subject = freshSubject();
      const size = 10_000;
      let seq = 0;
      for (let i = 0; i < 10; i++) seq = await stores.journal.append(subject, new Uint8Array(size).fill(i), seq);
      for (const [batchBytes, most] of [[1, 1], [size, 2], [size * 3, 4], [size * 100, 10]] as const) {
        const batches: number[][] = [];
        for await (const batch of stores.journal.read(subject, 0, seq, batchBytes)) batches.push(batch.map((m) => m.data[0] ?? -1));
        assert.deepEqual(batches.flat(), Array.from({ length: 10 }, (_, i) => i), `${batchBytes}`);
        for (const batch of batches) assert.ok(batch.length <= most, `${batch.length} messages in a batch of ${batchBytes} bytes`);
      }
    });

    test('journal - a read that is given up halfway asks for no more', async () => {
      const subject = freshSubject();
      const seqs = await fill(subject, limits.replayBatchCommits + 10);
      for await (const batch of stores.journal.read(subject, 0, seqs.at(-1) ?? 0)) {
        assert.equal(batch[0]?.seq, seqs[0]);
        break;
      }
      assert.equal((await stores.journal.last(subject))?.seq, seqs.at(-1));
    });

    test('last value - the last put is what get gives, and delete leaves nothing', async () => {
      const subject = snapshotSubject(partition, actor());
      assert.equal(await stores.snapshots.get(subject), undefined);
      await stores.snapshots.put(subject, bytes('one'));
      await stores.snapshots.put(subject, bytes('two'));
      const found = await stores.snapshots.get(subject);
      assert.equal(found?.subject, subject);
      assert.equal(text(found?.data ?? bytes('')), 'two');
      await stores.snapshots.delete(subject);
      assert.equal(await stores.snapshots.get(subject), undefined);
      await stores.snapshots.delete(subject);
      await stores.snapshots.put(subject, bytes('three'));
      assert.equal(text((await stores.snapshots.get(subject))?.data ?? bytes('')), 'three');
    });

    test('last value - a deleted value takes no other with it', async () => {
      const [a, b] = [snapshotSubject(partition, actor()), snapshotSubject(partition, actor())];
      await stores.snapshots.put(a, bytes('a'));
      await stores.snapshots.put(b, bytes('b'));
      await stores.snapshots.delete(a);
      assert.equal(await stores.snapshots.get(a), undefined);
      assert.equal(text((await stores.snapshots.get(b))?.data ?? bytes('')), 'b');
    });

    test('last value - a list holds the last value of every subject of its partition and nothing else', async () => {
      const [mine, theirs] = [21, 2];
      assert.deepEqual(await stores.reminders.list(wildcards.reminders(mine)), []);
      const wanted = new Map<string, string>();
      for (let i = 0; i < limits.replayBatchCommits * 2 + 5; i++) {
        const subject = reminderSubject(mine, actor());
        await stores.reminders.put(subject, bytes(`r${i}`));
        wanted.set(subject, `r${i}`);
      }
      await stores.reminders.put(reminderSubject(theirs, actor()), bytes('theirs'));
      const [replaced, deleted] = wanted.keys();
      assert.ok(replaced !== undefined && deleted !== undefined);
      await stores.reminders.put(replaced, bytes('replaced'));
      wanted.set(replaced, 'replaced');
      await stores.reminders.delete(deleted);
      wanted.delete(deleted);
      const found = new Map((await stores.reminders.list(wildcards.reminders(mine))).map((m) => [m.subject, text(m.data)]));
      if (listLags) found.delete(deleted);
      assert.equal(found.size, wanted.size);
      for (const [subject, value] of wanted) assert.equal(found.get(subject), value);
    });

    test('last value - snapshots and reminders of one actor are apart', async () => {
      const a = actor();
      await stores.snapshots.put(snapshotSubject(partition, a), bytes('snapshot'));
      assert.equal(await stores.reminders.get(reminderSubject(partition, a)), undefined);
    });

    test('feed - each commit arrives once, in order, after it was stored, with its sequence and the one before', async () => {
      const a = actor();
      const subject = journalSubject(partition, a);
      const first = await stores.journal.append(subject, bytes('before the watch'), 0);
      const seen: { data: string; seq: number; previous: number }[] = [];
      let arrived: () => void;
      const complete = new Promise<void>((resolve) => { arrived = resolve; });
      const watch = await stores.feed.watch(eventsSubject(a), (data, seq, previous) => {
        seen.push({ data: text(data), seq, previous });
        if (seen.length === 100) arrived();
      });
      const wanted: typeof seen = [];
      let seq = first;
      const other = freshSubject();
      let otherSeq = 0;
      for (let i = 0; i < 100; i++) {
        const previous = seq;
        seq = await stores.journal.append(subject, bytes(`e${i}`), seq);
        wanted.push({ data: `e${i}`, seq, previous });
        otherSeq = await stores.journal.append(other, bytes('other actor'), otherSeq);
      }
      await complete;
      assert.deepEqual(seen, wanted);
      watch.stop();
    });

    test('feed - a refused append is not seen, and a stopped watch sees nothing more', async () => {
      const a = actor();
      const subject = journalSubject(partition, a);
      const seen: string[] = [];
      const stopped: string[] = [];
      let arrived: (() => void) | undefined;
      const watch = await stores.feed.watch(eventsSubject(a), (data) => { seen.push(text(data)); arrived?.(); });
      const gone = await stores.feed.watch(eventsSubject(a), (data) => { stopped.push(text(data)); });
      gone.stop();
      const both = new Promise<void>((resolve) => { arrived = () => { if (seen.length === 2) resolve(); }; });
      const first = await stores.journal.append(subject, bytes('e0'), 0);
      await assert.rejects(stores.journal.append(subject, bytes('stale'), 0), code('fenced'));
      await stores.journal.append(subject, bytes('e1'), first);
      await both;
      assert.deepEqual(seen, ['e0', 'e1']);
      assert.deepEqual(stopped, []);
      watch.stop();
    });

    test('inbox - a message is taken, and taken again under the same id', async () => {
      const subject = inboxSubject(partition, actor(), 'add');
      await stores.inbox.send(subject, 'id-1', bytes('{}'));
      await stores.inbox.send(subject, 'id-1', bytes('{}'));
      await stores.inbox.send(subject, 'ä id\r\nwith: a line end', bytes('{}'));
    });
  });
};
