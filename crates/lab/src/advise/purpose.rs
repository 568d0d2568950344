//! What a server is for, and what comes into question there.

use sallyport_sal::KeyAlgorithm;
use sallyport_sal::algorithm::KexGroup;
use serde::Serialize;

/// What a server is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// Browsers, with a certificate of a public authority.
    Web,
    /// SSH host keys.
    Ssh,
    /// TLS of a database: drivers, with a certificate of an authority of one's own.
    Database,
    /// Services that prove themselves to each other, with an authority of one's own.
    Mtls,
}

impl Use {
    /// Keys that come into question. Public authorities certify RSA, P-256 and P-384 alone.
    #[must_use]
    pub const fn keys(self) -> &'static [KeyAlgorithm] {
        use KeyAlgorithm::{EcdsaP256, EcdsaP384, Ed25519, MlDsa65, Rsa2048, Rsa3072, Rsa4096};
        match self {
            Self::Web => &[EcdsaP256, EcdsaP384, Rsa2048, Rsa3072, Rsa4096],
            Self::Ssh => &[Ed25519, EcdsaP256, EcdsaP384, Rsa2048, Rsa3072, Rsa4096],
            Self::Database | Self::Mtls => {
                &[Ed25519, EcdsaP256, EcdsaP384, Rsa2048, Rsa3072, Rsa4096, MlDsa65]
            }
        }
    }

    /// Key exchange groups that come into question, in the order in which a server should prefer them.
    #[must_use]
    pub const fn groups(self) -> &'static [KexGroup] {
        &[KexGroup::X25519MlKem768, KexGroup::X25519, KexGroup::P256]
    }

    /// What the protocol calls a key exchange: SSH has names of its own.
    #[must_use]
    pub fn exchange(self, group: KexGroup) -> &'static str {
        match self {
            Self::Ssh => group.ssh_name().unwrap_or(group.name()),
            Self::Web | Self::Database | Self::Mtls => group.name(),
        }
    }
}
