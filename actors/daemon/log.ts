/**
 * What the daemon's parts need of a logger; pino fits. Nothing secret is ever given to it: no token, key, body or prompt.
 */
export interface Log {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}
