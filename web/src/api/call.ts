import type { Calls, Name } from './types.ts';
import { text } from '../text.ts';

/** How long an answer may take: the proxy itself gives the authority less. */
const PATIENCE_MS = 20_000;

/** What went wrong, for the person: the proxy's words where it has answered. */
export class Refusal extends Error {
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

/** Makes one of the proxy's calls. */
export async function call<N extends Name>(
  name: N,
  request: Calls[N]['request'],
  signal: AbortSignal,
): Promise<Calls[N]['answer']> {
  const late = new AbortController();
  const stop = (): void => late.abort();
  const timer = setTimeout(stop, PATIENCE_MS);
  signal.addEventListener('abort', stop);
  try {
    // No `mode: 'same-origin'`: under a page's policy of no referrer the browser would say `Origin: null` then.
    const response = await fetch(`/web/${name}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(request),
      credentials: 'omit',
      cache: 'no-store',
      redirect: 'error',
      signal: late.signal,
    });
    if (response.ok) return (await response.json()) as Calls[N]['answer'];
    throw await refusal(response);
  } catch (error) {
    if (error instanceof Refusal || signal.aborted) throw error;
    throw new Refusal('unreachable', late.signal.aborted ? text.errors.slow : text.errors.unreachable);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', stop);
  }
}

async function refusal(response: Response): Promise<Refusal> {
  const said: unknown = await response.json().catch(() => null);
  const error = said && typeof said === 'object' && 'error' in said ? said.error : null;
  if (error && typeof error === 'object' && 'code' in error && 'message' in error) {
    return new Refusal(String(error.code), sentence(String(error.message)));
  }
  return new Refusal('internal', text.errors.unexpected(response.status));
}

/** The authority's errors are lower case, as programs print them. */
export function sentence(message: string): string {
  const begun = message.charAt(0).toUpperCase() + message.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}
