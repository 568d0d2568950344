import { call } from '../api/call.ts';
import type { Factor, Factors as Listed, FactorsRequest } from '../api/types.ts';
import { text } from '../text.ts';
import { Flow, type Stage } from './flow.svelte.ts';
import { spelled } from './login.svelte.ts';

/** A factor whose removal is to be approved. */
interface Removal {
  readonly factor: Factor;
  readonly approval: string;
}

/** A user's own factors: shown once the code of the terminal is typed, and removed one by one. */
export class Factors extends Flow<FactorsRequest> {
  readonly #id: string | null;
  #wrong: string | null = $state(null);
  #listed: Listed | null = $state.raw(null);
  #removal: Removal | null = $state.raw(null);
  #removed: string | null = $state(null);

  code = $state('');

  constructor(id: string | null) {
    super();
    this.#id = id;
  }

  get wrong(): string | null {
    return this.#wrong;
  }
  /** None until the code is typed. */
  get listed(): Listed | null {
    return this.#listed;
  }
  /** What the person is asked to approve. */
  get removal(): Removal | null {
    return this.#removal;
  }
  /** The code of the terminal, as it is sent. */
  get typed(): string {
    return spelled(this.code);
  }
  /** What was removed last, by name. */
  get removed(): string | null {
    return this.#removed;
  }

  load(): Promise<void> {
    return this.describe('factors/describe', this.#id === null ? null : { id: this.#id });
  }

  async show(): Promise<void> {
    const [id, code] = [this.#id, this.typed];
    this.#wrong = code ? null : text.errors.codeMissing;
    if (id === null || !code) return;
    await this.attempt(text.working.factors, 'prove', async (signal) => {
      this.#listed = await call('factors/list', { id, code }, signal);
    });
  }

  /** Asks for an approval, which the person proves as any other. */
  async begin(factor: Factor): Promise<void> {
    const [id, code] = [this.#id, this.typed];
    if (id === null) return;
    this.#removed = null;
    await this.attempt(text.working.remove, 'prove', async (signal) => {
      const { approval } = await call('factors/remove/begin', { id, code, factor: factor.id }, signal);
      this.#removal = { factor, approval };
    });
  }

  /** The approval has ended: where it is proven, the factor is removed; else the list is shown again. */
  async approved(stage: Stage): Promise<void> {
    const [id, code, removal] = [this.#id, this.typed, this.#removal];
    this.#removal = null;
    if (id === null || removal === null) return;
    if (stage !== 'done') {
      if (stage !== 'refused') this.complain(text.factors.over);
      return;
    }
    const { factor, approval } = removal;
    await this.attempt(text.working.removing, 'prove', async (signal) => {
      this.#listed = await call('factors/remove/finish', { id, code, factor: factor.id, approval }, signal);
      this.#removed = factor.name;
    });
  }

  async refuse(): Promise<void> {
    const id = this.#id;
    if (id === null) return;
    await this.attempt(text.working.refuse, 'prove', async (signal) => {
      await call('factors/refuse', { id }, signal);
      this.end('refused');
    });
  }
}
