/**
 * The tool that needs a person's approval: files a titled report with the agent, where it stays (journal) and can be read
 * again. Not idempotent by declaration: after a lost host it is reported as interrupted, never filed on a guess.
 */
import { z } from 'zod';
import { agentCommands } from '../../contracts/agent.ts';
import { defineTool } from './tool.ts';

export const sendReport = defineTool({
  name: 'send_report',
  description: 'Files a titled report on behalf of the user. A person is asked first.',
  parameters: z.strictObject({ title: agentCommands.report.input.shape.title, body: agentCommands.report.input.shape.body }),
  needsApproval: true,
  idempotent: false,
  operations: ['file_write'],
  preview: ({ title, body }) => `File the report "${title}": ${body.length > 200 ? `${body.slice(0, 200)}… (${body.length} characters)` : body}`,
  run: async (args, context) => {
    const { report_id: id } = agentCommands.report.output.parse(await context.agent('report', args));
    return { filed: true, report_id: id, title: args.title };
  },
});
