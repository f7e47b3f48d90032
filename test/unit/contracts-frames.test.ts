/** Frames of the link and bodies from outside: what is encoded comes back, what is broken is refused by its code. */
import assert from 'node:assert/strict';
import test from 'node:test';
import fc from 'fast-check';
import { z } from 'zod';
import { CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import {
  decodeClose, decodeData, decodeRequest, decodeResponse, encodeClose, encodeCredit, encodeData, encodeFrame, encodeRequest, encodeResponse, FrameReader, frameType,
  type Frame,
} from '../../contracts/link.ts';
import { encodeAgentEvent, wireInbound, wireOutbound } from '../../contracts/stream.ts';
import { isId, parseJson, parseValue, plainId, rule, userId } from '../../contracts/validate.ts';

const seed = Number(process.env['TEST_SEED'] ?? Date.now() % 1_000_000_007);
const check = <T extends unknown[]>(property: fc.IPropertyWithHooks<T>, t: { diagnostic(text: string): void }, numRuns = 500): void => {
  t.diagnostic(`seed ${seed}`);
  fc.assert(property, { seed, numRuns });
};
const hasCode = (code: string) => (error: unknown): boolean => error instanceof CodedError && error.code === code;
const bytes = fc.uint8Array({ maxLength: 300 });
const u32 = fc.nat({ max: 0xffff_ffff });

/** Frames read of chunks; payloads copied, since they are views. */
const readAll = (chunks: readonly Buffer[]): Frame[] => {
  const frames: Frame[] = [];
  const reader = new FrameReader((frame) => frames.push({ ...frame, payload: Buffer.from(frame.payload) }));
  for (const chunk of chunks) reader.push(chunk);
  return frames;
};
const only = (frame: Buffer): Frame => {
  const [read, ...more] = readAll([frame]);
  assert.ok(read !== undefined && more.length === 0);
  return read;
};

test('frames - any frames cut at any places come back whole and in order', (t) => {
  const type = fc.constantFrom(...Object.values(frameType));
  check(fc.property(fc.array(fc.tuple(type, u32, bytes), { maxLength: 12 }), fc.array(fc.nat({ max: 40 }), { minLength: 1, maxLength: 60 }), (frames, cuts) => {
    const whole = Buffer.concat(frames.map(([kind, id, payload]) => encodeFrame(kind, id, payload)));
    const chunks: Buffer[] = [];
    for (let at = 0, i = 0; at < whole.length; i++) {
      const next = at + 1 + (cuts[i % cuts.length] ?? 0);
      chunks.push(whole.subarray(at, next));
      at = next;
    }
    assert.deepEqual(readAll(chunks), frames.map(([kind, id, payload]) => ({ type: kind, id, payload: Buffer.from(payload) })));
  }), t);
});

test('frames - a length over the bound, under the least, or an unknown type ends the reading', () => {
  const head = (length: number, type: number): Buffer => {
    const buffer = Buffer.alloc(9);
    buffer.writeUInt32BE(length, 0);
    buffer.writeUInt8(type, 4);
    return buffer;
  };
  assert.throws(() => readAll([head(limits.linkFrameMaxBytes + 1, 1)]), hasCode('frame_too_large'));
  assert.throws(() => readAll([head(0xffff_ffff, 1)]), hasCode('frame_too_large'));
  for (const short of [0, 1, 4]) assert.throws(() => readAll([head(short, 1)]), hasCode('protocol_error'));
  for (const type of [0, Math.max(...Object.values(frameType)) + 1, 255]) assert.throws(() => readAll([head(5, type)]), hasCode('protocol_error'));
  assert.throws(() => encodeFrame(frameType.data, 1, Buffer.alloc(limits.linkFrameMaxBytes)), hasCode('frame_too_large'));
  assert.equal(only(encodeFrame(frameType.data, 1, Buffer.alloc(limits.linkFrameMaxBytes - 5))).payload.length, limits.linkFrameMaxBytes - 5);
});

test('frames - a request names route, deadline, token and body', (t) => {
  const tokens = fc.string({ unit: fc.constantFrom(...'abcXYZ019._-'.split('')), maxLength: 200 });
  check(fc.property(fc.nat({ max: 0xffff }), u32, u32, tokens, bytes, (route, id, deadlineMs, token, body) => {
    const frame = only(encodeRequest(frameType.request, id, { route, deadlineMs, token, body }));
    assert.equal(frame.id, id);
    const read = decodeRequest(frame.payload);
    assert.deepEqual({ ...read, body: Buffer.from(read.body) }, { route, deadlineMs, token, body: Buffer.from(body) });
  }), t);
  assert.throws(() => encodeRequest(frameType.open, 1, { route: 1, deadlineMs: 1, token: 'x'.repeat(limits.bearerMaxBytes + 1), body: '' }), hasCode('bad_bearer'));
});

test('frames - a request cut anywhere in its head is a protocol error', () => {
  const { payload } = only(encodeRequest(frameType.request, 1, { route: 7, deadlineMs: 9, token: 'token', body: '' }));
  for (let length = 0; length < payload.length; length++) assert.throws(() => decodeRequest(payload.subarray(0, length)), hasCode('protocol_error'), String(length));
});

test('frames - responses and closes carry their code; half of one is a protocol error', (t) => {
  check(fc.property(fc.nat({ max: 0xffff }), fc.string({ unit: 'grapheme', maxLength: 40 }), (code, text) => {
    const response = decodeResponse(only(encodeResponse(3, code, Buffer.from(text))).payload);
    assert.deepEqual([response.status, response.body.toString()], [code, Buffer.from(text).toString()]);
    assert.deepEqual(decodeClose(only(encodeClose(3, code, text)).payload), { code, reason: Buffer.from(text).toString() });
  }), t);
  for (const short of [Buffer.alloc(0), Buffer.alloc(1)]) {
    assert.throws(() => decodeResponse(short), hasCode('protocol_error'));
    assert.throws(() => decodeClose(short), hasCode('protocol_error'));
  }
  assert.equal(only(encodeCredit(9, 0xffff_fffe)).payload.readUInt32BE(0), 0xffff_fffe);
});

test('frames - data goes to many streams, every text in order, and costs each its bytes', (t) => {
  check(fc.property(fc.array(u32, { maxLength: 20 }), fc.array(bytes, { maxLength: 10 }), (streams, texts) => {
    const frame = only(encodeData(streams, texts));
    assert.equal(frame.id, 0);
    const read = decodeData(frame.payload);
    assert.deepEqual(read.streams, streams);
    assert.deepEqual(read.texts.map((text) => Buffer.from(text)), texts.map((text) => Buffer.from(text)));
    assert.equal(read.bytes, texts.reduce((sum, text) => sum + text.length, 0));
  }), t);
});

test('frames - data cut inside a stream list or a text is a protocol error', () => {
  const { payload } = only(encodeData([1, 2], [Buffer.from('abc'), Buffer.from('de')]));
  const whole = new Set([10, 17, payload.length]);
  for (let length = 0; length < payload.length; length++) {
    if (whole.has(length)) assert.doesNotThrow(() => decodeData(payload.subarray(0, length)));
    else assert.throws(() => decodeData(payload.subarray(0, length)), hasCode('protocol_error'), String(length));
  }
});

test('frames - random bytes are read or refused by code, never anything else', (t) => {
  const allowed = new Set(['protocol_error', 'frame_too_large', 'bad_bearer']);
  check(fc.property(bytes, (noise) => {
    for (const decode of [(b: Buffer): unknown => readAll([b]), decodeRequest, decodeResponse, decodeData, decodeClose]) {
      try {
        decode(Buffer.from(noise));
      } catch (error) {
        assert.ok(error instanceof CodedError && allowed.has(error.code), String(error));
      }
    }
  }), t, 2_000);
});

test('stream - the frame of an event is JSON of the contract\'s shape, whatever its texts hold', (t) => {
  check(fc.property(fc.string({ unit: 'binary', maxLength: 50 }), fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }), (text, seqNo) => {
    const frame: unknown = JSON.parse(encodeAgentEvent('sid', seqNo, 'TextDelta', '2026-01-02T03:04:05.678Z', 'TOKEN', { text }));
    const event = wireInbound.parse(frame);
    assert.ok(event.kind === 'agent_event');
    assert.equal(event.seq_no, seqNo);
    assert.equal(event.record.sequence, seqNo);
    assert.deepEqual(event.record.payload, { text });
  }), t);
});

test('stream - client frames refuse unknown kinds, unknown fields and wrong types', () => {
  const takes = (frame: unknown): boolean => wireOutbound.safeParse(frame).success;
  assert.ok(takes({ kind: 'send_message', content: '' }));
  assert.ok(takes({ kind: 'cancel_dispatch', dispatch_id: '' }), 'empty = the running turn');
  assert.ok(takes({ kind: 'close' }));
  for (const frame of [
    null, [], 'ping', {}, { kind: 'dance' }, { kind: 'Ping', seq_no: 1 }, { kind: 'ping' }, { kind: 'ping', seq_no: -1 }, { kind: 'ping', seq_no: 1.5 }, { kind: 'ping', seq_no: '1' },
    { kind: 'send_message' }, { kind: 'send_message', content: 1 }, { kind: 'send_message', content: 'x', extra: 1 }, { kind: 'send_message', content: 'x', message_id: '' },
    { kind: 'send_message', content: 'x', attachment_blob_ref: 'md5:1' }, { kind: 'approve_dispatch', dispatch_id: '' }, { kind: 'approve_dispatch' },
  ]) assert.equal(takes(frame), false, JSON.stringify(frame));
});

test('validate - ids are 1 to 128 characters, counted as people do, without control characters', () => {
  for (const good of ['a', 'x'.repeat(128), '😀'.repeat(128), 'ada@example.com', 'имя', ' ']) assert.ok(isId(good), good);
  for (const bad of ['', 'x'.repeat(129), '😀'.repeat(129), 'a\u0000', 'a\nb', '\u007f', 'a\u0085', '\u001b[31m', '\ud800']) assert.ok(!isId(bad), JSON.stringify(bad));
});

const issuesOf = (error: CodedError): { path: string }[] => z.array(z.looseObject({ path: z.string() })).parse(error.details?.['issues']);

test('validate - no JSON is bad_request; a wrong shape validation_error with its path; a broken rule its own code', () => {
  assert.throws(() => parseJson('{"a":'), hasCode('bad_request'));
  const schema = z.strictObject({ user_id: userId, inner: z.strictObject({ n: z.int(), label: plainId.optional() }) });
  const refusal = (value: unknown): CodedError => {
    try {
      parseValue(schema, value);
    } catch (error) {
      assert.ok(error instanceof CodedError);
      return error;
    }
    return assert.fail('not refused');
  };
  assert.equal(refusal({ user_id: 'a', inner: { n: 1 }, more: 1 }).code, 'validation_error');
  assert.equal(refusal({ inner: { n: 1 } }).code, 'validation_error');
  const nested = refusal({ user_id: 'a', inner: { n: 'x' } });
  assert.equal(nested.code, 'validation_error');
  assert.deepEqual(issuesOf(nested).map((issue) => issue.path), ['inner.n']);
  assert.equal(refusal({ user_id: '', inner: { n: 1 } }).code, 'bad_user_id');
  assert.equal(refusal({ user_id: 'a', inner: { n: 1, label: '' } }).code, 'bad_request');
  assert.equal(refusal({ user_id: '', inner: { n: 'x' } }).code, 'validation_error', 'shape before rules');
  assert.deepEqual(parseValue(schema, { user_id: 'a', inner: { n: 1 } }), { user_id: 'a', inner: { n: 1 } });
  assert.throws(() => parseValue(z.string().refine(...rule((text: string) => text === 'x', 'conflict')), 'y'), CodedError);
});

test('validate - a refusal names at most eight problems and none of the values', () => {
  const many = Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`k${i}`, z.int()]));
  assert.throws(() => parseValue(z.strictObject(many), Object.fromEntries(Object.keys(many).map((key) => [key, 'hunter2']))), (error: unknown) => {
    assert.ok(error instanceof CodedError);
    assert.equal(issuesOf(error).length, 8);
    assert.doesNotMatch(JSON.stringify(error.details), /hunter2/);
    return true;
  });
});
