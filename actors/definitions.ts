/** The actor types of this product. A host runs exactly these; a new type is one folder and one line here. */
import { agent } from './agent/agent.ts';
import { allowance } from './allowance/allowance.ts';
import { custody } from './custody/custody.ts';
import { device } from './device/device.ts';
import { name } from './name/name.ts';
import type { ActorDefinition } from './runtime/define.ts';
import { session, type SessionDeps } from './session/session.ts';

/** What the definitions need: the model registry, the tools, the blobs; idle time and instructions of sessions. */
export type DefinitionDeps = SessionDeps;

export const definitions = (deps: DefinitionDeps): readonly ActorDefinition[] => [session(deps), agent(), custody(), name(), allowance(), device()];
