/**
 * The output of one child process in `.troupe/log/<name>.log`, at most twice `limits.logFileMaxBytes` on disk: a full file
 * becomes `.log.1`. Keeps the last lines for the message of a failed start. Writes are synchronous: this process has nothing
 * better to do, and a line is on disk before the next is read, so nothing piles up in memory.
 */
import { closeSync, fstatSync, openSync, renameSync, writeSync } from 'node:fs';
import { limits } from '../../contracts/limits.ts';

const tailLines = 20;
const tailLineChars = 400;

export class LogFile {
  readonly path: string;
  #fd: number;
  #bytes: number;
  #tail: string[] = [];
  #partial = '';

  constructor(path: string) {
    this.path = path;
    this.#fd = openSync(path, 'a', 0o600);
    this.#bytes = fstatSync(this.#fd).size;
  }

  write(chunk: Buffer): void {
    if (this.#bytes > 0 && this.#bytes + chunk.length > limits.logFileMaxBytes) {
      closeSync(this.#fd);
      renameSync(this.path, `${this.path}.1`);
      this.#fd = openSync(this.path, 'a', 0o600);
      this.#bytes = 0;
    }
    writeSync(this.#fd, chunk);
    this.#bytes += chunk.length;
    const lines = (this.#partial + chunk.toString('utf8')).split('\n');
    this.#partial = (lines.pop() ?? '').slice(0, tailLineChars);
    this.#tail = [...this.#tail, ...lines.map((line) => line.slice(0, tailLineChars))].slice(-tailLines);
  }

  /** The last lines, oldest first. */
  tail(): readonly string[] {
    return this.#partial === '' ? this.#tail : [...this.#tail, this.#partial];
  }

  close(): void {
    closeSync(this.#fd);
  }
}
