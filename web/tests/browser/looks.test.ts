// Every page in every state: light and dark, on a desktop and at 320 pixels, without a finding of axe and without sideways scrolling.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Rig, type Visit } from './support.ts';

let rig: Rig;
before(async () => {
  rig = await Rig.start();
});
after(() => rig.close());

const PIN = `sha256:${'4f'.repeat(32)}`;

interface State {
  name: string;
  path: string;
  heading: string | RegExp;
  then?: (visit: Visit) => Promise<void>;
}

const STATES: State[] = [
  { name: 'front', path: '/', heading: 'harbour' },
  { name: 'login', path: '/login#loopback-1', heading: 'Log in to harbour' },
  {
    name: 'login-password',
    path: '/login#loopback-2',
    heading: 'Log in to harbour',
    then: async (visit) => {
      await visit.press('Use a password instead');
      await visit.press('Log in');
    },
  },
  {
    name: 'login-wrong',
    path: '/login#onlypass-1',
    heading: 'Log in to harbour',
    then: async (visit) => {
      await visit.page.getByLabel('User name').fill('alice');
      await visit.page.getByLabel('Password').fill('wrong');
      await visit.press('Log in');
      await visit.alert('Wrong user name');
    },
  },
  { name: 'login-headless', path: '/login#headless-1', heading: 'Log in to harbour' },
  {
    name: 'login-headless-code',
    path: '/login#headless-2',
    heading: 'Log in to harbour',
    then: (visit) => visit.press('Continue with a passkey'),
  },
  { name: 'login-elsewhere', path: '/login#elsewhere-1', heading: 'Log in to harbour' },
  { name: 'login-sso', path: '/login#sso-12345', heading: 'Log in to harbour' },
  { name: 'login-only-sso', path: '/login#onlysso-1', heading: 'Log in to harbour' },
  { name: 'sso-refused', path: '/web/sso/callback/corp?state=none&code=x', heading: 'This did not work' },
  { name: 'sso-incomplete', path: '/web/sso/callback/corp', heading: 'This link is not complete' },
  { name: 'login-no-way', path: '/login#nothing-1', heading: 'Log in to harbour' },
  { name: 'login-refused', path: '/login#refused-1', heading: 'You refused this request' },
  { name: 'login-expired', path: '/login#expired-1', heading: 'This request has expired' },
  { name: 'login-used', path: '/login#used-1234', heading: 'This request was answered already' },
  { name: 'login-unknown', path: '/login#unknown-1', heading: 'There is no such request' },
  { name: 'login-outage', path: '/login#outage-1', heading: 'This did not work' },
  { name: 'login-incomplete', path: '/login', heading: 'This link is not complete' },
  { name: 'approve', path: '/approve#approve-1', heading: 'Confirm a new factor' },
  { name: 'approve-removal', path: '/approve#remove-factor-1', heading: 'Confirm the removal of a factor' },
  { name: 'approve-codes', path: '/approve#recovery-codes-1', heading: 'Confirm new recovery codes' },
  { name: 'approve-session', path: '/approve#session-1', heading: 'Confirm new sessions' },
  { name: 'approve-administer', path: '/approve#administer-1', heading: 'Confirm administration' },
  {
    name: 'approve-otp',
    path: '/approve#onlyotp-1',
    heading: 'Confirm a new factor',
    then: async (visit) => {
      await visit.press('Approve');
      await visit.page.getByText('Type a one-time code').waitFor();
    },
  },
  {
    name: 'approve-done',
    path: '/approve#onlyotp-2',
    heading: 'Confirm a new factor',
    then: async (visit) => {
      await visit.page.getByLabel('Code that the program shows').fill('BCDF-GHJK');
      await visit.page.getByLabel('One-time code').fill('123 456');
      await visit.press('Approve');
      await visit.heading('Approved');
    },
  },
  { name: 'approve-first', path: '/approve#first-123', heading: 'Confirm a new factor' },
  {
    name: 'approve-first-code',
    path: '/approve#first-234',
    heading: 'Confirm a new factor',
    then: async (visit) => {
      await visit.press('Continue with Corporate login');
      await visit.page.getByText('Type the code that the program shows').waitFor();
    },
  },
  { name: 'approve-no-way', path: '/approve#nothing-1', heading: 'Confirm a new factor' },
  { name: 'approve-password', path: '/approve#change-password-1', heading: 'Confirm a new password' },
  { name: 'approve-device', path: '/approve#admit-device-1', heading: 'Admit a trusted device' },
  { name: 'factors', path: '/factors#factors-1', heading: 'Your factors' },
  {
    name: 'factors-wrong',
    path: '/factors#factors-2',
    heading: 'Your factors',
    then: async (visit) => {
      await visit.page.getByLabel('Code that the program shows').fill('AAAA-AAAA');
      await visit.press('Show them');
      await visit.alert('This is not the code');
    },
  },
  {
    name: 'factors-listed',
    path: '/factors#factors-3',
    heading: 'Your factors',
    then: async (visit) => {
      await visit.page.getByLabel('Code that the program shows').fill('BCDF-GHJK');
      await visit.press('Show them');
      await visit.page.getByText('a copy of it may be in use').waitFor();
    },
  },
  {
    name: 'factors-last',
    path: '/factors#factors-4',
    heading: 'Your factors',
    then: async (visit) => {
      await visit.page.getByLabel('Code that the program shows').fill('BCDF-GHJK');
      await visit.press('Show them');
      await visit.press('Remove last key');
      await visit.alert('is your last factor');
    },
  },
  {
    name: 'factors-removal',
    path: '/factors#factors-5',
    heading: 'Your factors',
    then: async (visit) => {
      await visit.page.getByLabel('Code that the program shows').fill('BCDF-GHJK');
      await visit.press('Show them');
      await visit.press('Remove laptop');
      await visit.heading('Confirm the removal of a factor');
    },
  },
  { name: 'factors-refused', path: '/factors#refused-2', heading: 'You refused this request' },
  { name: 'factors-incomplete', path: '/factors', heading: 'This link is not complete' },
  { name: 'enrol', path: '/enrol#enrol-123', heading: 'Add a passkey' },
  { name: 'invite', path: `/invite/invitation#${PIN}`, heading: 'Welcome to harbour' },
  { name: 'invite-password', path: '/invite/nokeys', heading: 'Welcome to harbour' },
  { name: 'invite-unknown', path: '/invite/unknown', heading: 'No such invitation' },
  { name: 'invite-malformed', path: '/invite/%3Cscript%3E', heading: 'No such invitation' },
];

for (const { name, path, heading, then } of STATES) {
  test(`the page "${name}" is sound in every look`, async () => {
    const visit = await rig.visit(path);
    await visit.heading(heading);
    await then?.(visit);
    await visit.sound(name);
    await visit.close();
  });
}

test('without JavaScript a page says so, and what to do in the terminal', async () => {
  for (const colorScheme of ['light', 'dark'] as const) {
    const visit = await rig.visit('/login#loopback-3', { colorScheme, viewport: { width: 320, height: 640 }, javaScriptEnabled: false });
    await visit.heading('This page needs JavaScript');
    await visit.fits(`noscript-${colorScheme}`);
    await visit.close();
  }
});

test('a page of poor contrast would be found', async () => {
  const visit = await rig.visit('/');
  await visit.page.evaluate(() => {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync('.lead { color: #ccc !important }');
    document.adoptedStyleSheets.push(sheet);
  });
  await assert.rejects(visit.sound('poor'), /color-contrast/);
});
