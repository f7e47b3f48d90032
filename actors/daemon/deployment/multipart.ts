/**
 * The one file of a multipart/form-data body (RFC 7578), given on as it comes.
 *
 * Guarantees: whoever takes the file is never given more than he has room for; a body with no file or several, with too many parts, or cut before
 * its end, is `invalid_argument`. Fields that are no file are ignored.
 */
import { once } from 'node:events';
import { Busboy, type BusboyFileStream, type BusboyInstance } from '@fastify/busboy';
import { coded, CodedError } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';

/** Takes the file's pieces; a piece may be used again once it has resolved. */
export interface FileSink {
  write(bytes: Uint8Array): Promise<void>;
}

const wrong = (message: string, cause?: unknown): CodedError => coded('invalid_argument', message, { details: { field: 'body', constraint: message }, cause });

/** True for a content type of such a body. */
export const isMultipart = (contentType: string): boolean => /^multipart\/form-data\s*(;|$)/i.test(contentType);

const openParser = (contentType: string): BusboyInstance => {
  try {
    return new Busboy({
      headers: { 'content-type': contentType },
      limits: { files: 2, fields: limits.blobPartsMax, parts: limits.blobPartsMax, fieldSize: limits.blobFieldMaxBytes, headerPairs: 32, headerSize: limits.blobFieldMaxBytes },
    });
  } catch (cause) {
    throw wrong('The multipart body names no boundary.', cause);
  }
};

/**
 * Reads the body to its end. `begin` is called with the file's media type when it comes. Throws `invalid_argument`, and what `begin`, the sink or
 * the body throw; the sink then has had a part of the file.
 */
export const readFile = async (contentType: string, body: AsyncIterable<Buffer>, begin: (type: string) => Promise<FileSink>): Promise<void> => {
  const parser = openParser(contentType);
  const failed = Promise.withResolvers<never>();
  // Met by whoever waits for something else at the time.
  failed.promise.catch(() => undefined);
  const fail = (error: unknown): void => failed.reject(error);
  let file: Promise<void> | undefined;

  const take = async (stream: BusboyFileStream, type: string): Promise<void> => {
    const sink = await begin(type);
    for await (const piece of stream) await sink.write(piece as Buffer);
  };
  parser.on('file', (_field, stream, _name, _encoding, type) => {
    stream.on('error', (cause) => fail(wrong('The multipart body ends in the middle of a part.', cause)));
    if (file !== undefined) {
      stream.resume();
      return fail(wrong('The multipart body has several files.'));
    }
    file = take(stream, type);
    file.catch(fail);
  });
  const tooMany = (): void => fail(wrong('The multipart body has too many parts.'));
  parser.on('partsLimit', tooMany);
  parser.on('fieldsLimit', tooMany);
  parser.on('filesLimit', tooMany);
  parser.on('error', (cause) => fail(wrong('The multipart body is malformed.', cause)));

  const finished = once(parser, 'finish');
  finished.catch(() => undefined);
  for await (const piece of body) {
    // A failure ends a wait that nothing else would.
    await Promise.race([failed.promise, parser.write(piece) ? undefined : once(parser, 'drain')]);
  }
  parser.end();
  await Promise.race([finished, failed.promise]);
  if (file === undefined) throw wrong('The multipart body has no file.');
  await Promise.race([file, failed.promise]);
};
