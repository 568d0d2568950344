// What ties the answer of an identity provider to this tab: it is kept here while the person is away at the provider, and goes with the
// answer, so that an answer which another person has begun is none of this tab's.

import { call } from './api/call.ts';
import type { Calls } from './api/types.ts';
import { isProvider } from './place.ts';

const KEY = 'sallyport.sso';

/** Where the browser goes to an identity provider; null where the answer would send it to an address without encryption. */
export async function toProvider(request: Calls['login/sso/begin']['request'], signal: AbortSignal): Promise<string | null> {
  const { redirect, binding } = await call('login/sso/begin', request, signal);
  if (!isProvider(redirect)) return null;
  keepBinding(binding);
  return redirect;
}

/** Keeps it for the one login that is under way. */
function keepBinding(binding: string): void {
  sessionStorage.setItem(KEY, binding);
}

/** Gives it out, once; empty where no login was begun in this tab. */
export function takeBinding(): string {
  const binding = sessionStorage.getItem(KEY) ?? '';
  sessionStorage.removeItem(KEY);
  return binding;
}
