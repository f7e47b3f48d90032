/**
 * Every NATS subject, built and parsed in one place (design: Names on NATS; grammar after NATS ADR-6).
 *
 * Guarantee: `encodeToken` is injective and gives only characters that a subject token may hold, so no id from outside
 * can add a token, a wildcard or white space to a subject. `partitionOf` is the same on every host and in every version:
 * changing it needs a migration.
 */
import { limits } from './limits.ts';
import { coded } from './errors.ts';

/** An actor's address: organization, type (a folder of actors/), key. */
export interface ActorAddress {
  readonly org: string;
  readonly type: string;
  readonly key: string;
}

const plain = /^[A-Za-z0-9_-]+$/;
const textEncoder = new TextEncoder();

/** Any well-formed string as one subject token: `A-Za-z0-9_-` stay, every other UTF-8 byte becomes `=XX`; empty becomes `=`. Throws `bad_request` for a lone surrogate or a token over `subjectTokenMaxBytes`. */
export const encodeToken = (text: string): string => {
  if (text.length <= limits.subjectTokenMaxBytes && plain.test(text)) return text;
  if (text === '') return '=';
  // A lone surrogate has no UTF-8: all of them would become the same bytes, and two ids one address.
  if (!text.isWellFormed()) throw coded('bad_request', 'An identifier is not well-formed Unicode.');
  let token = '';
  for (const byte of textEncoder.encode(text)) {
    const char = String.fromCharCode(byte);
    token += byte < 0x80 && plain.test(char) ? char : `=${byte.toString(16).padStart(2, '0').toUpperCase()}`;
  }
  if (token.length > limits.subjectTokenMaxBytes) throw coded('bad_request', 'An identifier is too long for an address.');
  return token;
};

/** The string that `encodeToken` was given. Throws `bad_request` for a token it cannot have made. */
export const decodeToken = (token: string): string => {
  if (plain.test(token)) return token;
  if (token === '=') return '';
  const bytes: number[] = [];
  for (let i = 0; i < token.length; i++) {
    const char = token.charAt(i);
    if (char !== '=') {
      if (!plain.test(char)) throw coded('bad_request', 'A subject token is malformed.');
      bytes.push(char.charCodeAt(0));
      continue;
    }
    const hex = token.slice(i + 1, i + 3);
    if (!/^[0-9A-F]{2}$/.test(hex)) throw coded('bad_request', 'A subject token is malformed.');
    bytes.push(Number.parseInt(hex, 16));
    i += 2;
  }
  const text = new TextDecoder('utf-8', { fatal: false, ignoreBOM: true }).decode(Uint8Array.from(bytes));
  if (encodeToken(text) !== token) throw coded('bad_request', 'A subject token is malformed.');
  return text;
};

/** `<org>.<type>.<key>`, each encoded: the tail of most subjects and the actor's name in logs. */
export const addressTokens = (a: ActorAddress): string => `${encodeToken(a.org)}.${encodeToken(a.type)}.${encodeToken(a.key)}`;

/** Partition 0..partitions-1 of an actor: FNV-1a (32 bit) over the address tokens, modulo. */
export const partitionOf = (a: ActorAddress, partitions: number): number => partitionOfTokens(addressTokens(a), partitions);

export const partitionOfTokens = (tokens: string, partitions: number): number => {
  let hash = 0x811c9dc5;
  for (let i = 0; i < tokens.length; i++) {
    hash ^= tokens.charCodeAt(i);
    hash = Math.imul(hash, 0x01000193);
  }
  return (hash >>> 0) % partitions;
};

/** Public request/reply address of a command: any host may answer (queue group `queueGroup`). */
export const commandSubject = (a: ActorAddress, command: string): string => `actor.${addressTokens(a)}.${encodeToken(command)}`;
/** The owner's address of a command. */
export const ownerSubject = (n: number, a: ActorAddress, command: string): string => `part.${n}.${addressTokens(a)}.${encodeToken(command)}`;
export const journalSubject = (n: number, a: ActorAddress): string => `journal.${n}.${addressTokens(a)}`;
export const snapshotSubject = (n: number, a: ActorAddress): string => `snapshot.${n}.${addressTokens(a)}`;
export const reminderSubject = (n: number, a: ActorAddress): string => `reminder.${n}.${addressTokens(a)}`;
export const inboxSubject = (n: number, a: ActorAddress, command: string): string => `inbox.${n}.${addressTokens(a)}.${encodeToken(command)}`;
/** The live feed of an actor's commits (JetStream RePublish of its journal subject). */
export const eventsSubject = (a: ActorAddress): string => `events.${addressTokens(a)}`;
export const deadLetterSubject = (a: ActorAddress, command: string): string => `deadletter.${addressTokens(a)}.${encodeToken(command)}`;

/** What hosts subscribe to. */
export const wildcards = {
  commands: 'actor.*.*.*.*',
  owner: (n: number): string => `part.${n}.*.*.*.*`,
  inbox: (n: number): string => `inbox.${n}.>`,
  reminders: (n: number): string => `reminder.${n}.>`,
  /** Journals of a partition's actors of a type. */
  journalsIn: (n: number, type: string): string => `journal.${n}.*.${encodeToken(type)}.*`,
  /** Journals of all actors of a type, of one organization or of all. */
  journals: (type: string, org?: string): string => `journal.*.${org === undefined ? '*' : encodeToken(org)}.${encodeToken(type)}.*`,
} as const;

/** What is stored of the actors of a type of one organization, as subjects of the streams that hold it. */
export const storedOf = (org: string, type: string): Readonly<Record<'journal' | 'snapshot' | 'reminder' | 'inbox' | 'deadLetter', string>> => {
  const tokens = `${encodeToken(org)}.${encodeToken(type)}`;
  return {
    journal: `journal.*.${tokens}.*`, snapshot: `snapshot.*.${tokens}.*`, reminder: `reminder.*.${tokens}.*`, inbox: `inbox.*.${tokens}.*.*`,
    deadLetter: `deadletter.${tokens}.*.*`,
  };
};

/** Queue group of the public command address: one host answers each request. */
export const queueGroup = 'troupe';

const replyHead = /^_[A-Za-z0-9_-]*\../;
/**
 * True for a reply subject that a host may answer to: its first token begins with `_`, as client inboxes (`_INBOX…`) and the replies of
 * imported services (`_R_`) do. NATS checks who publishes, never the reply subject that comes along: answered without a look, a client
 * would write with the host's permissions to a journal, a lease, another organization's feed or `$JS.API`.
 */
export const isReplyAddress = (subject: string): boolean => replyHead.test(subject);

/** RePublish rule of the journal streams: the partition token is dropped. Tried in notes/jetstream. */
export const republish = {
  src: 'journal.*.*.*.*',
  dest: 'events.{{wildcard(2)}}.{{wildcard(3)}}.{{wildcard(4)}}',
} as const;

export const streams = {
  /** Journal stream of a partition: JOURNAL_0 .. JOURNAL_<count-1>, partition n in stream n mod count. */
  journal: (n: number, count: number): string => `JOURNAL_${n % count}`,
  snapshot: 'SNAPSHOT',
  reminder: 'REMINDER',
  inbox: 'INBOX',
  deadLetter: 'DEADLETTER',
} as const;

export const buckets = { hosts: 'hosts', partitions: 'partitions', blobs: 'blobs' } as const;

/**
 * Where the blobs of one deployment are kept: in the object store's stream, beside its objects and apart from them (those have one token here).
 * `index(hash)`: what a blob consists of; it is there once the blob is whole. `data(upload)`: its frames. `upload(upload)`: an upload that has not ended.
 */
export const blobSubjects = (org: string, deployment: string) => {
  const head = `$O.${buckets.blobs}.C.${encodeToken(org)}.${encodeToken(deployment)}`;
  return {
    all: `${head}.>`, indexes: `${head}.i.*`,
    index: (hex: string): string => `${head}.i.${encodeToken(hex)}`,
    data: (upload: string): string => `${head}.d.${encodeToken(upload)}`,
    upload: (upload: string): string => `${head}.u.${encodeToken(upload)}`,
  } as const;
};
/**
 * Where the texts of a deployment's knowledge and the snapshot of its index are kept: beside its blobs, so that what erases these erases them.
 * `text(ref, part)`; `snapshot`: which one is the last; `parts(snapshot)`: all of it.
 */
export const knowledgeSubjects = (org: string, deployment: string) => {
  const head = `$O.${buckets.blobs}.C.${encodeToken(org)}.${encodeToken(deployment)}.k`;
  return {
    text: (ref: string, part: number): string => `${head}.t.${encodeToken(ref)}.${part}`,
    textParts: (ref: string): string => `${head}.t.${encodeToken(ref)}.*`,
    snapshot: `${head}.s`,
    part: (snapshot: string, part: number): string => `${head}.p.${encodeToken(snapshot)}.${part}`,
    parts: (snapshot: string): string => `${head}.p.${encodeToken(snapshot)}.*`,
  } as const;
};
/** All blobs of an organization's deployments, and the uploads of all that have not ended. */
export const blobsOf = (org: string): string => `$O.${buckets.blobs}.C.${encodeToken(org)}.>`;
export const blobUploads = `$O.${buckets.blobs}.C.*.*.u.*`;
export const blobStream = `OBJ_${buckets.blobs}`;

export interface ParsedCommand extends ActorAddress {
  readonly command: string;
}

const partitionToken = /^(0|[1-9]\d{0,4})$/;

const parseFrom = (subject: string, head: string, skip: number): ParsedCommand => {
  const t = subject.split('.');
  const org = t[skip];
  const type = t[skip + 1];
  const key = t[skip + 2];
  const command = t[skip + 3];
  if (t[0] !== head || t.length !== skip + 4 || (skip === 2 && !partitionToken.test(t[1] ?? '')) || org === undefined || type === undefined || key === undefined || command === undefined) {
    throw coded('bad_request', 'The subject is not an actor address.');
  }
  return { org: decodeToken(org), type: decodeToken(type), key: decodeToken(key), command: decodeToken(command) };
};
/** Parses `actor.<org>.<type>.<key>.<command>`. */
export const parseCommandSubject = (subject: string): ParsedCommand => parseFrom(subject, 'actor', 1);
/** Parses `part.<n>.<org>.<type>.<key>.<command>`. */
export const parseOwnerSubject = (subject: string): ParsedCommand => parseFrom(subject, 'part', 2);
/** Parses `inbox.<n>.<org>.<type>.<key>.<command>`. */
export const parseInboxSubject = (subject: string): ParsedCommand => parseFrom(subject, 'inbox', 2);

const stateHeads: ReadonlySet<string> = new Set(['journal', 'snapshot', 'reminder']);

/** Parses `journal|snapshot|reminder.<n>.<org>.<type>.<key>`. */
export const parseStateSubject = (subject: string): ActorAddress & { readonly partition: number } => {
  const [head = '', n, org, type, key, extra] = subject.split('.');
  if (!stateHeads.has(head) || n === undefined || !partitionToken.test(n) || org === undefined || type === undefined || key === undefined || extra !== undefined) {
    throw coded('bad_request', 'The subject is not an actor address.');
  }
  return { partition: Number(n), org: decodeToken(org), type: decodeToken(type), key: decodeToken(key) };
};
