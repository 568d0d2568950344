// Debian's Chromium, its virtual authenticator, and what every page is held to.
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import axe from 'axe-core';
import { chromium, type Browser, type BrowserContext, type BrowserContextOptions, type CDPSession, type Page } from 'playwright-core';
import { Mock } from '../mock.ts';

/** How long a page may take for anything here. */
const PATIENCE_MS = 10_000;
/** Where pictures of the pages go when a developer wants to look at them. */
const PICTURES = process.env['PICTURES'];

const LOOKS = [
  { scheme: 'light', width: 1100 },
  { scheme: 'dark', width: 1100 },
  { scheme: 'light', width: 320 },
  { scheme: 'dark', width: 320 },
] as const;

export class Rig {
  readonly mock: Mock;
  readonly #browser: Browser;

  private constructor(mock: Mock, browser: Browser) {
    this.mock = mock;
    this.#browser = browser;
  }

  static async start(): Promise<Rig> {
    const executablePath = ['chromium', 'chromium-browser', 'google-chrome']
      .flatMap((name) => (process.env['PATH'] ?? '').split(':').map((directory) => join(directory, name)))
      .find((path) => existsSync(path));
    assert.ok(executablePath, 'these tests need Chromium: apt-get install chromium');
    const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
    return new Rig(await Mock.start(), browser);
  }

  async close(): Promise<void> {
    await this.#browser.close();
    await this.mock.close();
  }

  /** A page with a profile of its own, which has to stay without a complaint of the browser's. */
  async visit(path: string, options: BrowserContextOptions = {}, before?: (page: Page) => Promise<void>): Promise<Visit> {
    const context = await this.#browser.newContext({
      viewport: { width: 1100, height: 800 },
      reducedMotion: 'reduce',
      locale: 'en-GB',
      timezoneId: 'UTC',
      ...options,
    });
    context.setDefaultTimeout(PATIENCE_MS);
    const page = await context.newPage();
    const visit = new Visit(context, page, this.mock);
    await before?.(page);
    await page.goto(this.mock.origin + path);
    return visit;
  }
}

export class Visit {
  readonly page: Page;
  readonly complaints: string[] = [];
  readonly #context: BrowserContext;

  constructor(context: BrowserContext, page: Page, mock: Mock) {
    this.#context = context;
    this.page = page;
    page.on('console', (message) => {
      // A refusal of the proxy's is an answer, and the browser notes it.
      const refused = /the server responded with a status of (403|404|503)/.test(message.text());
      if (message.type() === 'error' && !refused) this.complaints.push(message.text());
    });
    page.on('pageerror', (error) => this.complaints.push(String(error)));
    page.on('request', (request) => {
      const url = request.url();
      if (!url.startsWith(mock.origin) && !url.startsWith(mock.callback) && !url.startsWith(mock.provider)) this.complaints.push(`asked ${url}`);
    });
  }

  /** Ends the visit, in which the browser found nothing to complain of: no violation of the policy, no request elsewhere. */
  async close(): Promise<void> {
    await this.#context.close();
    assert.deepEqual(this.complaints, []);
  }

  /** Waits until the page has this heading. */
  async heading(name: string | RegExp): Promise<void> {
    await this.page.getByRole('heading', { level: 1, name }).waitFor();
  }

  async press(name: string | RegExp): Promise<void> {
    await this.page.getByRole('button', { name, exact: true }).click();
  }

  /** Goes on by the Tab key, so many times. Gives what the keyboard comes to, each of which shows that it does. */
  async tab(times: number): Promise<string[]> {
    const order: string[] = [];
    for (let step = 0; step < times; step += 1) {
      await this.page.keyboard.press('Tab');
      const [name, shown] = await this.page.evaluate((): [string, boolean] => {
        const element = document.activeElement as HTMLElement;
        const label = (element as HTMLInputElement).labels?.[0]?.textContent ?? element.getAttribute('aria-label');
        return [(label ?? element.textContent ?? '').trim(), getComputedStyle(element).outlineStyle !== 'none'];
      });
      assert.ok(shown, `${name} shows no focus`);
      order.push(name);
    }
    return order;
  }

  /** Goes back by the keyboard, so many times. */
  async back(times: number): Promise<void> {
    for (let step = 0; step < times; step += 1) await this.page.keyboard.press('Shift+Tab');
  }

  /** The keyboard, and a reader, are at the page's heading. */
  async atHeading(): Promise<void> {
    assert.equal(await this.page.evaluate(() => document.activeElement?.tagName), 'H1');
  }

  /** Waits for an alert with these words. */
  async alert(words: string | RegExp): Promise<void> {
    await this.page.getByRole('alert').filter({ hasText: words }).waitFor();
  }

  /** WCAG 2.2 AA as far as a program can tell, and nothing to scroll sideways: light and dark, on a desktop and on a narrow screen. */
  async sound(name: string): Promise<void> {
    await this.page.evaluate(axe.source);
    for (const { scheme, width } of LOOKS) {
      await this.page.emulateMedia({ colorScheme: scheme });
      await this.page.setViewportSize({ width, height: width < 600 ? 640 : 800 });
      // Colours are all that dark changes.
      const rules = scheme === 'dark' ? ['color-contrast'] : [];
      const found = await this.page.evaluate(async (rules) => {
        const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
        const runOnly = rules.length ? { type: 'rule' as const, values: rules } : { type: 'tag' as const, values: tags };
        const { violations } = await (window as unknown as { axe: typeof axe }).axe.run(document, { runOnly });
        return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(' | ')}`);
      }, rules);
      assert.deepEqual(found, [], `${name}, ${scheme}, ${width} pixels`);
      await this.fits(`${name}-${scheme}-${width}`);
    }
  }

  /** Nothing to scroll sideways; a picture, when asked for. */
  async fits(name: string): Promise<void> {
    const wide = await this.page.locator('html').evaluate((html) => html.scrollWidth - html.clientWidth);
    assert.ok(wide <= 0, `${name} scrolls sideways by ${wide} pixels`);
    if (PICTURES) {
      mkdirSync(PICTURES, { recursive: true });
      await this.page.screenshot({ path: join(PICTURES, `${name}.png`), fullPage: true });
    }
  }

  /** A security key or the device's own, that a person touches and unlocks at once. */
  async authenticator(more: object = {}): Promise<Authenticator> {
    const session = await this.#context.newCDPSession(this.page);
    await session.send('WebAuthn.enable');
    const { authenticatorId } = await session.send('WebAuthn.addVirtualAuthenticator', {
      options: {
        protocol: 'ctap2',
        transport: 'internal',
        hasResidentKey: true,
        hasUserVerification: true,
        isUserVerified: true,
        automaticPresenceSimulation: true,
        ...more,
      },
    });
    return new Authenticator(session, authenticatorId);
  }

}


export class Authenticator {
  readonly #session: CDPSession;
  readonly #id: string;

  constructor(session: CDPSession, id: string) {
    this.#session = session;
    this.#id = id;
  }

  /** Puts a passkey of the mock's cluster into it. */
  async holds(): Promise<void> {
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    await this.#session.send('WebAuthn.addCredential', {
      authenticatorId: this.#id,
      credential: {
        credentialId: Buffer.from('a passkey of these tests').toString('base64'),
        isResidentCredential: true,
        rpId: 'localhost',
        privateKey: privateKey.export({ format: 'der', type: 'pkcs8' }).toString('base64'),
        userHandle: Buffer.from('alice').toString('base64'),
        signCount: 1,
      },
    });
  }

  async credentials(): Promise<number> {
    const { credentials } = await this.#session.send('WebAuthn.getCredentials', { authenticatorId: this.#id });
    return credentials.length;
  }

  async verifies(isUserVerified: boolean): Promise<void> {
    await this.#session.send('WebAuthn.setUserVerified', { authenticatorId: this.#id, isUserVerified });
  }
}
