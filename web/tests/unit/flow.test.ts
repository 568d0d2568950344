import assert from 'node:assert/strict';
import { afterEach, mock, test } from 'node:test';
import contract from '../../src/api/contract.json';
import { sentence } from '../../src/api/call.ts';
import { Approve } from '../../src/pages/approve.svelte.ts';
import { Enrol } from '../../src/pages/enrol.svelte.ts';
import { Factors } from '../../src/pages/factors.svelte.ts';
import { Invite } from '../../src/pages/invite.svelte.ts';
import { Login } from '../../src/pages/login.svelte.ts';
import { Returned } from '../../src/pages/returned.svelte.ts';
import { text } from '../../src/text.ts';

interface Sent {
  path: string;
  body: Record<string, unknown>;
}

/** What the proxy answers, one after another; what was sent is kept. */
function proxy(...answers: (object | { status: number; body: unknown } | Error)[]): Sent[] {
  const sent: Sent[] = [];
  mock.method(globalThis, 'fetch', async (path: string, { body }: { body: string }) => {
    sent.push({ path, body: JSON.parse(body) as Record<string, unknown> });
    const answer = answers.shift();
    if (answer === undefined) throw new Error(`nothing is answered to ${path}`);
    if (answer instanceof Error) throw answer;
    if ('status' in answer && 'body' in answer) return Response.json(answer.body, { status: Number(answer.status) });
    return Response.json(answer);
  });
  return sent;
}
const refusal = (status: number, code: string, message = 'not this'): object => ({ status, body: { error: { code, message } } });
afterEach(() => mock.restoreAll());

const described = contract['login/describe'].answer;
const id = 'AAAAAAAAAAAAAAAAAAAAAA';

test('a link without an id asks nothing', async () => {
  const sent = proxy();
  const login = new Login(null, () => assert.fail());
  await login.load();
  assert.equal(login.stage, 'missing');
  assert.deepEqual(sent, []);
});

test('a login by password returns to the program', async () => {
  const sent = proxy(described, { redirect: 'http://127.0.0.1:4000/callback?code=a' });
  const went: string[] = [];
  const login = new Login(id, (to) => went.push(to));
  await login.load();
  assert.equal(login.stage, 'open');
  login.user = ' alice ';
  login.password = ' with spaces ';
  login.otp = '123 456';
  await login.withPassword();
  assert.equal(login.stage, 'done');
  assert.deepEqual(went, ['http://127.0.0.1:4000/callback?code=a']);
  assert.deepEqual(sent[1], {
    path: '/web/login/password',
    body: { id, user: 'alice', password: ' with spaces ', otp: '123456' },
  });
  assert.equal(login.password, '', 'the password is not kept');
  login.close();
});

test('a redirect that leaves this machine is not followed', async () => {
  proxy(described, { redirect: 'https://attacker.example/callback?code=a' });
  const login = new Login(id, () => assert.fail());
  await login.load();
  [login.user, login.password] = ['alice', 'x'];
  await login.withPassword();
  assert.equal(login.stage, 'open');
  assert.equal(login.problem, text.login.badRedirect);
  login.close();
});

test('what is not filled in is said at its field, and nothing is sent', async () => {
  const sent = proxy({ ...described, redirect: 'headless', code: true });
  const login = new Login(id, () => assert.fail());
  await login.load();
  await login.withPassword();
  assert.deepEqual(Object.keys(login.wrong), ['code', 'user', 'password']);
  await login.withPasskey();
  assert.deepEqual(Object.keys(login.wrong), ['code']);
  assert.equal(sent.length, 1);
  login.close();
});

test('a headless login sends the code as it is shown, and ends on the page', async () => {
  const sent = proxy({ ...described, redirect: 'headless', code: true }, { redirect: null });
  const login = new Login(id, () => assert.fail());
  await login.load();
  [login.code, login.user, login.password] = [' bcdf-ghjk ', 'alice', 'x'];
  await login.withPassword();
  assert.equal(sent[1]?.body['code'], 'BCDF-GHJK');
  assert.equal(login.stage, 'done');
  assert.equal(login.back, null);
});

test('states and errors of a request have pages of their own', async () => {
  for (const [state, stage] of [['refused', 'refused'], ['used', 'used'], ['proven', 'used'], ['expired', 'expired'], ['new-one', 'used']] as const) {
    proxy({ ...described, state });
    const login = new Login(id, () => assert.fail());
    await login.load();
    assert.equal(login.stage, stage, state);
    login.close();
    mock.restoreAll();
  }
  for (const [code, stage] of [['unknown', 'unknown'], ['expired', 'expired'], ['ended', 'used'], ['unavailable', 'trouble']] as const) {
    proxy(refusal(500, code));
    const login = new Login(id, () => assert.fail());
    await login.load();
    assert.equal(login.stage, stage, code);
    mock.restoreAll();
  }
});

test('a request that expires while the page is open says so', async () => {
  proxy({ ...described, expires_in: 60 });
  const timers: { act: () => void; after: number }[] = [];
  mock.method(globalThis, 'setTimeout', (act: () => void, after: number) => timers.push({ act, after }));
  const login = new Login(id, () => assert.fail());
  await login.load();
  assert.equal(login.stage, 'open');
  timers.find(({ after }) => after === 60_000)?.act();
  assert.equal(login.stage, 'expired');
});

test('an expiry past what a timer takes does not end the request at once', async () => {
  proxy({ ...contract['invite/describe'].answer, expires_in: 60 * 60 * 24 * 365 });
  const invite = new Invite('token');
  await invite.load();
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(invite.stage, 'open');
  invite.close();
});

test('a wrong code leaves the request open, and a second act waits for the first', async () => {
  const sent = proxy(contract['approve/describe'].answer, refusal(403, 'wrong', 'wrong one-time code'), {});
  const approve = new Approve(id, () => undefined);
  await approve.load();
  await approve.withOtp();
  assert.equal(approve.wrong, text.errors.otpMissing);
  assert.equal(approve.wrongCode, text.errors.codeMissing);
  approve.otp = '000000';
  await approve.withOtp();
  assert.equal(sent.length, 1, 'nothing is sent without the code of the terminal');
  approve.code = ' bcdf-ghjk ';
  const [first, second] = [approve.withOtp(), approve.withOtp()];
  assert.equal(approve.doing, text.working.otp);
  await Promise.all([first, second]);
  assert.equal(sent.length, 2);
  assert.deepEqual(sent[1]?.body, { id, code: 'BCDF-GHJK', otp: '000000' });
  assert.equal(approve.stage, 'open');
  assert.equal(approve.problem, 'Wrong one-time code.');
  await approve.withOtp();
  assert.equal(approve.stage, 'done');
  assert.equal(approve.problem, null);
  approve.close();
});

test('a passkey is not begun without the code of the terminal, and a request that was not asked for is refused', async () => {
  const sent = proxy(contract['enrol/describe'].answer, refusal(403, 'wrong', 'the code is not the one that the terminal shows'), {});
  const enrol = new Enrol(id);
  await enrol.load();
  await enrol.make();
  assert.equal(enrol.wrong, text.errors.codeMissing);
  assert.equal(sent.length, 1);
  enrol.code = 'wrng-code';
  await enrol.make();
  assert.deepEqual(sent[1], { path: '/web/enrol/begin', body: { id, code: 'WRNG-CODE' } });
  assert.equal(enrol.stage, 'open');
  await enrol.refuse();
  assert.deepEqual(sent[2], { path: '/web/enrol/refuse', body: { id } });
  assert.equal(enrol.stage, 'refused');
  enrol.close();
});

test('a login from another address sends the code, and returns to the program', async () => {
  const sent = proxy({ ...described, code: true }, { redirect: 'http://127.0.0.1:4000/callback?code=a' });
  const went: string[] = [];
  const login = new Login(id, (to) => went.push(to));
  await login.load();
  [login.user, login.password] = ['alice', 'x'];
  await login.withPassword();
  assert.deepEqual(Object.keys(login.wrong), ['code']);
  login.code = 'bcdf-ghjk';
  await login.withPassword();
  assert.equal(sent[1]?.body['code'], 'BCDF-GHJK');
  assert.equal(went.length, 1);
});

test('a proxy that is away, and an answer that is none, are told plainly', async () => {
  proxy(new TypeError('Failed to fetch'));
  const away = new Login(id, () => assert.fail());
  await away.load();
  assert.equal(away.problem, text.errors.unreachable);
  mock.restoreAll();
  proxy({ status: 502, body: 'from something between' });
  const odd = new Login(id, () => assert.fail());
  await odd.load();
  assert.equal(odd.problem, text.errors.unexpected(502));
});

test('what a page that is gone was waiting for changes nothing', async () => {
  proxy(described);
  const login = new Login(id, () => assert.fail());
  const loading = login.load();
  login.close();
  await loading;
  assert.equal(login.request, null);
  assert.equal(login.problem, null);
});

test('errors of the authority become sentences', () => {
  assert.equal(sentence('wrong code; try again'), 'Wrong code; try again.');
  assert.equal(sentence('Is it?'), 'Is it?');
});

test('a login by single sign-on goes to the provider and comes back once, with what this tab has kept', async () => {
  const kept = new Map<string, string>();
  const storage = { getItem: (key: string) => kept.get(key) ?? null, setItem: (key: string, value: string) => kept.set(key, value), removeItem: (key: string) => kept.delete(key) };
  Object.defineProperty(globalThis, 'sessionStorage', { value: storage, configurable: true });
  const sent = proxy(described, contract['login/sso/begin'].answer, contract['login/sso/finish'].answer, contract['login/sso/finish'].answer);
  const went: string[] = [];
  const login = new Login(id, (to) => went.push(to));
  await login.load();
  assert.deepEqual(login.connectors.map(({ name }) => name), ['corp']);
  await login.withSso('corp', 'https://proxy.example.org');
  assert.deepEqual(sent[1], { path: '/web/login/sso/begin', body: { id, connector: 'corp', origin: 'https://proxy.example.org' } });
  assert.deepEqual(went, [contract['login/sso/begin'].answer.redirect]);
  const returned = new Returned('corp', '?state=s&code=c%20d&iss=https%3A%2F%2Fidp&other=x', (to) => went.push(to));
  await returned.load();
  assert.equal(returned.stage, 'done');
  const { binding } = contract['login/sso/begin'].answer;
  assert.deepEqual(sent[2]?.body, { connector: 'corp', state: 's', code: 'c d', iss: 'https://idp', error: '', error_description: '', binding });
  assert.equal(went[1], contract['login/sso/finish'].answer.redirect);
  await new Returned('corp', '?state=s&code=c', () => undefined).load();
  assert.equal(sent[3]?.body['binding'], '', 'it goes with one answer');
  login.close();
});

test('a provider without encryption, and an answer that is none, are not followed', async () => {
  for (const redirect of ['http://login.example.com/authorize', 'javascript:alert(1)', 'data:text/html,x', '/authorize']) {
    proxy(described, { redirect, binding: 'b' });
    const login = new Login(id, () => assert.fail());
    await login.load();
    await login.withSso('corp', 'https://proxy.example.org');
    assert.equal(login.problem, text.login.badProvider, redirect);
    login.close();
    mock.restoreAll();
  }
  const sent = proxy();
  const returned = new Returned('corp', '', () => assert.fail());
  await returned.load();
  assert.equal(returned.stage, 'missing');
  assert.deepEqual(sent, []);
  proxy({ redirect: 'https://attacker.example/callback?code=a' });
  const hostile = new Returned('corp', '?state=s&code=c', () => assert.fail());
  await hostile.load();
  assert.equal(hostile.stage, 'trouble');
  assert.equal(hostile.problem, text.login.badRedirect);
});

test('factors are asked for with the code, and one is removed with the approval that was proven for it', async () => {
  const [list, begin, finish] = [contract['factors/list'], contract['factors/remove/begin'], contract['factors/remove/finish']];
  const sent = proxy(contract['factors/describe'].answer, list.answer, begin.answer, finish.answer);
  const page = new Factors(id);
  await page.load();
  assert.deepEqual([page.listed], [null]);
  await page.show();
  assert.equal(page.wrong, text.errors.codeMissing);
  assert.equal(sent.length, 1, 'nothing is asked without the code');
  page.code = ' bcdf ghjk ';
  await page.show();
  const code = page.typed;
  assert.deepEqual(sent[1], { path: '/web/factors/list', body: { id, code } });
  const factor = page.listed?.factors[0];
  assert.ok(factor);
  await page.begin(factor);
  assert.deepEqual(sent[2]?.body, { id, code, factor: factor.id });
  assert.equal(page.removal?.approval, begin.answer.approval);
  await page.approved('done');
  assert.deepEqual(sent[3]?.body, { id, code, factor: factor.id, approval: begin.answer.approval });
  assert.deepEqual([page.removed, page.removal, page.listed?.factors.length], ['blue key', null, 0]);
  page.close();
});

test('an approval that ends otherwise removes nothing', async () => {
  for (const [stage, problem] of [['refused', null], ['expired', text.factors.over], ['unknown', text.factors.over]] as const) {
    const sent = proxy(contract['factors/describe'].answer, contract['factors/list'].answer, contract['factors/remove/begin'].answer);
    const page = new Factors(id);
    await page.load();
    page.code = 'BCDFGHJK';
    await page.show();
    const factor = page.listed?.factors[0];
    assert.ok(factor);
    await page.begin(factor);
    await page.approved(stage);
    assert.equal(sent.length, 3, stage);
    assert.deepEqual([page.problem, page.removal], [problem, null]);
    page.close();
    mock.restoreAll();
  }
});
