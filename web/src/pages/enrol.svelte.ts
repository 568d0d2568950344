import { call } from '../api/call.ts';
import type { EnrolRequest } from '../api/types.ts';
import { create, supported } from '../passkeys.ts';
import { text } from '../text.ts';
import { Flow } from './flow.svelte.ts';
import { spelled } from './login.svelte.ts';

/** A new passkey of a user who asked for it in the terminal. */
export class Enrol extends Flow<EnrolRequest> {
  readonly #id: string | null;
  #name: string | null = $state(null);
  #wrong: string | null = $state(null);

  code = $state('');

  constructor(id: string | null) {
    super();
    this.#id = id;
  }

  get supported(): boolean {
    return supported();
  }
  get wrong(): string | null {
    return this.#wrong;
  }
  /** What the passkey is called, once it is there. */
  get made(): string | null {
    return this.#name;
  }

  load(): Promise<void> {
    return this.describe('enrol/describe', this.#id === null ? null : { id: this.#id });
  }

  async make(): Promise<void> {
    const [id, code] = [this.#id, spelled(this.code)];
    this.#wrong = code ? null : text.errors.codeMissing;
    if (id === null || !code) return;
    await this.attempt(text.working.create, 'create', async (signal) => {
      const { public_key } = await call('enrol/begin', { id, code }, signal);
      const response = await create(public_key, signal);
      this.#name = (await call('enrol/finish', { id, response }, signal)).name;
      this.end('done');
    });
  }

  async refuse(): Promise<void> {
    const id = this.#id;
    if (id === null) return;
    await this.attempt(text.working.refuse, 'create', async (signal) => {
      await call('enrol/refuse', { id }, signal);
      this.end('refused');
    });
  }
}
