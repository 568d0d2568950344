// What a person does at the pages, with the browser's virtual authenticator.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { text } from '../../src/text.ts';
import { CODE, OTP, PASSWORD } from '../mock.ts';
import { Rig, type Visit } from './support.ts';

let rig: Rig;
before(async () => {
  rig = await Rig.start();
});
after(() => rig.close());

const passkey = 'Continue with a passkey';
const back = (visit: Visit): Promise<void> => visit.heading('You may close this.');
const sent = (call: string, id: string): Record<string, unknown>[] =>
  rig.mock.asked.filter((asked) => asked.call === call && asked.body['id'] === id).map(({ body }) => body);

test('a login by passkey is two touches, and ends at the program that asked', async () => {
  const visit = await rig.visit('/login#loopback-10');
  await (await visit.authenticator()).holds();
  await visit.heading('Log in to harbour');
  await visit.press(passkey);
  await back(visit);
  assert.equal(rig.mock.returned.at(-1), '/callback?code=one-time');
  const asked = rig.mock.asked.filter(({ body }) => body['id'] === 'loopback-10');
  assert.deepEqual(asked.map(({ call }) => call), ['login/describe', 'login/passkey/begin', 'login/passkey/finish']);
  for (const { headers } of asked) {
    assert.equal(headers.origin, rig.mock.origin, 'the proxy is told which page asks');
    assert.equal(headers['sec-fetch-site'], 'same-origin');
    assert.equal(headers.cookie, undefined);
    assert.equal(headers.referer, undefined);
  }
  // Going back must not send the one-time code again.
  await visit.page.goBack().catch(() => null);
  assert.equal(rig.mock.returned.length, 1);
  await visit.close();
});

test('a browser that reads no JSON itself logs in all the same', async () => {
  const visit = await rig.visit('/login#loopback-11', {}, (page) =>
    page.addInitScript(() => {
      const none = PublicKeyCredential as unknown as Record<string, unknown>;
      none['parseRequestOptionsFromJSON'] = none['parseCreationOptionsFromJSON'] = undefined;
      (PublicKeyCredential.prototype as unknown as Record<string, unknown>)['toJSON'] = undefined;
    }),
  );
  const authenticator = await visit.authenticator();
  await authenticator.holds();
  await visit.press(passkey);
  await back(visit);
  await visit.page.goto(`${rig.mock.origin}/enrol#enrol-11`);
  await visit.page.getByLabel(text.login.code).fill(CODE);
  await visit.press(text.enrol.submit);
  await visit.heading(text.enrol.done);
  assert.equal(await authenticator.credentials(), 2);
  await visit.close();
});

test('a browser without passkeys says so, and goes on with a password', async () => {
  const visit = await rig.visit('/login#loopback-12', {}, (page) =>
    page.addInitScript(() => Reflect.deleteProperty(window, 'PublicKeyCredential')),
  );
  await visit.page.getByText(text.passkeys.missing).waitFor();
  await visit.page.getByLabel('User name').fill('alice');
  await visit.page.getByLabel('Password').fill(PASSWORD);
  await visit.page.getByLabel('One-time code').fill('123 456');
  await visit.press('Log in');
  await back(visit);
  for (const path of ['/enrol#enrol-12', '/invite/invitation', '/login#onlykey-12', '/approve#onlykey-12']) {
    await visit.page.goto(rig.mock.origin + path);
    await visit.page.getByText(text.passkeys.missing).waitFor();
  }
  await visit.close();
});

test('a wrong password is told, and the form stays as it was', async () => {
  const visit = await rig.visit('/login#loopback-13');
  await visit.press('Use a password instead');
  await visit.page.getByLabel('User name').fill('alice');
  await visit.page.getByLabel('Password').fill('wrong');
  await visit.press('Log in');
  await visit.alert('Wrong user name, password or one-time code.');
  assert.equal(await visit.page.getByLabel('User name').inputValue(), 'alice');
  await visit.page.getByLabel('Password').fill(PASSWORD);
  await visit.page.getByLabel('One-time code').fill(OTP);
  await visit.press('Log in');
  await back(visit);
  await visit.close();
});

test('a headless login wants the code first, and ends on the page', async () => {
  const visit = await rig.visit('/login#headless-14');
  await (await visit.authenticator()).holds();
  await visit.page.getByText(text.login.warning).waitFor();
  await visit.press(passkey);
  const code = visit.page.getByLabel(text.login.code);
  await visit.page.getByText(text.errors.codeMissing).waitFor();
  assert.ok(await code.evaluate((field) => field === document.activeElement), 'the keyboard is on the field');
  assert.deepEqual(sent('login/passkey/begin', 'headless-14'), []);
  await code.fill('WRNG-CODE');
  await visit.press(passkey);
  await visit.alert('This is not the code that the program shows');
  await code.fill(CODE.toLowerCase());
  await visit.press(passkey);
  await visit.heading(text.login.done);
  await visit.page.getByText('The program on build-box-7 goes on').waitFor();
  await visit.sound('login-done');
  await visit.close();
});

test('a passkey that is not there, or not unlocked, is told plainly and can be tried again', async () => {
  const visit = await rig.visit('/login#slow-prompt-15');
  const authenticator = await visit.authenticator();
  await visit.press(passkey);
  await visit.alert(text.passkeys.cancelled);
  await authenticator.holds();
  await authenticator.verifies(false);
  await visit.press(passkey);
  await visit.alert(text.passkeys.cancelled);
  await authenticator.verifies(true);
  await visit.press(passkey);
  await back(visit);
  await visit.close();
});

test('a login that was not asked for is refused for good', async () => {
  const visit = await rig.visit('/login#loopback-16');
  await visit.press(text.login.refuse);
  await visit.heading(text.refused.title);
  await visit.atHeading();
  await visit.page.reload();
  await visit.heading(text.refused.title);
  await visit.close();
});

test('a request expires while its page is open, and takes an open prompt with it', async () => {
  const visit = await rig.visit('/login#short-17');
  await visit.authenticator({ automaticPresenceSimulation: false });
  await visit.press(passkey);
  await visit.heading(text.expired.title);
  await visit.close();
});

test('a proxy that would send the browser elsewhere is not followed', async () => {
  const visit = await rig.visit('/login#hostile-18');
  await (await visit.authenticator()).holds();
  await visit.press(passkey);
  await visit.alert(text.login.badRedirect);
  assert.ok(visit.page.url().startsWith(rig.mock.origin));
  await visit.close();
});

test('an outage of the cluster is told, and the page can be asked again', async () => {
  const visit = await rig.visit('/login#outage-19');
  await visit.heading(text.trouble.title);
  await visit.press(text.again);
  await visit.heading('Log in to harbour');
  await visit.close();
});

test('another link in the same tab is another request', async () => {
  const visit = await rig.visit('/login#loopback-20');
  await visit.heading('Log in to harbour');
  await visit.page.evaluate(() => (location.hash = '#headless-20'));
  await visit.page.getByText(text.login.warning).waitFor();
  await visit.close();
});

test('a request of the own program is approved by passkey, by code, or refused', async () => {
  const visit = await rig.visit('/approve#approve-21');
  await (await visit.authenticator()).holds();
  await visit.page.getByText('blue key').waitFor();
  await visit.page.getByText(text.approve.warning).waitFor();
  await visit.press(text.approve.passkey);
  await visit.page.getByText(text.errors.codeMissing).waitFor();
  assert.deepEqual(sent('approve/passkey/begin', 'approve-21'), []);
  await visit.page.getByLabel(text.login.code).fill(CODE);
  await visit.press(text.approve.passkey);
  await visit.heading(text.approve.done);
  await visit.page.goto(`${rig.mock.origin}/approve#approve-22`);
  await visit.page.getByLabel(text.login.code).fill(CODE);
  await visit.press(text.approve.otpChoice);
  await visit.page.getByLabel('One-time code').fill('000000');
  await visit.press(text.approve.submit);
  await visit.alert('Wrong one-time code');
  await visit.page.getByLabel('One-time code').fill(OTP);
  await visit.press(text.approve.submit);
  await visit.heading(text.approve.done);
  await visit.page.goto(`${rig.mock.origin}/approve#approve-23`);
  await visit.press(text.approve.refuse);
  await visit.heading(text.refused.title);
  await visit.close();
});

test('a passkey is made once on each device', async () => {
  const visit = await rig.visit('/enrol#enrol-24');
  const authenticator = await visit.authenticator();
  const code = visit.page.getByLabel(text.login.code);
  await visit.press(text.enrol.submit);
  await visit.page.getByText(text.errors.codeMissing).waitFor();
  await code.fill('WRNG-CODE');
  await visit.press(text.enrol.submit);
  await visit.alert('This is not the code that the program shows');
  assert.equal(await authenticator.credentials(), 0);
  await code.fill(CODE);
  await visit.press(text.enrol.submit);
  await visit.heading(text.enrol.done);
  assert.equal(await authenticator.credentials(), 1);
  await visit.sound('enrol-done');
  await visit.page.goto(`${rig.mock.origin}/enrol#enrol-25`);
  await code.fill(CODE);
  await visit.press(text.enrol.submit);
  await visit.alert(text.passkeys.already);
  assert.equal(await authenticator.credentials(), 1);
  await visit.press(text.enrol.refuse);
  await visit.heading(text.refused.title);
  await visit.close();
});

test('a page at another address than the passkeys belong to says which setting it is', async () => {
  const visit = await rig.visit('/enrol#otherrp-26');
  await visit.authenticator();
  await visit.page.getByLabel(text.login.code).fill(CODE);
  await visit.press(text.enrol.submit);
  await visit.alert('authentication.webauthn.rp_id');
  await visit.close();
});

test('an invitation is accepted with a passkey, and the command to log in has the pin', async () => {
  const pin = `sha256:${'0'.repeat(64)}`;
  const visit = await rig.visit(`/invite/invitation-27#${pin}`);
  await visit.authenticator();
  await visit.page.getByText(`sallyport signup 'https://sallyport.example.com:443/invite/invitation-27#${pin}'`).waitFor();
  await visit.press(text.invite.submit);
  await visit.page.getByText(text.invite.nameMissing).waitFor();
  await visit.page.getByLabel(text.invite.name).fill('blue key');
  await visit.press(text.invite.submit);
  await visit.heading('The account of alice is ready');
  await visit.page.getByText(`--ca-pin ${pin}`).waitFor();
  await visit.sound('invite-done');
  const asked = rig.mock.asked.find(({ call }) => call === 'invite/finish');
  assert.equal(asked?.body['name'], 'blue key');
  assert.ok(!JSON.stringify(rig.mock.asked.map(({ body }) => body)).includes(pin), 'the pin stays in the browser');
  await visit.close();
});

test('everything can be done by keyboard alone, and the focus is seen', async () => {
  const visit = await rig.visit('/login#headless-28');
  await (await visit.authenticator()).holds();
  await visit.heading('Log in to harbour');
  assert.deepEqual(await visit.tab(4), [text.login.code, passkey, text.login.password, text.login.refuse]);
  await visit.back(3);
  await visit.page.keyboard.type(CODE);
  await visit.page.keyboard.press('Tab');
  await visit.page.keyboard.press('Enter');
  await visit.heading(text.login.done);
  await visit.atHeading();
  await visit.close();
});

test('an approval is given and refused by keyboard alone', async () => {
  const byPasskey = await rig.visit('/approve#approve-29');
  await (await byPasskey.authenticator()).holds();
  await byPasskey.heading(/Confirm/);
  const order = [text.login.code, text.approve.passkey, text.approve.otpChoice, text.approve.refuse];
  assert.deepEqual(await byPasskey.tab(4), order);
  await byPasskey.back(3);
  await byPasskey.page.keyboard.type(CODE);
  assert.deepEqual(await byPasskey.tab(1), [text.approve.passkey]);
  await byPasskey.page.keyboard.press('Enter');
  await byPasskey.heading(text.approve.done);
  await byPasskey.atHeading();
  await byPasskey.close();

  const byCode = await rig.visit('/approve#onlyotp-29');
  await byCode.heading(/Confirm/);
  assert.deepEqual(await byCode.tab(1), [text.login.code]);
  await byCode.page.keyboard.type(CODE);
  assert.deepEqual(await byCode.tab(3), [text.approve.otp, text.approve.submit, text.approve.refuse]);
  await byCode.back(2);
  await byCode.page.keyboard.type(OTP);
  await byCode.page.keyboard.press('Enter');
  await byCode.heading(text.approve.done);
  await byCode.close();

  const refused = await rig.visit('/approve#onlyotp-30');
  await refused.heading(/Confirm/);
  assert.equal((await refused.tab(4)).at(-1), text.approve.refuse);
  await refused.page.keyboard.press('Enter');
  await refused.heading(text.refused.title);
  await refused.atHeading();
  await refused.close();
});

test('a person looks at their factors and removes one by a passkey; the other one stays', async () => {
  const visit = await rig.visit('/factors#factors-41');
  await (await visit.authenticator()).holds();
  await visit.press(text.factors.submit);
  await visit.page.getByText(text.errors.codeMissing).waitFor();
  await visit.page.getByLabel(text.login.code).fill(CODE.toLowerCase());
  await visit.press(text.factors.submit);
  await visit.page.getByText('Recovery codes that are left: 9').waitFor();
  await visit.atHeading();
  await visit.press('Remove phone');
  await visit.heading('Confirm the removal of a factor');
  assert.equal(await visit.page.getByLabel(text.login.code).count(), 0, 'the code was typed already');
  await visit.press(text.factors.keep);
  await visit.heading(text.factors.title);
  assert.equal(rig.mock.ended.get('remove-factor-phone-1234-factors-41'), 'refused');
  await visit.press('Remove laptop');
  await visit.heading('Confirm the removal of a factor');
  await visit.atHeading();
  await visit.press(text.approve.passkey);
  await visit.page.getByText(text.factors.removed('laptop')).waitFor();
  assert.equal(await visit.page.getByRole('heading', { name: 'laptop' }).count(), 0);
  assert.equal(await visit.page.getByRole('heading', { name: 'phone' }).count(), 1);
  await visit.sound('factors-removed');
  rig.mock.removed.clear();
  await visit.close();
});

test('a factor is removed by keyboard alone, with a one-time code', async () => {
  const visit = await rig.visit('/factors#factors-42');
  await visit.heading(text.factors.title);
  assert.deepEqual(await visit.tab(3), [text.login.code, text.factors.submit, text.factors.refuse]);
  await visit.back(2);
  await visit.page.keyboard.type(CODE);
  await visit.page.keyboard.press('Enter');
  await visit.page.getByText('Recovery codes that are left: 9').waitFor();
  await visit.atHeading();
  const order = ['blue key', 'laptop', 'phone', 'last key'].map(text.factors.removeNamed);
  assert.deepEqual(await visit.tab(4), order);
  await visit.back(1);
  await visit.page.keyboard.press('Enter');
  await visit.heading('Confirm the removal of a factor');
  await visit.atHeading();
  // Without a passkey in this browser's reach, the code is typed.
  assert.deepEqual(await visit.tab(3), [text.approve.passkey, text.approve.otpChoice, text.factors.keep]);
  await visit.back(1);
  await visit.page.keyboard.press('Enter');
  const otp = visit.page.getByLabel(text.approve.otp, { exact: true });
  await otp.focus();
  await visit.page.keyboard.type(OTP);
  await visit.page.keyboard.press('Enter');
  await visit.page.getByText(text.factors.removed('phone')).waitFor();
  await visit.atHeading();
  rig.mock.removed.clear();
  await visit.close();
});

test('a page of factors that a person did not ask for is refused', async () => {
  const visit = await rig.visit('/factors#factors-43');
  await visit.press(text.factors.refuse);
  await visit.heading(text.refused.title);
  await visit.atHeading();
  assert.equal(rig.mock.ended.get('factors-43'), 'refused');
  await visit.close();
});

test('a device is admitted at a page that tells what its machine says from what is known', async () => {
  const visit = await rig.visit('/approve#admit-device-44');
  await (await visit.authenticator()).holds();
  await visit.heading('Admit a trusted device');
  const note = visit.page.locator('.facts > div', { hasText: text.approve.said });
  assert.deepEqual(await note.locator('dt').allTextContents(), ['Its key is in', 'Its name', 'Its system', 'Its serial number']);
  await visit.page.getByLabel(text.login.code).fill(CODE);
  await visit.press(text.approve.passkey);
  await visit.heading(text.approve.done);
  await visit.close();
});

test('a passkey is made by keyboard alone', async () => {
  const visit = await rig.visit('/enrol#enrol-31');
  const authenticator = await visit.authenticator();
  await visit.heading(text.enrol.title);
  assert.deepEqual(await visit.tab(3), [text.login.code, text.enrol.submit, text.enrol.refuse]);
  // Sent without the code, the form puts the keyboard on the field that wants it.
  await visit.back(1);
  await visit.page.keyboard.press('Enter');
  await visit.page.getByText(text.errors.codeMissing).waitFor();
  const code = visit.page.getByLabel(text.login.code);
  assert.ok(await code.evaluate((field) => field === document.activeElement), 'the keyboard is on the field');
  await visit.page.keyboard.type(CODE);
  await visit.page.keyboard.press('Enter');
  await visit.heading(text.enrol.done);
  await visit.atHeading();
  assert.equal(await authenticator.credentials(), 1);
  await visit.close();
});

test('an invitation is accepted by keyboard alone, and so is the command that comes of it', async () => {
  const visit = await rig.visit(`/invite/invitation-32#sha256:${'0'.repeat(64)}`);
  await visit.authenticator();
  await visit.heading('Welcome to harbour');
  const order = [text.invite.name, text.invite.submit, text.invite.passwordTitle, text.copy];
  assert.deepEqual(await visit.tab(4), order);
  await visit.back(3);
  await visit.page.keyboard.type('blue key');
  await visit.page.keyboard.press('Enter');
  await visit.heading('The account of alice is ready');
  await visit.atHeading();
  assert.deepEqual(await visit.tab(2), [text.front.steps, text.copy]);
  await visit.close();
});

test('a login by single sign-on is gone through by keyboard alone, there and back', async () => {
  const visit = await rig.visit('/login#onlysso-33');
  // The program gives the browser nothing to show at first, so that the page of the return stays.
  let given = false;
  await visit.page.route(
    (url) => url.href.startsWith(rig.mock.callback),
    async (route) => {
      const shows = given;
      given = true;
      await (shows ? route.continue() : route.fulfill({ status: 204 }));
    },
  );
  await visit.heading('Log in to harbour');
  assert.deepEqual(await visit.tab(2), [text.login.sso('Corporate login'), text.login.refuse]);
  await visit.back(1);
  await visit.page.keyboard.press('Enter');
  await visit.heading(text.login.returning);
  await visit.atHeading();
  assert.deepEqual(await visit.tab(1), [text.login.returningLink]);
  await visit.page.keyboard.press('Enter');
  await back(visit);
  await visit.close();

  // What ends at the page itself, well or not, has nothing to press, and is read from its heading on.
  const first = await rig.visit('/approve#first-33');
  await first.heading(/Confirm/);
  assert.deepEqual(await first.tab(1), [text.login.code]);
  await first.page.keyboard.type(CODE);
  assert.deepEqual(await first.tab(1), [text.login.sso('Corporate login')]);
  await first.page.keyboard.press('Enter');
  await first.heading(text.returned.done);
  await first.atHeading();
  await first.close();
  const trouble = await rig.visit('/web/sso/callback/corp?state=onlysso-34&code=the-code');
  await trouble.heading(text.returned.trouble);
  await trouble.atHeading();
  await trouble.close();
});

test('a login by single sign-on goes to the provider in the same tab, and comes back to the program', async () => {
  const visit = await rig.visit('/login#onlysso-20');
  await visit.press('Continue with Corporate login');
  await back(visit);
  assert.equal(rig.mock.returned.at(-1), '/callback?code=one-time');
  const finished = rig.mock.asked.filter(({ call }) => call === 'login/sso/finish').at(-1)?.body;
  assert.equal(finished?.['binding'], 'binding-of-onlysso-20');
  assert.equal(finished?.['connector'], 'corp');
  await visit.close();
});

test('a first factor is approved by signing in again, once the code of the terminal is typed', async () => {
  const visit = await rig.visit('/approve#first-20');
  await visit.page.getByLabel(text.login.code).fill('AAAA-AAAA');
  await visit.press('Continue with Corporate login');
  await visit.alert('This is not the code');
  await visit.page.getByLabel(text.login.code).fill(CODE.toLowerCase());
  await visit.press('Continue with Corporate login');
  await visit.heading(text.returned.done);
  const finished = rig.mock.asked.filter(({ call }) => call === 'login/sso/finish').at(-1)?.body;
  assert.equal(finished?.['binding'], 'binding-of-first-20');
  await visit.close();
});

test('the answer of another provider than the one that was chosen is told as such, and goes nowhere', async () => {
  const returned = rig.mock.returned.length;
  const visit = await rig.visit('/login#onlysso-mixed-22');
  await visit.press('Continue with Corporate login');
  await visit.heading(text.returned.trouble);
  await visit.alert('Another identity provider has answered');
  assert.equal(rig.mock.asked.filter(({ call }) => call === 'login/sso/finish').at(-1)?.body['connector'], 'another');
  assert.equal(rig.mock.returned.length, returned, 'no program hears of it');
  await visit.close();
});

test('an answer that another person has begun logs no one in as them', async () => {
  rig.mock.bindings.set('onlysso-21', 'binding-of-onlysso-21');
  const visit = await rig.visit('/web/sso/callback/corp?state=onlysso-21&code=the-code');
  await visit.heading(text.returned.trouble);
  await visit.alert('This answer came to another browser');
  assert.equal(new URL(visit.page.url()).search, '', 'the code is in no address bar');
  await visit.close();
});
