import { call } from '../api/call.ts';
import type { InviteRequest } from '../api/types.ts';
import { create, supported } from '../passkeys.ts';
import { text } from '../text.ts';
import { Flow } from './flow.svelte.ts';

/** An invitation: its user makes a passkey here, or sets a password in the terminal. */
export class Invite extends Flow<InviteRequest> {
  readonly #token: string | null;
  #wrong: string | null = $state(null);

  name = $state('');

  constructor(token: string | null) {
    super();
    this.#token = token;
  }

  get byPasskey(): boolean {
    return this.request?.methods.passkey === true;
  }
  get byPassword(): boolean {
    return this.request?.methods.password === true;
  }
  get supported(): boolean {
    return supported();
  }
  get wrong(): string | null {
    return this.#wrong;
  }

  load(): Promise<void> {
    return this.describe('invite/describe', this.#token === null ? null : { token: this.#token });
  }

  async make(): Promise<void> {
    const [token, name] = [this.#token, this.name.trim()];
    this.#wrong = name ? null : text.invite.nameMissing;
    if (token === null || !name) return;
    await this.attempt(text.working.create, 'create', async (signal) => {
      const { public_key } = await call('invite/begin', { token }, signal);
      const response = await create(public_key, signal);
      await call('invite/finish', { token, name, response }, signal);
      this.end('done');
    });
  }
}
