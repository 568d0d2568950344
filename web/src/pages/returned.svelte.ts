import { call } from '../api/call.ts';
import { isLoopback } from '../place.ts';
import { takeBinding } from '../sso.ts';
import { text } from '../text.ts';
import { Flow } from './flow.svelte.ts';

/** Of the answer's address (RFC 6749 section 4.1.2, RFC 9207). */
const PARTS = ['state', 'code', 'iss', 'error', 'error_description'] as const;
type Answer = Record<(typeof PARTS)[number], string>;

/** A person who comes back from an identity provider. */
export class Returned extends Flow<{ cluster: string; expires_in: number }> {
  readonly #connector: string;
  readonly #answer: Answer;
  readonly #leave: (to: string) => void;
  #back: string | null = $state(null);

  /** `connector` is whose address this is, `search` its query, `leave` how the browser goes to another one. */
  constructor(connector: string, search: string, leave: (to: string) => void) {
    super();
    this.#connector = connector;
    const query = new URLSearchParams(search);
    this.#answer = Object.fromEntries(PARTS.map((part) => [part, query.get(part) ?? ''])) as Answer;
    this.#leave = leave;
  }

  /** Where the program waits for the browser. */
  get back(): string | null {
    return this.#back;
  }

  async load(): Promise<void> {
    if (this.#answer.state === '') {
      this.end('missing');
      return;
    }
    await this.attempt(text.working.returned, 'prove', async (signal) => {
      const { redirect } = await call('login/sso/finish', { connector: this.#connector, ...this.#answer, binding: takeBinding() }, signal);
      if (redirect !== null && !isLoopback(redirect)) {
        this.complain(text.login.badRedirect);
        return;
      }
      this.#back = redirect;
      this.end('done');
      if (redirect !== null) this.#leave(redirect);
    });
    if (this.stage === 'loading') this.end('trouble');
  }
}
