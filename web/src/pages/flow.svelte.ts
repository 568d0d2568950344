import { Refusal, call } from '../api/call.ts';
import type { Calls, Name } from '../api/types.ts';
import { explained } from '../passkeys.ts';
import { text } from '../text.ts';

/** How a request stands, whatever it asks for. */
export type Stage = 'loading' | 'open' | 'done' | 'missing' | 'unknown' | 'expired' | 'used' | 'refused' | 'trouble';

/** What the answers that describe a request have in common. */
interface Described {
  readonly cluster: string;
  readonly state?: string;
  readonly expires_in: number;
}

/** Longest time that a timer of a browser takes. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** One request that a page was opened for, from its description to its end. One thing is done at a time. */
export abstract class Flow<D extends Described> {
  #stage: Stage = $state('loading');
  #request: D | null = $state.raw(null);
  #problem: string | null = $state(null);
  #doing: string | null = $state(null);
  #until: Date | null = $state.raw(null);
  #current = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;

  get stage(): Stage {
    return this.#stage;
  }
  get request(): D | null {
    return this.#request;
  }
  /** What went wrong last, for the person. */
  get problem(): string | null {
    return this.#problem;
  }
  /** What is under way, for the person. */
  get doing(): string | null {
    return this.#doing;
  }
  /** When it expires, by this machine's clock. */
  get until(): Date | null {
    return this.#until;
  }

  /** Asks the cluster what the request is. */
  protected async describe<N extends Name>(name: N, request: Calls[N]['request'] | null): Promise<void> {
    if (!request) {
      this.#stage = 'missing';
      return;
    }
    this.#stage = 'loading';
    await this.attempt(text.loading, 'prove', async (signal) => {
      const described = (await call(name, request, signal)) as unknown as D;
      signal.throwIfAborted();
      this.#request = described;
      this.#stage = stageOf(described.state);
      this.#expireIn(described.expires_in);
    });
    if (this.#stage === 'loading') this.#stage = 'trouble';
  }

  /** Does one thing, unless another is under way; a problem is kept for the person. */
  protected async attempt(
    doing: string,
    ceremony: 'prove' | 'create',
    work: (signal: AbortSignal) => Promise<void>,
  ): Promise<void> {
    if (this.#doing !== null) return;
    this.#problem = null;
    this.#doing = doing;
    const { signal } = this.#current;
    try {
      await work(signal);
    } catch (error) {
      if (!signal.aborted) this.#failed(error, ceremony);
    } finally {
      this.#doing = null;
    }
  }

  protected complain(problem: string): void {
    this.#problem = problem;
  }

  protected end(stage: Stage): void {
    this.#stage = stage;
    clearTimeout(this.#timer);
  }

  /** Stops what is under way: the page is gone. */
  close(): void {
    clearTimeout(this.#timer);
    this.#current.abort();
  }

  #failed(error: unknown, ceremony: 'prove' | 'create'): void {
    if (!(error instanceof Refusal)) {
      this.#problem = explained(error, ceremony);
      return;
    }
    switch (error.code) {
      case 'unknown':
        this.end('unknown');
        break;
      case 'expired':
        this.end('expired');
        break;
      case 'ended':
        this.end('used');
        break;
      default:
        this.#problem = error.message;
    }
  }

  #expireIn(seconds: number): void {
    clearTimeout(this.#timer);
    const left = Math.min(Math.max(0, seconds) * 1000, LONGEST_TIMER_MS);
    this.#until = new Date(Date.now() + left);
    if (this.#stage !== 'open') return;
    const expire = (): void => {
      // A prompt of the browser that is still open would prove nothing any more.
      this.#current.abort();
      this.#current = new AbortController();
      this.end('expired');
    };
    this.#timer = setTimeout(expire, left);
  }
}

/** The states of the authority's records; one that this page does not know is over for it. */
export function stageOf(state: string | undefined): Stage {
  switch (state) {
    case undefined:
    case 'pending':
      return 'open';
    case 'refused':
      return 'refused';
    case 'expired':
      return 'expired';
    default:
      return 'used';
  }
}
