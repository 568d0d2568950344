//! The public keys of a CA as they are written down.

use serde::{Deserialize, Serialize};

/// Public keys of one CA, the one in use first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PublicKeys {
    /// OpenSSH public key lines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ssh: Vec<String>,
    /// PEM certificates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tls: Vec<String>,
    /// JSON Web Keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jwt: Vec<String>,
}

impl PublicKeys {
    /// Adds those of another set behind its own.
    pub fn extend(&mut self, more: Self) {
        self.ssh.extend(more.ssh);
        self.tls.extend(more.tls);
        self.jwt.extend(more.jwt);
    }
}
