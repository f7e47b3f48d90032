/** Content that does not go into a message itself: a file, or text larger than a frame, stored as a blob first. */
import { open } from 'node:fs/promises';
import { resolve } from 'node:path';
import { coded, refuse } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { Edge } from '../client/edge.ts';
import { frameBytes } from '../client/outbox.ts';

export interface Content {
  readonly content: string;
  readonly attachment?: string;
}

/** Stores a file. Throws `bad_usage` when it cannot be read, `payload_too_large` over `limits.attachmentMaxBytes` without reading it. */
export const attachFile = async (edge: Edge, path: string, cwd: string): Promise<{ hash: string; size: number }> => {
  const full = resolve(cwd, path);
  let bytes: Buffer<ArrayBuffer>;
  try {
    const file = await open(full, 'r');
    try {
      const { size } = await file.stat();
      if (size > limits.attachmentMaxBytes) throw coded('payload_too_large', `${full} has ${size} bytes; an attachment may have ${limits.attachmentMaxBytes}.`);
      bytes = await file.readFile();
    } finally {
      await file.close();
    }
  } catch (error) {
    if (error instanceof Error && 'code' in error && 'syscall' in error) throw refuse('bad_usage', `${full} cannot be read (${String(error.code)}).`);
    throw error;
  }
  return edge.putBlob(new Uint8Array(bytes));
};

/** The text as a message's content or, when it does not fit a frame, as an attachment with a line that says so. */
export const fitContent = async (edge: Edge, text: string): Promise<Content> => {
  // An id of the longest allowed length and an attachment's reference stand for what is not known yet.
  const frame = { kind: 'send_message', content: text, message_id: 'x'.repeat(limits.idMaxChars), attachment_blob_ref: `sha256:${'0'.repeat(64)}` } as const;
  if (frameBytes(frame) <= limits.clientFrameMaxBytes) return { content: text };
  const { hash, size } = await edge.putBlob(new TextEncoder().encode(text));
  return { content: `The message is attached (${size} bytes of text).`, attachment: hash };
};
