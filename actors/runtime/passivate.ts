/**
 * The runtime's own command to any actor, for the system only: its activation, if there is one, finishes what has run, is put down and begins anew
 * from its journal with the next message. Gives `{active}`: there was one.
 */
export const passivateCommand = '$passivate';
