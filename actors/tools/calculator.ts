/** The calculator tool: exact decimal arithmetic (arithmetic.ts), for the sums a model gets wrong. */
import { z } from 'zod';
import { limits } from '../../contracts/limits.ts';
import { decimal, evaluate } from './arithmetic.ts';
import { defineTool } from './tool.ts';

export const calculator = defineTool({
  name: 'calculator',
  description: 'Calculates an arithmetic expression exactly: + - * / % ^ and brackets, decimal numbers of any size.',
  parameters: z.strictObject({ expression: z.string().min(1).max(limits.calculationMaxChars) }),
  needsApproval: false,
  idempotent: true,
  outward: false,
  preview: ({ expression }) => `Calculate ${expression}`,
  run: async ({ expression }) => {
    const { text, exact } = decimal(evaluate(expression));
    return { value: text, exact };
  },
});
