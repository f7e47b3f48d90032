/** Whether a host is this machine, by the way it is written: `localhost`, 127.0.0.0/8, ::1. Names are not resolved. */
import { isIPv4 } from 'node:net';

export const isLoopback = (host: string): boolean =>
  host === 'localhost' || host === '::1' || (isIPv4(host) && host.startsWith('127.'));
