/**
 * Knowledge of a deployment (interface 2.16, 4.7; decisions, Deployment services; KNO): documents, search results, the graph, and the contract
 * of the `knowledge` actor, which decides ids and keeps the journal of what is indexed. Org = the organization, key = the deployment's id.
 *
 * Guarantees: a node's id is the slug of its document's path and stays with that path; what the journal says, in its order, is the index.
 * The documents' texts are not in the journal: each event names the stored text by `ref`, which is never used twice.
 */
import { z } from 'zod';
import { limits } from './limits.ts';

// oxlint-disable-next-line no-control-regex -- control characters are what is refused
const printable = /^[^\u0000-\u001f\u007f]*$/;

/**
 * Path of a document in its vault: parts between slashes, none empty, `.` or `..`. A leading `./` or `/`, and backslashes, are put right, so that a path has
 * one form.
 */
export const documentPath = z.string().min(1).max(limits.knowledgePathMaxChars).regex(printable, { error: 'must have no control characters' })
  .transform((path) => path.replaceAll('\\', '/').replace(/^(?:\.?\/)+/, '').normalize('NFC'))
  .refine((path) => path.isWellFormed() && path.length > 0 && path.length <= limits.knowledgePathMaxChars && path.split('/').every((part) => part !== '' && part !== '.' && part !== '..'),
    { error: 'must be parts between slashes, none of them empty, . or ..' });

/** Id of a node: lower-case letters, digits and hyphens. */
export const nodeId = z.string().regex(new RegExp(`^[a-z0-9][a-z0-9-]{0,${limits.knowledgeIdMaxChars - 1}}$`));

/** SHA-256 of a document's UTF-8 bytes. */
export const contentHash = z.string().regex(/^sha256:[0-9a-f]{64}$/, { error: 'must be sha256: and 64 hexadecimal digits' });

const content = z.string().refine((text) => text.isWellFormed(), { error: 'must be well-formed Unicode' });

/**
 * One document to index, or several at once. In a list, a document may come with its `hash` alone: it is then looked up and, if it has to be sent,
 * answered as `missing`.
 */
export const documentsBody = z.union([
  z.strictObject({ path: documentPath, content }),
  z.strictObject({
    documents: z.array(z.union([z.strictObject({ path: documentPath, content }), z.strictObject({ path: documentPath, hash: contentHash })]))
      .min(1).max(limits.knowledgeBatchMax)
      .refine((list) => new Set(list.map(({ path }) => path)).size === list.length, { error: 'must name each path once' }),
  }),
]);
export type DocumentsBody = z.output<typeof documentsBody>;

export const indexedDocument = z.strictObject({
  id: nodeId, path: z.string(), title: z.string(), hash: contentHash, /** Bytes. */ size: z.int().nonnegative(),
  /** False: exactly this was indexed already. */
  indexed: z.boolean(),
});
export const documentOutcome = z.strictObject({ id: nodeId, path: z.string(), status: z.enum(['indexed', 'known', 'missing']) });
export const documentsAnswer = z.union([indexedDocument, z.strictObject({ documents: z.array(documentOutcome) })]);

/** A document as it was posted, with what was read out of it. */
export const knowledgeDocument = z.strictObject({
  id: nodeId, path: z.string(), title: z.string(), tags: z.array(z.string()), aliases: z.array(z.string()), facts: z.array(z.string()),
  hash: contentHash, size: z.int().nonnegative(), content: z.string(),
});

// Parsed at the link and again by the handler, which holds it as unknown: a number passes as it is.
const whole = (most: number) => z.union([z.string().regex(/^[1-9]\d{0,5}$/).transform(Number), z.int().positive()], { error: 'must be a whole number above 0' })
  .refine((n) => n <= most, { error: `must be at most ${most}` });

export const searchQuery = z.strictObject({
  q: z.string().min(1).max(limits.knowledgeQueryMaxChars),
  limit: whole(limits.knowledgeResultsMax).optional(),
});
export const knowledgeResult = z.strictObject({ id: nodeId, title: z.string(), score: z.number(), excerpt: z.string() });
export type KnowledgeResult = z.infer<typeof knowledgeResult>;
export const searchAnswer = z.strictObject({ results: z.array(knowledgeResult) });

export const graphQuery = z.strictObject({
  node: z.string().min(1).max(limits.knowledgePathMaxChars),
  depth: whole(limits.knowledgeDepthMax).optional(),
  /** Also the edges between the nodes of the answer, for a picture. */
  edges: z.literal('true').optional(),
});
export const relation = z.enum(['references', 'related_to']);
export type Relation = z.infer<typeof relation>;
export const graphNode = z.strictObject({ id: nodeId, title: z.string(), depth: z.int().nonnegative(), edge: relation.optional() });
export const graphAnswer = z.strictObject({
  root: nodeId, depth: z.int().positive(), nodes: z.array(graphNode),
  edges: z.array(z.strictObject({ from: nodeId, to: nodeId, edge: relation })).optional(),
});
export type GraphAnswer = z.infer<typeof graphAnswer>;

const ref = z.string().regex(/^[0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{26}$/);

export const knowledgeEvents = {
  /** A document is indexed under the id; what was there before is replaced. `ref` names the stored text. */
  KnowledgeIndexed: z.strictObject({ id: nodeId, path: z.string(), title: z.string(), hash: contentHash, size: z.int().nonnegative(), ref }),
  KnowledgeRemoved: z.strictObject({ id: nodeId }),
} as const;
export type KnowledgeIndexed = z.infer<typeof knowledgeEvents.KnowledgeIndexed>;

const listOf = <T extends z.ZodType>(item: T) => z.array(item).min(1).max(limits.knowledgeBatchMax);

export const knowledgeCommands = {
  /** What would become of these documents. Journals nothing. */
  look: {
    input: z.strictObject({ documents: listOf(z.strictObject({ path: documentPath, hash: contentHash })) }),
    output: z.strictObject({ documents: z.array(z.strictObject({ id: nodeId, known: z.boolean() })) }),
  },
  /** Journals KnowledgeIndexed for each that is new or another than before. Repeating it changes nothing. Refusal `payload_too_large`: too many, or too much in all. */
  index: {
    input: z.strictObject({
      documents: listOf(z.strictObject({
        path: documentPath, title: z.string().max(limits.knowledgeTitleMaxChars), hash: contentHash, size: z.int().nonnegative().max(limits.knowledgeDocumentMaxBytes), ref,
      })),
    }),
    output: z.strictObject({ documents: z.array(z.strictObject({ id: nodeId, indexed: z.boolean() })) }),
  },
  /** `removed` false: there was none. */
  remove: { input: z.strictObject({ id: nodeId }), output: z.strictObject({ removed: z.boolean() }) },
  /** How much there is. */
  measure: { input: z.strictObject({}), output: z.strictObject({ documents: z.int(), bytes: z.int() }) },
} as const;
