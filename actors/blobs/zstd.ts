/**
 * zstd of whole frames (RFC 8878): the platform's own where it has one (Node 22.15 and later), else the WebAssembly build. Each reads what
 * the other wrote; which one made a frame is not to be seen in it.
 *
 * Guarantee: what is read back has exactly the expected length, or it is refused; so no frame makes a reader hold more than its writer did.
 * The native one works on the process' thread pool; the other on the event loop (some 20 to 150 ms for a frame of 4 MiB).
 */
import zlib from 'node:zlib';
import { coded } from '../../contracts/errors.ts';

export interface Zstd {
  readonly name: 'native' | 'wasm';
  /** One frame that names its content's size. */
  compress(content: Uint8Array): Promise<Uint8Array>;
  /** The content of one frame, which has `size` bytes. Throws `blob_damaged` for everything else. */
  decompress(frame: Uint8Array, size: number): Promise<Uint8Array>;
}

const damaged = (cause?: unknown): Error => coded('blob_damaged', undefined, { cause });

/** Undefined where this Node has none. */
export const nativeZstd = (): Zstd | undefined => {
  // Typed as always there; Node 20 and 22.0 to 22.14 have neither.
  const { zstdCompress, zstdDecompress } = zlib as Partial<Pick<typeof zlib, 'zstdCompress' | 'zstdDecompress'>>;
  if (zstdCompress === undefined || zstdDecompress === undefined) return undefined;
  const params = { [zlib.constants.ZSTD_c_checksumFlag]: 1 };
  return {
    name: 'native',
    compress: (content) => new Promise((resolve, reject) => {
      zstdCompress(content, { params, pledgedSrcSize: content.length }, (error, frame) => (error === null ? resolve(frame) : reject(error)));
    }),
    decompress: (frame, size) => new Promise((resolve, reject) => {
      // One byte more than allowed shows that there is more; zlib takes no bound of 0.
      zstdDecompress(frame, { maxOutputLength: size + 1 }, (error, content) => {
        if (error === null && content.length === size) resolve(content);
        else reject(damaged(error ?? undefined));
      });
    }),
  };
};

/** Size that a frame names, of the forms that `compress` writes (RFC 8878, 3.1.1.1); undefined for any other. */
const namedSize = (frame: Uint8Array): number | undefined => {
  if (frame.length < 9) return undefined;
  const bytes = Buffer.from(frame.buffer, frame.byteOffset, frame.byteLength);
  if (bytes.readUInt32LE(0) !== 0xfd2fb528) return undefined;
  const descriptor = bytes.readUInt8(4);
  const single = (descriptor & 0x20) !== 0;
  // No dictionary; with a window byte unless it is a single segment.
  if ((descriptor & 0x03) !== 0) return undefined;
  const at = single ? 5 : 6;
  switch (descriptor >> 6) {
    case 0: return single ? bytes.readUInt8(at) : undefined;
    case 1: return at + 2 <= bytes.length ? bytes.readUInt16LE(at) + 256 : undefined;
    case 2: return at + 4 <= bytes.length ? bytes.readUInt32LE(at) : undefined;
    default: return undefined;
  }
};

export const wasmZstd = async (): Promise<Zstd> => {
  const wasm = await import('@bokuweb/zstd-wasm');
  await wasm.init();
  return {
    name: 'wasm',
    compress: async (content) => wasm.compress(content),
    decompress: async (frame, size) => {
      // It allocates what a frame names, so that is looked at first.
      if (namedSize(frame) !== size) throw damaged();
      if (size === 0) return new Uint8Array();
      let content: Uint8Array;
      try {
        content = wasm.decompress(frame);
      } catch (error) {
        throw damaged(error);
      }
      if (content.length !== size) throw damaged();
      return content;
    },
  };
};

export const openZstd = async (): Promise<Zstd> => nativeZstd() ?? wasmZstd();
