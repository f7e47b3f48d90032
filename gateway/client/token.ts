/** Reads who a bearer token speaks for. It verifies nothing: the server does; this only saves asking the person for their id. */

const claimsOf = (token: string): Readonly<Record<string, unknown>> => {
  const payload = token.split('.')[1];
  if (payload === undefined) return {};
  try {
    const bytes = Uint8Array.from(atob(payload.replaceAll('-', '+').replaceAll('_', '/')), (c) => c.charCodeAt(0));
    const claims: unknown = JSON.parse(new TextDecoder().decode(bytes));
    return typeof claims === 'object' && claims !== null ? { ...claims } : {};
  } catch {
    return {};
  }
};

/** The `sub` claim of a JWT, or undefined if the text is no JWT that has one. */
export const subjectOf = (token: string): string | undefined => {
  const { sub } = claimsOf(token);
  return typeof sub === 'string' ? sub : undefined;
};

/** What every API key begins with. */
export const apiKeyPrefix = 'trp_sk_';

/** Whether the token is one of the platform's: an access token or an API key, to be exchanged for a gateway token. */
export const isPlatformToken = (token: string): boolean => token.startsWith(apiKeyPrefix) || claimsOf(token)['aud'] === 'troupe-platform';
