/** The bounds of deployments' knowledge: a part of `limits` (limits.ts), which is where they are read. */
export const knowledgeLimits = {
  /** Bytes of one document. Larger: `payload_too_large`; a blob that is larger is stored and not indexed. */
  knowledgeDocumentMaxBytes: 1024 * 1024,
  /** Characters of a document's path. Longer: `invalid_argument`. */
  knowledgePathMaxChars: 512,
  /** Characters of a node's id, and of a title; a longer id is cut and gets a hash, a longer title is cut. */
  knowledgeIdMaxChars: 120,
  knowledgeTitleMaxChars: 200,
  /** Documents of one request. More: `invalid_argument`. */
  knowledgeBatchMax: 64,
  /** Bytes of a request's body that holds documents. Longer: `payload_too_large`. Within `linkFrameMaxBytes`; holds any one document as JSON. */
  knowledgeBodyMaxBytes: 3 * 1024 * 1024,
  /** Documents of one deployment, and bytes of them all. More: `payload_too_large`, and nothing of the request is indexed. */
  knowledgeDocumentsMax: 20_000,
  knowledgeMaxBytes: 512 * 1024 * 1024,
  /** Bytes of a document's frontmatter that is read; a longer one counts as text. */
  knowledgeFrontmatterMaxBytes: 16 * 1024,
  /** Tags and aliases of one document, its links, and its facts; further ones are left out. */
  knowledgeTagsMax: 64,
  knowledgeLinksMax: 1_000,
  knowledgeFactsMax: 128,
  /** Characters of a tag, an alias or a link's name, and of a fact; longer ones are left out, a fact is cut. */
  knowledgeNameMaxChars: 200,
  knowledgeFactMaxChars: 300,
  /** Characters of a query. Longer: `invalid_argument`. Different words of it that count: the first. */
  knowledgeQueryMaxChars: 1_000,
  knowledgeQueryWordsMax: 32,
  /** Words that a word nobody used is completed to, the first ones found. */
  knowledgeCompletionsMax: 16,
  /** Results of a search: when the caller does not say, and at most (decisions). More: `invalid_argument`. */
  knowledgeResultsUsual: 10,
  knowledgeResultsMax: 100,
  /** Characters of an excerpt. */
  knowledgeExcerptMaxChars: 240,
  /** Depth of a graph at most (decisions; more: `invalid_argument`), and nodes of it: the nearest. */
  knowledgeDepthMax: 5,
  knowledgeNodesMax: 500,
  /** Bytes of a document that the reading tool gives a model; the rest is cut and the cut is named. */
  knowledgeReadMaxBytes: 32 * 1024,
  /** Bytes of the indexes of one daemon, as they estimate themselves. More: the least recently used are dropped, and read again from their snapshots. */
  knowledgeIndexesMaxBytes: 384 * 1024 * 1024,
  /** Indexes of one daemon, empty ones too. More: as above. */
  knowledgeIndexesMax: 1_024,
  /** Milliseconds that a request waits for an index that is being read or made. Then `overloaded`, and the work goes on. */
  knowledgeWaitMs: 8_000,
  /** Mebibytes of heap of the thread that holds them. Beyond: it ends, and they are read again. */
  knowledgeHeapMaxMiB: 1_024,
  /** Requests of one daemon that its index thread has not answered. More: `overloaded`. */
  knowledgeAsksMax: 256,
  /** Searches and graphs of one deployment among them. More: `overloaded`, so that it takes no other's place. */
  knowledgeAsksOfOneMax: 16,
  /** Milliseconds that thread may take for one. Then it is ended and begun anew, and what waited is refused with `overloaded`. */
  knowledgeAskMs: 20_000,
  /** Documents that one daemon reads from the store at once for one index, and documents it then gives to the thread in one go. */
  knowledgeReadsMax: 32,
  knowledgeChunkMax: 256,
  /** Bytes of texts that one daemon has just stored and keeps until its index has taken them; the oldest are read from the store. */
  knowledgeFreshMaxBytes: 32 * 1024 * 1024,
  /** Changes of an index after which its snapshot is written: at least so many, and at least one of so many documents. */
  knowledgeSnapshotEvery: 256,
  knowledgeSnapshotShare: 8,
  /** Changes that are written into a snapshot when nothing has changed for so many milliseconds. */
  knowledgeSnapshotIdleChanges: 16,
  knowledgeSnapshotIdleMs: 5_000,
  /** Bytes of a snapshot. Larger: not written, with a warning. */
  knowledgeSnapshotMaxBytes: 512 * 1024 * 1024,
  /** Files of one import, and requests of it under way at once. More files: `bad_usage`. */
  knowledgeImportFilesMax: 100_000,
  knowledgeImportRequestsMax: 4,
  /** Times that an import repeats a request that was refused for a while, and milliseconds before the first repeat; doubles. A Retry-After is waited for. */
  knowledgeImportRetriesMax: 8,
  knowledgeImportRetryMs: 250,
} as const;
