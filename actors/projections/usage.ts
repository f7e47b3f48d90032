/**
 * The projections `usage_sessions` and `usage_completions`: what each person and key has used, by payer, model and hour (UTC).
 *
 * Guarantee: a row is the sum of the metering events (`UsageMetered`) of its hour, which are in the commits that end their turns; so who reads
 * after `caughtUp` reads every turn that had ended before. Rows of a deleted organization go with its conversations.
 */
import { z } from 'zod';
import { usage } from '../../contracts/stream.ts';
import type { JournaledOptions } from './journaled.ts';
import { storable } from './journaled.ts';
import { answered, type Sql, type TransactionSql } from './postgres.ts';
import type { ProjectedCommit, Projection } from './projection.ts';

/** Actor type → the projection of its metering events. */
export const usageProjections = { session: 'usage_sessions', completion: 'usage_completions' } as const;
type Source = (typeof usageProjections)[keyof typeof usageProjections];

/** What both types' events have. */
const metered = z.object({ by: z.string(), model: z.string(), usage });

const hourMs = 3_600_000;

interface Sum {
  readonly org: string;
  readonly used_by: string;
  readonly model: string;
  readonly hour: Date;
  turns: number;
  input_tokens: number;
  output_tokens: number;
  cost_cents: number;
}

const sums = (commits: readonly ProjectedCommit[], { upcast, onBroken }: JournaledOptions): Sum[] => {
  const found = new Map<string, Sum>();
  for (const projected of commits) {
    const { address: { org }, commit } = projected;
    for (const event of commit.ev) {
      if (event.k !== 'UsageMetered') continue;
      try {
        const { by, model, usage: used } = metered.parse(upcast(event));
        const hour = new Date(Math.floor((event.t ?? commit.t) / hourMs) * hourMs);
        const key = JSON.stringify([org, by, model, hour]);
        const sum = found.get(key) ?? { org: storable(org), used_by: storable(by), model: storable(model), hour, turns: 0, input_tokens: 0, output_tokens: 0, cost_cents: 0 };
        sum.turns += 1;
        sum.input_tokens += used.input_tokens;
        sum.output_tokens += used.output_tokens;
        sum.cost_cents += used.cost_cents;
        found.set(key, sum);
      } catch (error) {
        onBroken(projected, error);
      }
    }
  }
  return [...found.values()];
};

const add = async (tx: TransactionSql, source: Source, { org, used_by: by, model, hour, turns, input_tokens: input, output_tokens: output, cost_cents: cents }: Sum): Promise<void> => {
  await tx`
    insert into troupe.usage as u (source, org, used_by, model, hour, turns, input_tokens, output_tokens, cost_cents)
    values (${source}, ${org}, ${by}, ${model}, ${hour}, ${turns}, ${input}, ${output}, ${cents})
    on conflict (source, org, used_by, model, hour) do update set
      turns = u.turns + excluded.turns, input_tokens = u.input_tokens + excluded.input_tokens,
      output_tokens = u.output_tokens + excluded.output_tokens, cost_cents = u.cost_cents + excluded.cost_cents`;
};

export const usageProjection = (type: keyof typeof usageProjections, options: JournaledOptions): Projection => ({
  name: usageProjections[type],
  type,
  apply: async (tx, commits) => {
    for (const sum of sums(commits, options)) await add(tx, usageProjections[type], sum);
  },
  clear: async (tx) => {
    await tx`delete from troupe.usage where source = ${usageProjections[type]}`;
  },
});

export interface ModelUsage {
  readonly modelId: string;
  readonly costCents: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
}

/** What a person has used wherever it was paid, or what an organization has paid, from a time on (a full hour), by model. */
export const readUsage = async (sql: Sql, of: { readonly userId: string } | { readonly org: string }, from: Date): Promise<readonly ModelUsage[]> => {
  const whose = 'userId' in of ? sql`used_by = ${of.userId}` : sql`org = ${of.org}`;
  const rows = await answered(sql<{ model: string; cost: string; input: string; output: string }[]>`
    select model, sum(cost_cents) as cost, sum(input_tokens) as input, sum(output_tokens) as output
    from troupe.usage where ${whose} and hour >= ${from} group by model order by model collate "C"`);
  return rows.map(({ model, cost, input, output }) => ({ modelId: model, costCents: Number(cost), inputTokens: Number(input), outputTokens: Number(output) }));
};

/** Deletes the rows of an organization whose conversations were erased from the journal. */
export const deleteUsage = async (sql: Sql, org: string): Promise<void> => {
  await answered(sql`delete from troupe.usage where org = ${org}`);
};
