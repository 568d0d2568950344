//! The formats by name, and what is taken of what they may hold.

use crate::KeyAlgorithm;
use crate::algorithm::named;

/// The longest file that is looked at, in bytes. The longest key there is takes 16 kB.
pub const MAX_FILE_BYTES: usize = 1 << 20;

/// A way to write a private key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Format {
    /// PKCS#8 (RFC 5958) as text: `PRIVATE KEY`, or `ENCRYPTED PRIVATE KEY` with a passphrase. Holds every key, and
    /// every tool but OpenSSH's own reads it.
    Pkcs8Pem,
    /// PKCS#8 as bytes.
    Pkcs8Der,
    /// `EC PRIVATE KEY` (RFC 5915), which some older tools insist on.
    Sec1Pem,
    /// `RSA PRIVATE KEY` (RFC 8017 appendix A.1.2), which some older tools insist on.
    Pkcs1Pem,
    /// `OPENSSH PRIVATE KEY`: what `ssh-keygen` writes.
    OpenSsh,
    /// A JSON Web Key (RFC 7517).
    Jwk,
}

impl Format {
    /// Every format.
    pub const ALL: &[Self] =
        &[Self::Pkcs8Pem, Self::Pkcs8Der, Self::Sec1Pem, Self::Pkcs1Pem, Self::OpenSsh, Self::Jwk];

    /// The name in options and configuration files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pkcs8Pem => "pkcs8-pem",
            Self::Pkcs8Der => "pkcs8-der",
            Self::Sec1Pem => "sec1-pem",
            Self::Pkcs1Pem => "pkcs1-pem",
            Self::OpenSsh => "openssh",
            Self::Jwk => "jwk",
        }
    }

    /// Whether it can be written with a passphrase.
    #[must_use]
    pub const fn encrypts(self) -> bool {
        matches!(self, Self::Pkcs8Pem | Self::Pkcs8Der | Self::OpenSsh)
    }

    /// Whether it can hold such a key.
    #[must_use]
    pub const fn holds(self, algorithm: KeyAlgorithm) -> bool {
        use crate::algorithm::KeyKind::{Ecdsa, MlDsa, Rsa};
        match self {
            Self::Pkcs8Pem | Self::Pkcs8Der | Self::Jwk => true,
            Self::Sec1Pem => matches!(algorithm.kind(), Ecdsa),
            Self::Pkcs1Pem => matches!(algorithm.kind(), Rsa),
            Self::OpenSsh => !matches!(algorithm.kind(), MlDsa),
        }
    }
}

named!(Format, "key format");

/// A way to write a public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PublicFormat {
    /// SubjectPublicKeyInfo (RFC 5280 §4.1.2.7) as text: `PUBLIC KEY`.
    SpkiPem,
    /// SubjectPublicKeyInfo as bytes.
    SpkiDer,
    /// A line of `authorized_keys`, without a comment.
    OpenSsh,
    /// A JSON Web Key (RFC 7517).
    Jwk,
}

impl PublicFormat {
    /// Every format.
    pub const ALL: &[Self] = &[Self::SpkiPem, Self::SpkiDer, Self::OpenSsh, Self::Jwk];

    /// The name in options and configuration files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SpkiPem => "spki-pem",
            Self::SpkiDer => "spki-der",
            Self::OpenSsh => "openssh",
            Self::Jwk => "jwk",
        }
    }
}

named!(PublicFormat, "public key format");

/// Which sizes of key are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accept {
    /// Those that may sign or be verified in production.
    Production,
    /// The broken ones as well, to be measured.
    Lab,
}
