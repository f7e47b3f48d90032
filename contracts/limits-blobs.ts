/** The bounds of deployments' blobs: a part of `limits` (limits.ts), which is where they are read. */
export const blobLimits = {
  // --- blobs of deployments ----------------------------------------------------------------------------------------
  /** Bytes of one blob's content (decisions: 512 MiB). More: `payload_too_large`, nothing is stored. */
  blobMaxBytes: 512 * 1024 * 1024,
  /**
   * Bytes of content in one zstd frame, and of one stored message of it, below NATS' default payload of 1 MiB. Both are kept with each blob: they
   * may be changed. A content within one frame can be read by decoders that know no frame behind the first (Node's own, nodejs/node#64741).
   */
  blobFrameBytes: 4 * 1024 * 1024,
  blobPartBytes: 512 * 1024,
  /** Bytes that one deployment's blobs may hold as they are stored, each counted with at least so many. More: `payload_too_large`. Passed by what is under way at once at most. */
  blobQuotaBytes: 64 * 1024 * 1024 * 1024,
  blobQuotaMinBytes: 4 * 1024,
  /** Uploads of one deployment that one daemon takes at once. More: `rate_limited`. */
  blobUploadsMax: 8,
  /** Uploads and downloads of blobs that one daemon serves at once, each of which holds some frames. More: `overloaded`. */
  blobTransfersMax: 32,
  /** Milliseconds one upload may take in all, and may bring nothing. Then it is given up. */
  blobUploadMs: 3_600_000,
  blobSilenceMs: 60_000,
  /** Characters of a blob's content type. Longer, or none that can be a header: `application/octet-stream`. */
  blobTypeMaxChars: 255,
  /** Parts of a multipart upload, and bytes of one that is no file. More: `invalid_argument`. */
  blobPartsMax: 16,
  blobFieldMaxBytes: 16 * 1024,
  /** Bytes of markdown that is given to the knowledge index. Longer is stored, and not indexed. */
  blobMarkdownMaxBytes: 1024 * 1024,
  /** Milliseconds between two looks of a daemon for uploads that nobody ended (their daemon was killed), after which one is erased, and uploads one look erases. */
  blobSweepMs: 3_600_000,
  blobSweepAgeMs: 86_400_000,
  blobSweepMax: 1_000,
  /** Deployments of which one daemon remembers what their blobs hold; of the least recently used it is counted again. */
  blobUsagesMax: 10_000,

  // --- bodies over the link ----------------------------------------------------------------------------------------
  /** Bytes of a request's body that a daemon lets come ahead of what it has taken. */
  linkBodyWindowBytes: 512 * 1024,
  /** Bytes of one piece of a body on the link. */
  linkBodyPieceBytes: 64 * 1024,
  /** Bytes of a body that have come at which its client is not read any further. What one read of the listener brings comes still: 512 KiB. */
  bodyHeldBytes: 256 * 1024,
  /** Half of the bytes, as Linux counts them, that the kernel holds of one connection before the gateway reads it: less than one read of uWebSockets.js (512 KiB) takes. */
  receiveBufferBytes: 224 * 1024,
  /** Bytes, and milliseconds, of a refused body that are read and dropped so that its client sees the refusal; then the connection is closed with it. */
  bodyDropMaxBytes: 8 * 1024 * 1024,
  bodyDropMs: 2_000,
} as const;
