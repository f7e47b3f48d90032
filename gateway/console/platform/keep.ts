/**
 * What the console keeps for the length of a browser tab: texts by name, of one person.
 *
 * Guarantee: no tokens, nothing outlives the tab; after `clear` (signing out) nothing is written any more and nothing of before is left.
 */
export interface Keep {
  read(name: string): string | undefined;
  /** False if there is no room: what was there before is gone too. */
  write(name: string, text: string): boolean;
  /** Ends the keeping: of this person and of everybody before. */
  clear(): void;
}

const prefix = 'troupe.console.';

export const keepIn = (storage: Storage): Keep => {
  let ended = false;
  return {
    read: (name) => storage.getItem(prefix + name) ?? undefined,
    write: (name, text) => {
      if (ended) return true;
      try {
        storage.setItem(prefix + name, text);
        return true;
      } catch {
        // The browser's quota: half a conversation is none.
        storage.removeItem(prefix + name);
        return false;
      }
    },
    clear: () => {
      ended = true;
      for (const name of Object.keys(storage)) if (name.startsWith(prefix)) storage.removeItem(name);
    },
  };
};
