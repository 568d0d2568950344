import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isLoopback, placeOf } from '../../src/place.ts';

test('a request is named by the fragment, and by nothing that is not an id', () => {
  assert.deepEqual(placeOf('/login', '#AAAAAAAAAAAAAAAAAAAAAA'), { page: 'login', id: 'AAAAAAAAAAAAAAAAAAAAAA' });
  assert.deepEqual(placeOf('/approve', ''), { page: 'approve', id: null });
  assert.deepEqual(placeOf('/factors', '#AAAAAAAAAAAAAAAAAAAAAA'), { page: 'factors', id: 'AAAAAAAAAAAAAAAAAAAAAA' });
  for (const hostile of ['#', '#short', '#<script>alert(1)</script>', `#${'A'.repeat(257)}`, '#../../etc/x', '#AAAA AAAA', '#%E0%A4%A']) {
    assert.deepEqual(placeOf('/enrol', hostile), { page: 'enrol', id: null }, hostile);
  }
});

test('an invitation has its token in the path, and the pin in the fragment', () => {
  const pin = `sha256:${'a'.repeat(64)}`;
  assert.deepEqual(placeOf('/invite/abc.d-e_f', `#${pin}`), { page: 'invite', token: 'abc.d-e_f', pin });
  assert.deepEqual(placeOf('/invite/abc', "#sha256:'; rm -rf /"), { page: 'invite', token: 'abc', pin: null });
  for (const hostile of ['/invite/%3Cscript%3E', '/invite/', "/invite/a'b", `/invite/${'a'.repeat(257)}`, '/invite/%zz']) {
    assert.deepEqual(placeOf(hostile, ''), { page: 'invite', token: null, pin: null }, hostile);
  }
});

test('an identity provider has an address of its own, and those that name themselves may have one together', () => {
  assert.deepEqual(placeOf('/web/sso/callback/corp', ''), { page: 'sso', connector: 'corp' });
  assert.deepEqual(placeOf('/web/sso/callback', ''), { page: 'sso', connector: '' });
  for (const other of ['/web/sso/callback/', '/web/sso/callback/a/b', '/web/sso/callbacks', '/x/web/sso/callback/corp']) {
    assert.equal(placeOf(other, '').page, 'front', other);
  }
});

test('what is no page is the front', () => {
  for (const path of ['/', '/invite/a/b', '/Login', '/login/']) assert.equal(placeOf(path, '#AAAAAAAAAAAA').page, 'front', path);
});

test('a login returns to this machine and to nothing else', () => {
  for (const fine of ['http://127.0.0.1:1/callback?code=a', 'http://[::1]:65535/callback?code=a']) assert.ok(isLoopback(fine), fine);
  for (const hostile of [
    'https://127.0.0.1:1/callback',
    'http://127.0.0.1/callback',
    'http://127.0.0.1.attacker.example:80/callback',
    'http://127.0.0.1:1@attacker.example:1/callback',
    'http://attacker.example:1/callback#127.0.0.1',
    'http://localhost:1/callback',
    'http://x@127.0.0.1:1/callback',
    'http://127.0.0.1:1/other',
    'javascript:alert(1)',
    'data:text/html,x',
    '//127.0.0.1:1/callback',
    '',
  ]) {
    assert.ok(!isLoopback(hostile), hostile);
  }
});
