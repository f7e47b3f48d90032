/**
 * What a person has besides a browser: the `troupe` command in a home of their own against a whole Troupe, and a program that holds a
 * stream of the edge.
 *
 * Guarantee: the command knows nothing but the platform's address and authority; everything else it learns by signing in. Homes, commands
 * and streams end with the test.
 */
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { WebSocket } from 'ws';
import { z } from 'zod';
import { routes } from '../../contracts/routes.ts';
import { chatSession } from '../../contracts/session.ts';
import { answered, type TestPlatform } from './platform.ts';
import { Troupe, type Ran } from './troupe.ts';

export interface TestEnd {
  after(fn: () => Promise<void>): void;
}

export interface CommandOptions {
  /** What is typed or piped; the input ends after it. */
  readonly input?: string;
  readonly env?: Readonly<Record<string, string>>;
}

export interface CommandLine {
  readonly home: string;
  /** Runs to the end. */
  run(args: readonly string[], options?: CommandOptions): Promise<Ran>;
  /** Runs to the end, which must be exit code 0; gives its JSON. */
  json<S extends z.ZodType>(args: readonly string[], schema: S, options?: CommandOptions): Promise<z.output<S>>;
  /** Starts one whose output is to be watched. */
  start(args: readonly string[], options?: CommandOptions): Troupe;
  /** Content of `~/.troupe/config.json`; undefined where there is none. */
  config(): Promise<unknown>;
}

/** `at`: address and authority's PEM file; a whole Troupe gives its own. */
export const commandLine = async (end: TestEnd, at: { readonly baseUrl: string; readonly caPath: string }): Promise<CommandLine> => {
  const home = await mkdtemp(join(tmpdir(), 'troupe-home-'));
  const running: Troupe[] = [];
  end.after(async () => {
    for (const command of running) command.kill();
    await Promise.all(running.map((command) => command.ended));
    await rm(home, { recursive: true, force: true });
  });
  const start: CommandLine['start'] = (args, { input, env } = {}) => {
    const command = new Troupe(args, home, { HOME: home, TROUPE_CA: at.caPath, TROUPE_API_BASE: at.baseUrl, ...env });
    running.push(command);
    if (input !== undefined) command.type(input);
    command.endInput();
    return command;
  };
  const run: CommandLine['run'] = (args, options) => start(args, options).ended;
  return {
    home, start, run,
    json: async (args, schema, options) => {
      const ran = await run([...args, '--json'], options);
      assert.equal(ran.code, 0, `${args.join(' ')}: ${ran.out}${ran.err}`);
      return schema.parse(JSON.parse(ran.out));
    },
    config: async () => {
      try {
        return JSON.parse(await readFile(join(home, '.troupe', 'config.json'), 'utf8'));
      } catch (error) {
        if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
        throw error;
      }
    },
  };
};

/** Address and user code that `troupe auth login` shows. */
export const shownCode = async (login: Troupe): Promise<{ readonly url: string; readonly userCode: string }> => {
  await login.saw('Your code: ', 'err');
  await login.saw('Waiting for your approval', 'err');
  const url = /https:\/\/\S+\/device\?code=\S+/.exec(login.err)?.[0];
  const userCode = /^Your code: (\S+)$/m.exec(login.err)?.[1];
  assert.ok(url !== undefined && userCode !== undefined, login.err);
  return { url, userCode };
};

export interface Stream {
  readonly closed: Promise<{ readonly code: number; readonly reason: string }>;
  /** Says something and resolves when the answer is complete. Rejects when the stream closes first. */
  chat(content: string): Promise<void>;
}

const frame = z.object({ kind: z.string(), agent_kind: z.string().optional() });

/** A session made with a gateway token and its open stream, on which one turn has been finished. */
export const openStream = async (end: TestEnd, platform: TestPlatform, token: string, userId: string): Promise<Stream> => {
  const made = await platform.api('POST', routes.createSession.path, { token, json: { user_id: userId, project_id: 'newcomer' } });
  const { sid } = answered(made, 201, chatSession);
  const socket = new WebSocket(`${platform.wsUrl}${routes.stream.path}?sid=${sid}&last_seq_no=0`, ['troupe.v1', `bearer.${token}`], { ca: platform.ca });
  end.after(async () => socket.terminate());
  let finished: (() => void) | undefined;
  socket.on('message', (data: Buffer) => {
    const { kind, agent_kind: agentKind } = frame.parse(JSON.parse(data.toString('utf8')));
    if (kind === 'agent_event' && agentKind === 'FINISH') finished?.();
  });
  const closed = new Promise<{ code: number; reason: string }>((resolve) => {
    socket.on('close', (code, reason) => resolve({ code, reason: reason.toString('utf8') }));
  });
  await new Promise((resolve, reject) => {
    socket.on('open', resolve);
    socket.on('error', reject);
  });
  const stream: Stream = {
    closed,
    chat: async (content) => {
      const done = new Promise<void>((resolve) => { finished = resolve; });
      socket.send(JSON.stringify({ kind: 'send_message', content }));
      await Promise.race([done, closed.then(({ code, reason }) => assert.fail(`the stream closed with ${code} ${reason}`))]);
    },
  };
  await stream.chat('hello');
  return stream;
};
