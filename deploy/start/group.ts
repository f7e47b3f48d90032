/** Name of this user's own primary group: in development its members may use the gateway's admin socket. */
import { execFileSync } from 'node:child_process';

export const groupName = (): string => execFileSync('id', ['-gn'], { encoding: 'utf8' }).trim();
