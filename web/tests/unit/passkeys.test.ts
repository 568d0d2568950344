import assert from 'node:assert/strict';
import { test } from 'node:test';
import { base64url, byHand, bytes, explained, withBuffers } from '../../src/passkeys.ts';
import { text } from '../../src/text.ts';

const buffer = (...values: number[]): ArrayBuffer => Uint8Array.from(values).buffer;

test('base64url is read and written without padding', () => {
  for (const [length, encoded] of [[0, ''], [1, '-w'], [2, '-_8'], [3, '-_-_']] as const) {
    const data = [0xfb, 0xff, 0xbf].slice(0, length);
    assert.equal(base64url(buffer(...data)), encoded);
    assert.deepEqual([...bytes(encoded)], data);
  }
});

test('options get their buffers where a browser does not read JSON', () => {
  const read = withBuffers({
    challenge: 'AQI',
    rpId: 'localhost',
    allowCredentials: [{ type: 'public-key', id: 'AwQ', transports: ['usb'] }],
  });
  assert.deepEqual(read, {
    challenge: Uint8Array.of(1, 2),
    rpId: 'localhost',
    allowCredentials: [{ type: 'public-key', id: Uint8Array.of(3, 4), transports: ['usb'] }],
  });
  const made = withBuffers({ challenge: 'AQI', user: { id: 'BQ', name: 'alice' }, excludeCredentials: [] });
  assert.deepEqual(made, { challenge: Uint8Array.of(1, 2), user: { id: Uint8Array.of(5), name: 'alice' }, excludeCredentials: [] });
});

test('answers are written by hand where a browser does not', () => {
  const common = { id: 'AQ', rawId: buffer(1), type: 'public-key', authenticatorAttachment: 'platform', getClientExtensionResults: () => ({}) };
  const assertion = byHand({
    ...common,
    response: { clientDataJSON: buffer(2), authenticatorData: buffer(3), signature: buffer(4), userHandle: buffer(5) },
  } as unknown as PublicKeyCredential);
  assert.deepEqual(assertion, {
    id: 'AQ',
    rawId: 'AQ',
    type: 'public-key',
    authenticatorAttachment: 'platform',
    clientExtensionResults: {},
    response: { clientDataJSON: 'Ag', authenticatorData: 'Aw', signature: 'BA', userHandle: 'BQ' },
  });
  const attestation = byHand({
    ...common,
    authenticatorAttachment: null,
    response: { clientDataJSON: buffer(2), attestationObject: buffer(6), getTransports: () => ['internal'] },
  } as unknown as PublicKeyCredential);
  assert.deepEqual(attestation['response'], { clientDataJSON: 'Ag', attestationObject: 'Bg', transports: ['internal'] });
});

test('each error of the browser has its own words, and one that the page caused has none', () => {
  const of = (name: string, doing: 'prove' | 'create' = 'prove'): string | null => explained(new DOMException('x', name), doing);
  assert.equal(of('AbortError'), null);
  assert.equal(of('NotAllowedError'), text.passkeys.cancelled);
  assert.equal(of('NotAllowedError', 'create'), text.passkeys.notMade);
  assert.equal(of('InvalidStateError', 'create'), text.passkeys.already);
  assert.equal(of('SecurityError'), text.passkeys.otherAddress);
  assert.equal(of('NotSupportedError', 'create'), text.passkeys.noKind);
  assert.equal(of('ConstraintError'), text.passkeys.noVerification);
  assert.equal(explained(new Error('x'), 'prove'), text.passkeys.failed);
});
