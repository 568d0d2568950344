import { call } from '../api/call.ts';
import type { ApproveRequest, Connector } from '../api/types.ts';
import { prove, supported } from '../passkeys.ts';
import { toProvider } from '../sso.ts';
import { text } from '../text.ts';
import { Flow, type Stage } from './flow.svelte.ts';
import { spelled, unspaced } from './login.svelte.ts';

/** A request of a user's own program that wants a factor. */
export class Approve extends Flow<ApproveRequest> {
  readonly #id: string | null;
  #wrong: string | null = $state(null);
  #wrongCode: string | null = $state(null);

  code = $state('');
  otp = $state('');

  readonly #leave: (to: string) => void;
  readonly #ended: (stage: Stage) => void;

  /** `leave` is how the browser goes to another address; `ended` hears how this ends, where it is part of another page. */
  constructor(id: string | null, leave: (to: string) => void, ended: (stage: Stage) => void = () => {}) {
    super();
    this.#id = id;
    this.#leave = leave;
    this.#ended = ended;
  }

  protected override end(stage: Stage): void {
    super.end(stage);
    this.#ended(stage);
  }

  get byPasskey(): boolean {
    return this.request?.methods.passkey === true && supported();
  }
  get byOtp(): boolean {
    return this.request?.methods.otp === true;
  }
  get connectors(): readonly Connector[] {
    return this.request?.methods.sso ?? [];
  }
  get wrong(): string | null {
    return this.#wrong;
  }

  get wrongCode(): string | null {
    return this.#wrongCode;
  }

  load(): Promise<void> {
    return this.describe('approve/describe', this.#id === null ? null : { id: this.#id });
  }

  async withPasskey(): Promise<void> {
    const [id, code] = [this.#id, this.#typed()];
    if (id === null || !code) return;
    await this.attempt(text.working.passkey, 'prove', async (signal) => {
      const { public_key } = await call('approve/passkey/begin', { id, code }, signal);
      const response = await prove(public_key, signal);
      await call('approve/passkey/finish', { id, response }, signal);
      this.end('done');
    });
  }

  async withOtp(): Promise<void> {
    const [id, code, otp] = [this.#id, this.#typed(), unspaced(this.otp)];
    this.#wrong = otp ? null : text.errors.otpMissing;
    if (id === null || !code || !otp) return;
    await this.attempt(text.working.otp, 'prove', async (signal) => {
      await call('approve/otp', { id, code, otp }, signal);
      this.end('done');
    });
  }

  /** Has the person sign in again at their identity provider, whose answer comes back to another page of this tab. */
  async withSso(connector: string, origin: string): Promise<void> {
    const [id, code] = [this.#id, this.#typed()];
    if (id === null || !code) return;
    await this.attempt(text.working.sso, 'prove', async (signal) => {
      const to = await toProvider({ id, connector, origin, code }, signal);
      if (to === null) this.complain(text.login.badProvider);
      else this.#leave(to);
    });
  }

  /** The code that the terminal shows; what is missing is said at its field. */
  #typed(): string {
    const code = spelled(this.code);
    this.#wrongCode = code ? null : text.errors.codeMissing;
    return code;
  }

  async refuse(): Promise<void> {
    const id = this.#id;
    if (id === null) return;
    await this.attempt(text.working.refuse, 'prove', async (signal) => {
      await call('approve/refuse', { id }, signal);
      this.end('refused');
    });
  }
}
