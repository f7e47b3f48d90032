/** One answer over a stream that a test gives room to: who writes waits, says that the client is slow, and gives one up that takes nothing. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import type { Stream, StreamEvents } from '../../actors/daemon/link-stream.ts';
import { StreamAnswer } from '../../actors/daemon/platform/stream-answer.ts';
import { chatRoutes } from '../../contracts/chat-routes.ts';
import { anyRouteByWire } from '../../contracts/platform-routes.ts';
import { CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';

const opened = (t: TestContext) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let events: StreamEvents | undefined;
  let credit = 0;
  const sent: string[] = [];
  const closed: number[] = [];
  const paces: boolean[] = [];
  const route = anyRouteByWire.get(chatRoutes.uiChat.wire);
  assert.ok(route !== undefined);
  const stream: Stream = {
    id: 1, route, token: '', body: Buffer.alloc(0),
    peer: { full: false, send: (_streams, texts) => { for (const one of texts) { sent.push(Buffer.from(one).toString('utf8')); credit -= one.length; } return true; } } as Stream['peer'],
    get credit() { return credit; },
    room: (bytes) => bytes <= credit,
    listen: (listener) => { events = listener; },
    close: (code) => { closed.push(code); },
    // The body of a chat request is not streamed.
    grant: () => assert.fail('nothing was to be granted'),
  };
  let over = 0;
  const answer = new StreamAnswer(stream, () => { over += 1; });
  answer.onPace((slow) => { paces.push(slow); });
  const give = (bytes: number): void => {
    credit += bytes;
    events?.onRoom();
  };
  const codeOf = (written: Promise<void>): Promise<string> => written.then(() => 'written', (error: unknown) => (error instanceof CodedError ? error.code : String(error)));
  return { answer, sent, closed, paces, give, codeOf, leave: () => { events?.onEnd(); }, ended: () => over };
};
const turn = (): Promise<void> => new Promise((resolve) => { setImmediate(resolve); });

test('stream answer - with room it sends at once and says nothing; a short wait for room is no slow client', async (t) => {
  const { answer, sent, paces, give } = opened(t);
  give(4);
  await answer.write('1234');
  assert.deepEqual([sent, paces], [['1234'], []]);
  const written = answer.write('56');
  t.mock.timers.tick(limits.chatSlowMs - 1);
  give(2);
  await written;
  assert.deepEqual([sent, paces.includes(true)], [['1234', '56'], false]);
});

test('stream answer - a client without room for a while is slow until there is room', async (t) => {
  const { answer, sent, paces, give } = opened(t);
  const written = answer.write('12345678');
  t.mock.timers.tick(limits.chatSlowMs);
  assert.deepEqual(paces, [true]);
  give(4);
  await turn();
  assert.deepEqual([sent, paces], [[], [true]]);
  give(4);
  await written;
  assert.deepEqual([sent, paces], [['12345678'], [true, false]]);
});

test('stream answer - one that takes something now and then is waited for, one that takes nothing is given up', async (t) => {
  const { answer, sent, give, codeOf } = opened(t);
  const written = codeOf(answer.write('x'.repeat(100)));
  for (let taken = 0; taken < 99; taken++) {
    t.mock.timers.tick(limits.chatStallMs - 1);
    give(1);
    await turn();
  }
  t.mock.timers.tick(limits.chatStallMs);
  assert.equal(await written, 'aborted');
  assert.deepEqual(sent, []);
});

test('stream answer - a writer is released by the client\'s end and by the answer\'s, and the end is told once', async (t) => {
  for (const end of ['leave', 'cut'] as const) {
    await t.test(end, async (own) => {
      const { answer, leave, codeOf, ended, closed } = opened(own);
      const written = codeOf(answer.write('x'));
      await turn();
      if (end === 'leave') leave();
      else answer.cut();
      assert.equal(await written, 'aborted');
      assert.deepEqual([ended(), closed.length, answer.signal.aborted], [1, end === 'cut' ? 1 : 0, end === 'leave']);
    });
  }
});
