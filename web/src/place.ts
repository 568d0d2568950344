// Where the page was opened: which page of the proxy's, and for which request.

export type Place =
  | { readonly page: 'front' }
  | { readonly page: 'sso'; readonly connector: string }
  | { readonly page: 'login' | 'approve' | 'factors' | 'enrol'; readonly id: string | null }
  | { readonly page: 'invite'; readonly token: string | null; readonly pin: string | null };

/** Ids and tokens are base64url and short; what is anything else is none. */
const WORD = /^[A-Za-z0-9_-]{8,256}$/;
const TOKEN = /^[A-Za-z0-9._-]{1,256}$/;
/** Where identity providers send browsers back to, each to its own address; the one above them is any's that names itself. */
const CALLBACK = /^\/web\/sso\/callback(?:\/([^/]+))?$/;
const PIN = /^sha256:[0-9a-fA-F]{64}$/;

/** Reads it from the path and the fragment: `#ID` for requests, so that neither logs nor referrers have it. */
export function placeOf(path: string, fragment: string): Place {
  const after = decoded(fragment.replace(/^#/, ''));
  const invited = /^\/invite\/([^/]*)$/.exec(path);
  if (invited) {
    const token = decoded(invited[1] ?? '');
    return { page: 'invite', token: TOKEN.test(token) ? token : null, pin: PIN.test(after) ? after : null };
  }
  const returned = CALLBACK.exec(path);
  if (returned) return { page: 'sso', connector: returned[1] ?? '' };
  switch (path) {
    case '/login':
    case '/approve':
    case '/factors':
    case '/enrol':
      return { page: path.slice(1) as 'login' | 'approve' | 'factors' | 'enrol', id: WORD.test(after) ? after : null };
    default:
      return { page: 'front' };
  }
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return '';
  }
}

/** An identity provider is gone to by https, or on this machine: anything else would run here, or be read on the way. */
export function isProvider(redirect: string): boolean {
  if (!URL.canParse(redirect)) return false;
  const { protocol, hostname } = new URL(redirect);
  return protocol === 'https:' || (protocol === 'http:' && ['localhost', '127.0.0.1', '[::1]'].includes(hostname));
}

/** A login ends at the program that asked, on this machine, and nowhere else. */
export function isLoopback(redirect: string): boolean {
  if (!URL.canParse(redirect)) return false;
  const url = new URL(redirect);
  const here = url.hostname === '127.0.0.1' || url.hostname === '[::1]';
  return url.protocol === 'http:' && here && url.port !== '' && url.username === '' && url.pathname === '/callback';
}
