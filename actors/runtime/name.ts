/** An actor's name as fields of a log line. */
import type { ActorAddress } from '../../contracts/subjects.ts';

export const nameOf = (self: ActorAddress): ActorAddress => ({ org: self.org, type: self.type, key: self.key });
