/** Old versions of a session's feed events as the newest, so that a stream shows one shape whatever wrote it. */
import { coded } from '../../contracts/errors.ts';
import type { ErasedSpec } from '../runtime/define.ts';
import type { Upcast } from './frames.ts';

/** Upcasts by a definition's events. Throws `journal_unreadable` for a version or kind the definition does not know. */
export const upcastBy = (spec: Pick<ErasedSpec, 'type' | 'events'>): Upcast => (event) => {
  const known = Object.hasOwn(spec.events, event.k) ? spec.events[event.k] : undefined;
  const version = event.v ?? 1;
  if (known === undefined || version > known.version) throw coded('journal_unreadable', `${spec.type}: event ${event.k} version ${version} is not known.`);
  let payload: Record<string, unknown> = event.d;
  for (let v = version; v < known.version; v++) {
    const step = known.upcast[v];
    if (step === undefined) throw coded('journal_unreadable', `${spec.type}: event ${event.k} has no upcast from version ${v}.`);
    payload = step(payload);
  }
  return payload;
};
