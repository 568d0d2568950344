//! How this cluster proves itself at a provider's token endpoint (OpenID Connect Core §9).

use std::path::Path;
use std::time::Duration;

use data_encoding::BASE64;
use sallyport_ca::jwt::{self, Claims};
use sallyport_oidc::Discovery;
use sallyport_sal::{Signer, random};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::error::SsoError;
use crate::files::Apart;
use crate::outgoing;

/// How long a file with a secret may take to be read.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest secret, in bytes.
const SECRET_BYTES: usize = 1024;
/// How long a proof by a key is good. It is used at once.
const PROOF_LIFETIME: time::Duration = time::Duration::seconds(60);
const ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// What a client has to prove itself with.
pub(super) enum Credential {
    Secret(Zeroizing<String>),
    Key(std::sync::Arc<dyn Signer>),
}

/// What a request to the token endpoint has in it for that.
#[derive(Default)]
pub(super) struct Proof {
    /// The header `authorization`.
    pub(super) header: Option<Zeroizing<String>>,
    /// Members of the form.
    pub(super) form: Vec<(&'static str, Zeroizing<String>)>,
}

/// Reads the secret of a client. A file that is none, such as another program's key, is sent to no
/// provider, and none of the authority's own (`apart`).
pub(super) async fn secret(path: &Path, apart: &Apart) -> Result<Zeroizing<String>, SsoError> {
    let text = outgoing::secret_apart(path, Some(apart), PATIENCE).await.map_err(SsoError::Secret)?;
    let text = Zeroizing::new(text);
    let secret = text.strip_suffix('\n').unwrap_or(&text);
    let secret = secret.strip_suffix('\r').unwrap_or(secret);
    if !(1..=SECRET_BYTES).contains(&secret.len()) || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(SsoError::NoSecret { path: path.display().to_string() });
    }
    Ok(Zeroizing::new(secret.to_owned()))
}

/// The proof that the provider takes, of those that this client can make.
pub(super) fn prove(
    credential: &Credential,
    client_id: &str,
    discovery: &Discovery,
    now: OffsetDateTime,
) -> Result<Proof, SsoError> {
    let takes = |method: &str| discovery.token_auth_methods.iter().any(|one| one == method);
    let offered = || discovery.token_auth_methods.join(", ");
    match credential {
        Credential::Secret(secret) if takes("client_secret_basic") => {
            // RFC 6749 §2.3.1: both are encoded as in a form first.
            let pair = Zeroizing::new(format!("{}:{}", encoded(client_id), *Zeroizing::new(encoded(secret))));
            let header = Zeroizing::new(format!("Basic {}", BASE64.encode(pair.as_bytes())));
            Ok(Proof { header: Some(header), form: Vec::new() })
        }
        Credential::Secret(secret) if takes("client_secret_post") => Ok(Proof {
            header: None,
            form: vec![
                ("client_id", Zeroizing::new(client_id.to_owned())),
                ("client_secret", secret.clone()),
            ],
        }),
        Credential::Key(key) if takes("private_key_jwt") => {
            let id = random::token(20).map_err(|_| SsoError::NoRandomness)?;
            let claims = Claims {
                issuer: Some(client_id.to_owned()),
                subject: client_id.to_owned(),
                // Each connector has a key of its own, so that no other provider takes it.
                audience: vec![discovery.token_endpoint.clone()],
                expires: now + PROOF_LIFETIME,
                not_before: None,
                issued: Some(now),
                id: Some(id),
                custom: serde_json::Map::new(),
            };
            let assertion = jwt::sign(key.as_ref(), &claims).map_err(SsoError::Proof)?;
            Ok(Proof {
                header: None,
                form: vec![
                    ("client_id", Zeroizing::new(client_id.to_owned())),
                    ("client_assertion_type", Zeroizing::new(ASSERTION.to_owned())),
                    ("client_assertion", Zeroizing::new(assertion)),
                ],
            })
        }
        Credential::Secret(_) => Err(SsoError::NoProof { offered: offered(), have: "a secret" }),
        Credential::Key(_) => Err(SsoError::NoProof { offered: offered(), have: "a key" }),
    }
}

/// A text as it stands in a query or a form: everything but unreserved characters (RFC 3986 §2.3) by its bytes.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

/// A query or a form.
pub(super) fn form<'a>(members: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let members: Vec<String> =
        members.into_iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    members.join("&")
}
