// A stand-in for the proxy: its files with its headers, and its JSON calls. The id of a request says how it behaves.
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Calls, Factors as Listed, Name } from '../src/api/types.ts';

export const CODE = 'BCDF-GHJK';
export const PASSWORD = 'correct horse battery';
export const OTP = '123456';
export const CLUSTER = 'harbour';
export const ADDRESS = 'sallyport.example.com:443';

/** As the proxy sends it with every page. */
export const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; form-action 'none'; " +
  "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types svelte-trusted-html";

type Answer = { status: number; body: unknown };

/** Something the page asked for. */
export interface Asked {
  readonly call: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: Record<string, unknown>;
}

export class Mock {
  readonly asked: Asked[] = [];
  readonly returned: string[] = [];
  readonly #servers: Server[] = [];
  /** Passkeys that were made: later ones exclude them. */
  readonly made: string[] = [];
  /** Factors that were removed, by id. */
  readonly removed = new Set<string>();
  readonly challenges = new Map<string, string>();
  readonly ended = new Map<string, string>();
  /** What each tab keeps of the login that it has begun. */
  readonly bindings = new Map<string, string>();
  origin = '';
  callback = '';
  /** An identity provider that sends everybody back. */
  provider = '';

  static async start(): Promise<Mock> {
    const mock = new Mock();
    mock.callback = `http://127.0.0.1:${await mock.#listen((request, response) => mock.#back(request, response))}/callback`;
    mock.provider = `http://127.0.0.1:${await mock.#listen((request, response) => mock.#authorize(request, response))}/authorize`;
    mock.origin = `http://localhost:${await mock.#listen((request, response) => void mock.serve(request, response))}`;
    return mock;
  }

  async close(): Promise<void> {
    for (const server of this.#servers) {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    }
  }

  /** Answers a call, or serves a file. */
  async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = new URL(request.url ?? '/', 'http://localhost').pathname;
    if (path.startsWith('/web/') && request.method === 'POST') {
      const { status, body } = await this.#answer(path.slice('/web/'.length), request);
      response.writeHead(status, { 'content-type': 'application/json', 'cache-control': 'no-store' });
      response.end(JSON.stringify(body));
      return;
    }
    const file = /^\/web\/(app\.js|app\.css|icon\.svg)$/.exec(path)?.[1];
    if (file) {
      const type = { 'app.js': 'text/javascript', 'app.css': 'text/css', 'icon.svg': 'image/svg+xml' }[file];
      response.writeHead(200, { 'content-type': type, 'content-security-policy': POLICY });
      response.end(readFileSync(join('dist', file)));
      return;
    }
    response.writeHead(200, {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': POLICY,
      'referrer-policy': 'no-referrer',
      'cache-control': 'no-store',
    });
    response.end(filled(readFileSync('dist/index.html', 'utf8')));
  }

  async #listen(handle: (request: IncomingMessage, response: ServerResponse) => void): Promise<number> {
    const server = createServer(handle);
    this.#servers.push(server);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return (server.address() as AddressInfo).port;
  }

  factors(): Listed {
    const times = { created: '2026-03-02T08:00:00Z', last_used: '2026-11-25T16:20:00Z', counter_went_back: null };
    const all = [
      { ...times, id: 'blue-key-1', name: 'blue key', kind: 'webauthn', backed_up: false, counter_went_back: '2026-11-20T07:30:00Z' },
      { ...times, id: 'laptop-123', name: 'laptop', kind: 'webauthn', backed_up: true },
      { ...times, id: 'phone-1234', name: 'phone', kind: 'totp', backed_up: false, last_used: null },
      { ...times, id: 'last', name: 'last key', kind: 'webauthn', backed_up: false },
    ];
    return { factors: all.filter(({ id }) => !this.removed.has(id)), recovery_codes: 9 };
  }

  #back(request: IncomingMessage, response: ServerResponse): void {
    if (request.url?.startsWith('/callback')) this.returned.push(request.url);
    response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' });
    response.end('<!doctype html><html lang="en"><title>back</title><h1>You may close this.</h1></html>');
  }

  #authorize(request: IncomingMessage, response: ServerResponse): void {
    const query = new URL(request.url ?? '/', 'http://127.0.0.1').searchParams;
    const answer = new URLSearchParams({ state: query.get('state') ?? '', code: 'the-code' });
    response.writeHead(302, { location: `${query.get('back')}/web/sso/callback/${query.get('answer_of')}?${answer}` });
    response.end();
  }

  async #answer(call: string, request: IncomingMessage): Promise<Answer> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = JSON.parse(Buffer.concat(chunks).toString() || '{}') as Record<string, unknown>;
    this.asked.push({ call, headers: request.headers, body });
    if (request.headers.origin !== this.origin && this.origin) return no(403, 'foreign', 'the call is of another page');
    const handler = HANDLERS[call as Name];
    return handler ? (handler as (request: unknown, mock: Mock) => Answer)(body, this) : no(404, 'unknown', 'no such call');
  }
}

/** The page as the proxy fills it in. */
export function filled(page: string): string {
  const noscript =
    '<section class="card"><h1>This page needs JavaScript</h1><p class="lead">In your terminal you need no browser:</p>' +
    '<pre><code>sallyport login</code></pre></section>';
  return page
    .replaceAll('{{cluster}}', CLUSTER)
    .replaceAll('{{address}}', ADDRESS)
    .replaceAll('{{title}}', 'Sallyport')
    .replaceAll('{{noscript}}', noscript);
}

const yes = (body: unknown): Answer => ({ status: 200, body });
const no = (status: number, code: string, message: string): Answer => ({ status, body: { error: { code, message } } });
const client = { host_name: 'build-box-7', address: '203.0.113.5', time: '2026-11-26T10:41:00Z' };

function described<B>(id: string, mock: Mock, body: B): Answer {
  if (id.startsWith('unknown')) return no(404, 'unknown', 'no such request');
  if (id.startsWith('outage') && mock.asked.filter((asked) => asked.body['id'] === id).length < 2) {
    return no(503, 'unavailable', 'the proxy cannot reach the authority of the cluster; try again in a minute');
  }
  const state = mock.ended.get(id) ?? ['expired', 'refused', 'used'].find((word) => id.startsWith(word)) ?? 'pending';
  const expires_in = id.startsWith('short') ? 1 : 600;
  return yes({ ...body, state, expires_in });
}

function assertion(id: string, mock: Mock): Answer {
  const challenge = randomBytes(32).toString('base64url');
  mock.challenges.set(id, challenge);
  const timeout = id.startsWith('slow') ? 1000 : 30_000;
  return yes({ public_key: { challenge, rpId: 'localhost', allowCredentials: [], userVerification: 'required', timeout } });
}

function creation(id: string, mock: Mock): Answer {
  const challenge = randomBytes(32).toString('base64url');
  mock.challenges.set(id, challenge);
  return yes({
    public_key: {
      challenge,
      rp: { id: id.startsWith('otherrp') ? 'example.com' : 'localhost', name: CLUSTER },
      user: { id: randomBytes(64).toString('base64url'), name: 'alice', displayName: 'alice' },
      pubKeyCredParams: [-7, -8, -257].map((alg) => ({ type: 'public-key', alg })),
      excludeCredentials: mock.made.map((one) => ({ type: 'public-key', id: one })),
      authenticatorSelection: { residentKey: 'required', requireResidentKey: true, userVerification: 'required' },
      attestation: 'none',
      timeout: 30_000,
    },
  });
}

/** Whether a response is over the challenge that was given out; signatures are the real authority's to check. */
function proves(id: string, mock: Mock, response: unknown): boolean {
  const said = response as { rawId?: string; response?: { clientDataJSON?: string } };
  const data = JSON.parse(Buffer.from(said.response?.clientDataJSON ?? '', 'base64url').toString() || '{}') as Record<string, unknown>;
  const challenge = mock.challenges.get(id);
  mock.challenges.delete(id);
  return typeof said.rawId === 'string' && challenge !== undefined && data['challenge'] === challenge && data['origin'] === mock.origin;
}

function proven(id: string, mock: Mock): Answer {
  mock.ended.set(id, 'proven');
  if (/^(headless|first)/.test(id)) return yes({ redirect: null });
  return yes({ redirect: id.startsWith('hostile') ? 'https://attacker.example/callback?code=x' : `${mock.callback}?code=one-time` });
}

function refused(id: string, mock: Mock): Answer {
  mock.ended.set(id, 'refused');
  return yes({});
}

/** A device that waits: what the cluster knows of it, and what its machine says. */
const DEVICE = [
  { label: 'Device', value: '8a5d5a5e-9a0e-4b7b-8d8e-3c1c8f6a2b10', said: false },
  { label: 'Its users', value: 'bob', said: false },
  { label: 'Asked for by', value: 'bob, 2026-11-26T09:12:00Z', said: false },
  { label: 'Key (SHA-256)', value: '4f'.repeat(32), said: false },
  { label: 'Its key is in', value: 'hardware', said: true },
  { label: 'Its name', value: 'bobs-laptop', said: true },
  { label: 'Its system', value: 'Debian GNU/Linux 13 (trixie)', said: true },
  { label: 'Its serial number', value: 'PF3XK0815', said: true },
];

const wrong = no(403, 'wrong', 'the passkey is of no user of this cluster; use another one');
const wrongCode = no(403, 'wrong', 'this is not the code that the program shows; look at the terminal again');

const HANDLERS: { [N in Name]: (request: Calls[N]['request'], mock: Mock) => Answer } = {
  'login/describe': ({ id }, mock) =>
    described(id, mock, {
      cluster: CLUSTER,
      client,
      redirect: id.startsWith('headless') ? 'headless' : 'loopback',
      methods: {
        passkey: !/^(onlypass|onlysso|nothing)/.test(id),
        password: !/^(onlykey|onlysso|nothing)/.test(id),
        sso: /^(sso|onlysso)/.test(id) ? [{ name: 'corp', title: 'Corporate login' }] : [],
      },
      user: null,
      code: /^(headless|elsewhere)/.test(id),
    }),
  'login/passkey/begin': ({ id, code }, mock) => (/^(headless|elsewhere)/.test(id) && code !== CODE ? wrongCode : assertion(id, mock)),
  'login/passkey/finish': ({ id, response }, mock) => (proves(id, mock, response) ? proven(id, mock) : wrong),
  'login/password': ({ id, code, user, password, otp }, mock) => {
    if (/^(headless|elsewhere)/.test(id) && code !== CODE) return wrongCode;
    const right = user === 'alice' && password === PASSWORD && otp === OTP;
    return right ? proven(id, mock) : no(403, 'wrong', 'wrong user name, password or one-time code');
  },
  'login/sso/begin': ({ id, code, connector, origin }, mock) => {
    if (id.startsWith('first') && code !== CODE) return wrongCode;
    if (connector !== 'corp' || origin !== mock.origin) return no(404, 'unknown', 'no such connector');
    mock.bindings.set(id, `binding-of-${id}`);
    // A provider that sends people on to another one, whose answer comes to the address of that one.
    const answer_of = id.startsWith('onlysso-mixed') ? 'another' : connector;
    return yes({ redirect: `${mock.provider}?state=${id}&answer_of=${answer_of}&back=${encodeURIComponent(origin)}`, binding: `binding-of-${id}` });
  },
  'login/sso/finish': ({ connector, state, code, binding, error }, mock) => {
    const known = mock.bindings.get(state);
    mock.bindings.delete(state);
    if (known === undefined || known !== binding) {
      return no(403, 'denied', 'this answer came to another browser than the one that began the login');
    }
    if (connector !== 'corp') return no(403, 'denied', 'another identity provider has answered than the one that you chose');
    if (error !== '' || code !== 'the-code') return no(403, 'denied', 'the login was refused at the provider');
    return proven(state, mock);
  },
  'login/refuse': ({ id }, mock) => refused(id, mock),
  'approve/describe': ({ id }, mock) =>
    described(id, mock, {
      cluster: CLUSTER,
      user: 'alice',
      purpose:
        ['remove-factor', 'recovery-codes', 'session', 'administer', 'admit-device', 'change-password'].find((purpose) =>
          id.startsWith(purpose),
        ) ?? 'add-factor',
      details: id.startsWith('admit-device')
        ? DEVICE
        : [
            { label: 'Kind', value: 'passkey', said: false },
            { label: 'Name', value: 'blue key', said: false },
          ],
      client,
      methods: {
        passkey: !/^(onlyotp|nothing|first)/.test(id),
        otp: !/^(onlykey|nothing|first)/.test(id),
        sso: id.startsWith('first') ? [{ name: 'corp', title: 'Corporate login' }] : [],
      },
    }),
  'approve/passkey/begin': ({ id, code }, mock) => (code === CODE ? assertion(id, mock) : wrongCode),
  'approve/passkey/finish': ({ id, response }, mock) => (proves(id, mock, response) ? yes({}) : wrong),
  'approve/otp': ({ code, otp }) => {
    if (code !== CODE) return wrongCode;
    return otp === OTP ? yes({}) : no(403, 'wrong', 'wrong one-time code; wait for the next one');
  },
  'approve/refuse': ({ id }, mock) => refused(id, mock),
  'factors/describe': ({ id }, mock) => described(id, mock, { cluster: CLUSTER, user: 'alice', client }),
  'factors/list': ({ code }, mock) => (code === CODE ? yes(mock.factors()) : wrongCode),
  'factors/remove/begin': ({ id, code, factor }) => {
    if (code !== CODE) return wrongCode;
    if (factor === 'last') return no(403, 'denied', '"last key" is your last factor, and this cluster requires one');
    return yes({ approval: `remove-factor-${factor}-${id}` });
  },
  'factors/remove/finish': ({ id, code, factor, approval }, mock) => {
    if (code !== CODE || approval !== `remove-factor-${factor}-${id}`) return wrongCode;
    mock.removed.add(factor);
    return yes(mock.factors());
  },
  'factors/refuse': ({ id }, mock) => refused(id, mock),
  'enrol/describe': ({ id }, mock) => described(id, mock, { cluster: CLUSTER, user: 'alice', name: 'blue key' }),
  'enrol/begin': ({ id, code }, mock) => (code === CODE ? creation(id, mock) : wrongCode),
  'enrol/finish': ({ id, response }, mock) => {
    if (!proves(id, mock, response)) return wrong;
    mock.made.push(String(response['rawId']));
    return yes({ name: 'blue key' });
  },
  'enrol/refuse': ({ id }, mock) => refused(id, mock),
  'invite/describe': ({ token }, mock) =>
    described(token, mock, { cluster: CLUSTER, user: 'alice', methods: { passkey: !token.startsWith('nokeys'), password: true } }),
  'invite/begin': ({ token }, mock) => creation(token, mock),
  'invite/finish': ({ token, response }, mock) => (proves(token, mock, response) ? yes({ user: 'alice' }) : wrong),
};
