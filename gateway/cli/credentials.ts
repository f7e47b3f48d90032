/**
 * The stored login: `~/.troupe/config.json` with `token` and `apiBase` (interface 2.3), and which token a command uses.
 *
 * Guarantees: the folder is 0700 and the file 0600 after every write, whatever they were; a write replaces the file whole, of a link what it
 * leads to. The first non-empty of `--token`, TROUPE_TOKEN and the file is the token (interface 5.1 rule 5). A token is never printed but
 * by `auth token`.
 */
import { chmod, mkdir, readFile, realpath, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { devFile } from '../../contracts/config.ts';
import { refuse } from '../../contracts/errors.ts';
import { findDevFile } from './dev-file.ts';

/** Other keys are kept as they are: a newer version may have written them. */
const configFile = z.looseObject({ token: z.string().optional(), apiBase: z.string().optional() });
type ConfigFile = z.infer<typeof configFile>;

export interface CredentialWorld {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
}

export type TokenSource = 'flag' | 'env' | 'config-file';
export interface FoundToken {
  readonly token: string;
  readonly source: TokenSource;
}

const folderOf = ({ env }: CredentialWorld): string => {
  const home = env['HOME'] ?? env['USERPROFILE'];
  if (home === undefined || home === '') throw refuse('not_configured', 'HOME is not set, so there is no place for ~/.troupe/config.json.');
  return join(home, '.troupe');
};
export const configPath = (world: CredentialWorld): string => join(folderOf(world), 'config.json');

const codeOf = (error: unknown): string | undefined => (error instanceof Error && 'code' in error ? String(error.code) : undefined);

const read = async (world: CredentialWorld): Promise<ConfigFile> => {
  const path = configPath(world);
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (cause) {
    const code = codeOf(cause);
    if (code === 'ENOENT' || code === 'ENOTDIR') return {};
    throw refuse('not_configured', `${path} cannot be read (${code ?? 'unknown'}).`);
  }
  try {
    return configFile.parse(JSON.parse(text));
  } catch {
    throw refuse('not_configured', `${path} is not a configuration of this command. Remove it and sign in again.`);
  }
};

const write = async (world: CredentialWorld, config: ConfigFile): Promise<void> => {
  const folder = folderOf(world);
  const path = configPath(world);
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    await chmod(folder, 0o700);
    // Of a link, what it leads to: beside a new file the old token would stay where it was.
    const real = await realpath(path).catch(() => path);
    const fresh = `${real}.${process.pid}`;
    await writeFile(fresh, `${JSON.stringify(config, null, 2)}\n`, { mode: 0o600 });
    await chmod(fresh, 0o600);
    await rename(fresh, real);
  } catch (error) {
    const code = codeOf(error);
    if (code === undefined) throw error;
    throw refuse('not_configured', `${path} cannot be written (${code}).`);
  }
};

export const storeLogin = async (world: CredentialWorld, login: { readonly token: string; readonly apiBase: string }): Promise<void> =>
  write(world, { ...await read(world), ...login });

/** True if there was a token. Tells no server: it stays valid until it expires (interface 4.1). */
export const forgetLogin = async (world: CredentialWorld): Promise<boolean> => {
  const { token, ...rest } = await read(world);
  if (token === undefined) return false;
  await write(world, rest);
  return true;
};

/** Undefined = there is none. */
export const findToken = async (world: CredentialWorld, flag: string | undefined): Promise<FoundToken | undefined> => {
  if (flag !== undefined && flag !== '') return { token: flag, source: 'flag' };
  const env = world.env['TROUPE_TOKEN'];
  if (env !== undefined && env !== '') return { token: env, source: 'env' };
  const { token } = await read(world);
  return token === undefined || token === '' ? undefined : { token, source: 'config-file' };
};

/** Token and address of the last sign-in. */
export const storedLogin = async (world: CredentialWorld): Promise<{ readonly token: string; readonly apiBase: string } | undefined> => {
  if ((world.env['HOME'] ?? world.env['USERPROFILE'] ?? '') === '') return undefined;
  const { token, apiBase } = await read(world);
  return token === undefined || token === '' || apiBase === undefined ? undefined : { token, apiBase };
};

export const requireToken = async (world: CredentialWorld, flag: string | undefined): Promise<FoundToken> => {
  const found = await findToken(world, flag);
  if (found === undefined) throw refuse('not_signed_in', 'There is no token.');
  return found;
};

export interface ApiBase {
  readonly url: string;
  /** PEM of the authority that signed its certificate; absent = the public ones. */
  readonly caPem: string | undefined;
}

const localDevFile = async (cwd: string): Promise<z.output<typeof devFile> | undefined> => {
  try {
    const parsed = devFile.safeParse(JSON.parse(await readFile(await findDevFile(cwd), 'utf8')));
    return parsed.success ? parsed.data : undefined;
  } catch {
    // No Troupe runs here: the address must come from elsewhere.
    return undefined;
  }
};

/**
 * Address of the platform: `--api`, TROUPE_API_BASE, the stored `apiBase`, then the dev.json of a Troupe that runs here. TROUPE_CA, or
 * that dev.json where the address is its own, names the authority. Throws `not_configured`.
 */
export const findApiBase = async (world: CredentialWorld, flag: string | undefined): Promise<ApiBase> => {
  const [{ apiBase }, dev] = await Promise.all([read(world), localDevFile(world.cwd)]);
  const url = [flag, world.env['TROUPE_API_BASE'], apiBase, dev?.baseUrl].find((text) => text !== undefined && text !== '');
  if (url === undefined) throw refuse('not_configured', 'No platform is known: give --api https://…, set TROUPE_API_BASE, or run `npm start` here.');
  if (!URL.canParse(url) || (new URL(url).protocol !== 'https:')) throw refuse('bad_usage', `${url} is not an https address.`);
  const caPath = (world.env['TROUPE_CA'] || undefined) ?? (dev !== undefined && new URL(dev.baseUrl).origin === new URL(url).origin ? dev.caPath : undefined);
  if (caPath === undefined) return { url, caPem: undefined };
  try {
    return { url, caPem: await readFile(caPath, 'utf8') };
  } catch {
    throw refuse('not_configured', `The certificate file ${caPath} cannot be read.`);
  }
};
