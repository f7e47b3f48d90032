/**
 * Decides about a WebSocket upgrade before it happens: bearer (header or subprotocol), query, sockets per user.
 *
 * Guarantees (interface 5.2; decisions, Edge gateway): a malformed bearer subprotocol is 400 before the upgrade, whatever
 * else the request holds; the answered subprotocol is one that was offered; a user never has more than the configured
 * number of sockets on this process, upgrades in progress included.
 */
import { coded } from '../contracts/errors.ts';
import { limits } from '../contracts/limits.ts';
import { routes, streamQuery } from '../contracts/routes.ts';
import { subprotocols } from '../contracts/stream.ts';
import { bearerOf, type Gate } from './gate.ts';
import type { Identity } from './tier1.ts';

export interface UpgradeRequest {
  readonly address: string;
  readonly authorization: string;
  /** All Sec-WebSocket-Protocol lines, joined by commas. */
  readonly protocols: string;
  readonly version: string;
  readonly query: string;
}

export interface Upgrade {
  readonly identity: Identity;
  readonly sid: string;
  readonly lastSeqNo: number | undefined;
  /** Subprotocol to answer; empty = none was offered that is known. */
  readonly protocol: string;
  /** Gives the user's socket back; idempotent. */
  readonly release: () => void;
}

const tokenText = /^[A-Za-z0-9_.-]+$/;

interface Offered {
  readonly bearer: string | undefined;
  readonly answer: string;
}

/** Throws `bad_request` for a malformed bearer value: control or non-ASCII or other foreign characters, empty, over 8 KiB, two of them. */
export const offeredProtocols = (header: string): Offered => {
  if (header === '') return { bearer: undefined, answer: '' };
  let bearer: string | undefined;
  let plain = false;
  for (const value of header.split(',')) {
    const offered = value.replace(/^[ \t]+|[ \t]+$/g, '');
    if (offered === subprotocols.plain) plain = true;
    if (!offered.toLowerCase().startsWith(subprotocols.bearerPrefix.toLowerCase())) continue;
    const token = offered.slice(subprotocols.bearerPrefix.length);
    if (bearer !== undefined || token.length > limits.bearerMaxBytes || !tokenText.test(token)) {
      throw coded('bad_bearer', 'The bearer subprotocol is malformed or larger than 8 KiB.');
    }
    bearer = token;
  }
  return { bearer, answer: plain ? subprotocols.plain : bearer === undefined ? '' : subprotocols.bearerPrefix + bearer };
};

const readQuery = (query: string): { sid: string; last_seq_no?: number | undefined } => {
  const params = new URLSearchParams(query);
  const names = [...params.keys()];
  const parsed = streamQuery.safeParse(Object.fromEntries(params));
  if (!parsed.success || new Set(names).size !== names.length) {
    throw coded('bad_request', 'The query must be sid=<sid> and optionally last_seq_no=<non-negative integer>.');
  }
  return parsed.data;
};

export class Upgrades {
  readonly #gate: Gate;
  readonly #max: number;
  readonly #bySub = new Map<string, number>();

  /** `max`: sockets of one user. */
  constructor(gate: Gate, max: number) {
    this.#gate = gate;
    this.#max = max;
  }

  /** Throws or rejects with `bad_bearer`, `bad_request`, `unauthorized`, `wrong_audience`, `rate_limited`, `too_many_sockets`. */
  admit(request: UpgradeRequest): Upgrade | Promise<Upgrade> {
    let offered: Offered = { bearer: undefined, answer: '' };
    const admitted = this.#gate.admit(routes.stream.auth, request.address, () => {
      offered = offeredProtocols(request.protocols);
      return bearerOf(request.authorization) ?? offered.bearer;
    });
    if (admitted instanceof Promise) return admitted.then((later) => this.#enter(request, later.kind === 'tier1' ? later.identity : undefined, offered));
    return this.#enter(request, admitted.kind === 'tier1' ? admitted.identity : undefined, offered);
  }

  #enter(request: UpgradeRequest, identity: Identity | undefined, offered: Offered): Upgrade {
    if (identity === undefined) throw coded('unauthorized');
    if (request.version !== '13') throw coded('bad_request', 'Sec-WebSocket-Version must be 13.');
    const query = readQuery(request.query);
    const { sub } = identity;
    const open = this.#bySub.get(sub) ?? 0;
    if (open >= this.#max) throw coded('too_many_sockets');
    this.#bySub.set(sub, open + 1);
    let held = true;
    return {
      identity, sid: query.sid, lastSeqNo: query.last_seq_no, protocol: offered.answer,
      release: () => {
        if (!held) return;
        held = false;
        const left = (this.#bySub.get(sub) ?? 1) - 1;
        if (left === 0) this.#bySub.delete(sub);
        else this.#bySub.set(sub, left);
      },
    };
  }
}
