/** Loaded before a process under measurement (`--expose-gc --import`): on SIGUSR2 it collects garbage and says that it has. */
let times = 0;
process.on('SIGUSR2', () => {
  for (let i = 0; i < 3; i++) globalThis.gc?.();
  process.stdout.write(`collected ${++times}\n`);
});
