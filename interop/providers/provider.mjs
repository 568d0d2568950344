// A certified OpenID Connect provider for tests: node provider.mjs SETTINGS.json. It prints its issuer once it serves, and reads no more.
import { createHash, createPublicKey, generateKeyPairSync } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import Provider from 'oidc-provider';

const settings = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const { port, keys, redirect_uri, logout_uri, in_userinfo, client_keys, refresh } = settings;
/** Who there is now: a test may change it while the provider runs. */
const people = () => JSON.parse(readFileSync(process.argv[2], 'utf8')).people;

/** The provider's key, kept in a file: another file is another key. */
function key() {
  if (!existsSync(keys)) {
    const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    const jwk = privateKey.export({ format: 'jwk' });
    const spki = createPublicKey(privateKey).export({ type: 'spki', format: 'der' });
    writeFileSync(keys, JSON.stringify({ ...jwk, use: 'sig', alg: 'RS256', kid: createHash('sha256').update(spki).digest('base64url') }));
  }
  return JSON.parse(readFileSync(keys, 'utf8'));
}

const client = {
  client_id: 'sallyport',
  redirect_uris: [redirect_uri],
  response_types: ['code'],
  grant_types: refresh ? ['authorization_code', 'refresh_token'] : ['authorization_code'],
  backchannel_logout_uri: logout_uri,
  backchannel_logout_session_required: true,
};
const proof = client_keys
  ? { token_endpoint_auth_method: 'private_key_jwt', token_endpoint_auth_signing_alg: 'ES256', jwks: client_keys }
  : { token_endpoint_auth_method: 'client_secret_basic', client_secret: 'a-secret-of:the-client%' };

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{ ...client, ...proof }],
  jwks: { keys: [key()] },
  cookies: { keys: ['of the tests'] },
  claims: { openid: ['sub', 'sid'], profile: ['preferred_username'], email: ['email', 'email_verified'], groups: ['groups'] },
  conformIdTokenClaims: in_userinfo === true,
  features: { backchannelLogout: { enabled: true }, devInteractions: { enabled: true } },
  // By default it tells nothing to a server on loopback.
  fetch: (url, { dispatcher: _, ...options }) => globalThis.fetch(url, options),
  pkce: { required: () => true },
  // Without offline_access: they end with the session.
  issueRefreshToken: () => refresh === true,
  rotateRefreshToken: true,
  ttl: { AccessToken: 600, AuthorizationCode: 60, IdToken: 600, Interaction: 600, Session: 3600, Grant: 3600, RefreshToken: 3600 },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => {
      const { name = id, groups = [], email } = people()[id] ?? {};
      return { sub: id, preferred_username: name, groups, ...(email ? { email, email_verified: true } : {}) };
    },
  }),
});
const failed = (where) => (_, error) => console.error(where, error?.name, error?.error_description ?? error?.message);
for (const event of ['grant.error', 'authorization.error', 'server_error', 'backchannel.error']) provider.on(event, failed(event));
provider.listen(port, '127.0.0.1', () => console.log(provider.issuer));
