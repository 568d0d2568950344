import { call } from '../api/call.ts';
import type { Connector, LoginRequest } from '../api/types.ts';
import { prove, supported } from '../passkeys.ts';
import { isLoopback } from '../place.ts';
import { toProvider } from '../sso.ts';
import { text } from '../text.ts';
import { Flow } from './flow.svelte.ts';

/** What a person has to fill in, by field. */
export type Wrong = Partial<Record<'code' | 'user' | 'password', string>>;

/** A program's login, proven in the browser. */
export class Login extends Flow<LoginRequest> {
  readonly #id: string | null;
  readonly #leave: (to: string) => void;
  #back: string | null = $state(null);
  #wrong: Wrong = $state.raw({});

  code = $state('');
  user = $state('');
  password = $state('');
  otp = $state('');

  /** `leave` is how the browser goes to another address. */
  constructor(id: string | null, leave: (to: string) => void) {
    super();
    this.#id = id;
    this.#leave = leave;
  }

  get headless(): boolean {
    return this.request?.redirect === 'headless';
  }
  /** The person types the code that the terminal shows. */
  get wantsCode(): boolean {
    return this.request?.code === true;
  }
  get byPasskey(): boolean {
    return this.request?.methods.passkey === true && supported();
  }
  get byPassword(): boolean {
    return this.request?.methods.password === true;
  }
  get connectors(): readonly Connector[] {
    return this.request?.methods.sso ?? [];
  }
  /** A connector is tried: no program waits for certificates. */
  get test(): boolean {
    return this.request?.redirect === 'test';
  }
  /** Where the program waits for the browser, once the person has proven who they are. */
  get back(): string | null {
    return this.#back;
  }
  get wrong(): Wrong {
    return this.#wrong;
  }

  load(): Promise<void> {
    return this.describe('login/describe', this.#id === null ? null : { id: this.#id });
  }

  async withPasskey(): Promise<void> {
    const id = this.#id;
    if (id === null || !this.#filled(['code'])) return;
    await this.attempt(text.working.passkey, 'prove', async (signal) => {
      const { public_key } = await call('login/passkey/begin', { id, ...this.#typed() }, signal);
      const response = await prove(public_key, signal);
      const { redirect } = await call('login/passkey/finish', { id, response }, signal);
      this.#finish(redirect);
    });
  }

  async withPassword(): Promise<void> {
    const id = this.#id;
    if (id === null || !this.#filled(['code', 'user', 'password'])) return;
    await this.attempt(text.working.password, 'prove', async (signal) => {
      const { user, password, otp } = this;
      const request = { id, ...this.#typed(), user: user.trim(), password, otp: unspaced(otp) };
      const { redirect } = await call('login/password', request, signal);
      this.password = '';
      this.#finish(redirect);
    });
  }

  /** Goes to an identity provider, whose answer comes back to another page of this tab. */
  async withSso(connector: string, origin: string): Promise<void> {
    const id = this.#id;
    if (id === null || !this.#filled(['code'])) return;
    await this.attempt(text.working.sso, 'prove', async (signal) => {
      const to = await toProvider({ id, connector, origin, ...this.#typed() }, signal);
      if (to === null) this.complain(text.login.badProvider);
      else this.#leave(to);
    });
  }

  async refuse(): Promise<void> {
    const id = this.#id;
    if (id === null) return;
    await this.attempt(text.working.refuse, 'prove', async (signal) => {
      await call('login/refuse', { id }, signal);
      this.end('refused');
    });
  }

  #typed(): { code?: string } {
    return this.wantsCode ? { code: spelled(this.code) } : {};
  }

  #filled(fields: ('code' | 'user' | 'password')[]): boolean {
    const wrong: Wrong = {};
    if (fields.includes('code') && this.wantsCode && !this.code.trim()) wrong.code = text.errors.codeMissing;
    if (fields.includes('user') && !this.user.trim()) wrong.user = text.errors.userMissing;
    if (fields.includes('password') && !this.password) wrong.password = text.errors.passwordMissing;
    this.#wrong = wrong;
    return Object.keys(wrong).length === 0;
  }

  #finish(redirect: string | null): void {
    if (redirect !== null && !isLoopback(redirect)) {
      this.complain(text.login.badRedirect);
      return;
    }
    this.#back = redirect;
    this.end('done');
    if (redirect !== null) this.#leave(redirect);
  }
}

/** The code of a terminal, as it stands there. */
export function spelled(code: string): string {
  return code.trim().toUpperCase();
}

/** People type codes with the spaces that they see. */
export function unspaced(otp: string): string {
  return otp.replaceAll(/\s/g, '');
}
