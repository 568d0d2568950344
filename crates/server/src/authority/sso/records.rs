//! What is kept of single sign-on, each kind under its own prefix.

use sallyport_oidc::Attempt;
use sallyport_store::Kind;
use serde::{Deserialize, Serialize};

use super::connector::{KIND, KINDS};
use crate::authority::secrets::hash_of;

/// A connector, as the YAML that was accepted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ConnectorRecord {
    pub(crate) yaml: String,
}

impl ConnectorRecord {
    /// The kind of the document, which is written with it on its first line.
    pub(crate) fn kind(&self) -> &'static str {
        let said = self.yaml.lines().find_map(|line| line.strip_prefix("kind:")).map(str::trim);
        KINDS.iter().copied().find(|known| Some(*known) == said).unwrap_or(KIND)
    }
}

impl Kind for ConnectorRecord {
    const KIND: &'static str = KIND;
}

/// A session at a provider, under the hash of issuer and `sid`, as long as its user is one: its logout ends the user's logins.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SessionRecord {
    pub(crate) person: String,
}

impl Kind for SessionRecord {
    const KIND: &'static str = "sso_session";
}

/// The name of a session's record.
pub(crate) fn session_key(issuer: &str, session: &str) -> String {
    hash_of(&format!("session\0{issuer}\0{session}"))
}

/// A logout token that was taken, under the hash of issuer and `jti`, as long as it would be good.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LogoutRecord {}

impl Kind for LogoutRecord {
    const KIND: &'static str = "sso_logout";
}

/// The name of a logout's record.
pub(crate) fn logout_key(issuer: &str, id: &str) -> String {
    hash_of(&format!("logout\0{issuer}\0{id}"))
}

/// A login that is at the provider, under the hash of its `state`: an [`Under`], sealed, in base64.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AttemptRecord {
    pub(crate) sealed: String,
}

impl Kind for AttemptRecord {
    const KIND: &'static str = "sso_attempt";
}

/// What ties the provider's answer to the login and to the browser.
#[derive(Serialize, Deserialize)]
pub(crate) struct Under {
    /// The challenge that the answer proves.
    pub(crate) challenge: String,
    pub(crate) connector: String,
    /// The document of a connector that is tested and not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tested: Option<String>,
    /// The provider was asked to have the person sign in again.
    #[serde(default)]
    pub(crate) anew: bool,
    pub(crate) redirect_url: String,
    /// SHA-256 of what the browser keeps, in hexadecimal.
    pub(crate) binding: String,
    pub(crate) attempt: Attempt,
}
