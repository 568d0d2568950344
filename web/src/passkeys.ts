// The browser's WebAuthn (Level 3): options and answers in JSON, also by browsers that have no methods for that.
import type { CeremonyJson } from './api/types.ts';
import { text } from './text.ts';
import { Refusal } from './api/call.ts';

/** Whether this browser can use passkeys on this page at all. */
export function supported(): boolean {
  return typeof PublicKeyCredential === 'function' && typeof navigator.credentials?.get === 'function';
}

/** Asks for a proof by a passkey that there is. */
export async function prove(options: CeremonyJson, signal: AbortSignal): Promise<CeremonyJson> {
  const parse = PublicKeyCredential.parseRequestOptionsFromJSON;
  const publicKey =
    typeof parse === 'function'
      ? parse.call(PublicKeyCredential, options as unknown as PublicKeyCredentialRequestOptionsJSON)
      : (withBuffers(options) as unknown as PublicKeyCredentialRequestOptions);
  return inJson(await navigator.credentials.get({ publicKey, signal }));
}

/** Asks for a new passkey. */
export async function create(options: CeremonyJson, signal: AbortSignal): Promise<CeremonyJson> {
  const parse = PublicKeyCredential.parseCreationOptionsFromJSON;
  const publicKey =
    typeof parse === 'function'
      ? parse.call(PublicKeyCredential, options as unknown as PublicKeyCredentialCreationOptionsJSON)
      : (withBuffers(options) as unknown as PublicKeyCredentialCreationOptions);
  return inJson(await navigator.credentials.create({ publicKey, signal }));
}

function inJson(credential: Credential | null): CeremonyJson {
  if (!credential) throw new Refusal('none', text.passkeys.cancelled);
  const key = credential as PublicKeyCredential;
  if (typeof key.toJSON === 'function') return key.toJSON() as unknown as CeremonyJson;
  return byHand(key);
}

/** WebAuthn Level 3 §5.1.8 and §5.1.9: which members are base64url in JSON and buffers in the API. */
export function withBuffers(options: CeremonyJson): CeremonyJson {
  const descriptors = (list: unknown): unknown =>
    Array.isArray(list) ? list.map((one: CeremonyJson) => ({ ...one, id: bytes(one['id']) })) : undefined;
  const read: CeremonyJson = { ...options, challenge: bytes(options['challenge']) };
  const user = options['user'] as CeremonyJson | undefined;
  if (user) read['user'] = { ...user, id: bytes(user['id']) };
  for (const list of ['allowCredentials', 'excludeCredentials']) {
    if (options[list]) read[list] = descriptors(options[list]);
  }
  return read;
}

/** WebAuthn Level 3 §5.1.7 (`toJSON`), for browsers without it. */
export function byHand(key: PublicKeyCredential): CeremonyJson {
  const response = key.response;
  const said: CeremonyJson = { clientDataJSON: base64url(response.clientDataJSON) };
  if ('attestationObject' in response) {
    const attestation = response as AuthenticatorAttestationResponse;
    said['attestationObject'] = base64url(attestation.attestationObject);
    said['transports'] = attestation.getTransports?.() ?? [];
  } else {
    const assertion = response as AuthenticatorAssertionResponse;
    said['authenticatorData'] = base64url(assertion.authenticatorData);
    said['signature'] = base64url(assertion.signature);
    if (assertion.userHandle) said['userHandle'] = base64url(assertion.userHandle);
  }
  const json: CeremonyJson = {
    id: key.id,
    rawId: base64url(key.rawId),
    type: key.type,
    response: said,
    clientExtensionResults: key.getClientExtensionResults(),
  };
  if (key.authenticatorAttachment) json['authenticatorAttachment'] = key.authenticatorAttachment;
  return json;
}

export function base64url(buffer: ArrayBuffer): string {
  const binary = Array.from(new Uint8Array(buffer), (byte) => String.fromCharCode(byte)).join('');
  return btoa(binary).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}

export function bytes(encoded: unknown): Uint8Array<ArrayBuffer> {
  const binary = atob(String(encoded).replaceAll('-', '+').replaceAll('_', '/'));
  return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}

/** What an error of the browser's means, and what to do. Null: the page itself has stopped it. */
export function explained(error: unknown, doing: 'prove' | 'create'): string | null {
  const said = text.passkeys;
  switch (error instanceof DOMException ? error.name : '') {
    case 'AbortError':
      return null;
    // The browser does not tell a cancelled prompt from a timeout or a key that is not there (WebAuthn §14.5.1).
    case 'NotAllowedError':
      return doing === 'prove' ? said.cancelled : said.notMade;
    case 'InvalidStateError':
      return doing === 'prove' ? said.unusable : said.already;
    case 'SecurityError':
      return said.otherAddress;
    case 'NotSupportedError':
      return said.noKind;
    case 'ConstraintError':
      return said.noVerification;
    default:
      return said.failed;
  }
}
