// What ties the answer of an identity provider to this tab: it is kept here while the person is away at the provider, and goes with the
// answer, so that an answer which another person has begun is none of this tab's.

const KEY = 'sallyport.sso';

/** Keeps it for the one login that is under way. */
export function keepBinding(binding: string): void {
  sessionStorage.setItem(KEY, binding);
}

/** Gives it out, once; empty where no login was begun in this tab. */
export function takeBinding(): string {
  const binding = sessionStorage.getItem(KEY) ?? '';
  sessionStorage.removeItem(KEY);
  return binding;
}
