/**
 * The agent actor's contract: who the agent is and what it remembers. Key = agent id (`agent-<sid>` for a chat session).
 * Its memory outlives a session's hibernation; the chat loop reads and writes it through the memory tools.
 */
import { z } from 'zod';

export const memoryFact = z.strictObject({
  id: z.string(),
  fact: z.string().min(1).max(4_096),
  source: z.string().max(256),
  relevance: z.number().min(0).max(1),
  at: z.int(),
});
export type MemoryFact = z.infer<typeof memoryFact>;

export const report = z.strictObject({ id: z.string(), title: z.string().min(1).max(256), body: z.string().max(16_384), at: z.int() });
export type Report = z.infer<typeof report>;

export const agentCommands = {
  /** Gives the agent its name and owner; repeating it with the same owner changes nothing. */
  provision: {
    input: z.strictObject({ user_id: z.string(), project_id: z.string(), name: z.string().max(128) }),
    output: z.strictObject({ agent_id: z.string() }),
  },
  remember: {
    input: z.strictObject({ fact: memoryFact.shape.fact, source: memoryFact.shape.source, relevance: memoryFact.shape.relevance.optional() }),
    output: memoryFact,
  },
  /** The facts that share most words with `query`, best first. */
  recall: {
    input: z.strictObject({ query: z.string().max(1_024), limit: z.int().min(1).max(50).optional() }),
    output: z.strictObject({ facts: z.array(memoryFact) }),
  },
  /** Files a titled report; its text is in the journal, the latest `limits.reportsMax` can be read again. */
  report: {
    input: z.strictObject({ title: report.shape.title, body: report.shape.body }),
    output: z.strictObject({ report_id: z.string() }),
  },
  /** The latest reports, newest first. */
  reports: { input: z.strictObject({}), output: z.strictObject({ reports: z.array(report) }) },
} as const;

export const agentEvents = {
  AgentProvisioned: z.strictObject({ user_id: z.string(), project_id: z.string(), name: z.string() }),
  MemoryStored: memoryFact,
  ReportFiled: report,
} as const;
