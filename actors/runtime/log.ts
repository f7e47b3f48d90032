/** The part of a pino logger that the runtime uses: an object with fields first, then a sentence. Nothing secret goes into either. */
import type { BaseLogger } from 'pino';

export type Log = Pick<BaseLogger, 'debug' | 'info' | 'warn' | 'error'>;
