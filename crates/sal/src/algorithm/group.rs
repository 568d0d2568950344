//! Ways to agree on a secret.

use super::named;

/// A group of Diffie and Hellman's kind: one operation, the same for both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DhGroup {
    /// X25519 (RFC 7748).
    X25519,
    /// ECDH on P-256 (SP 800-56A).
    P256,
    /// ECDH on P-384.
    P384,
}

impl DhGroup {
    /// Every group.
    pub const ALL: &[Self] = &[Self::X25519, Self::P256, Self::P384];

    /// The name in configuration files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::X25519 => "x25519",
            Self::P256 => "p256",
            Self::P384 => "p384",
        }
    }

    /// Length of a public share, in bytes: 32, or an uncompressed point.
    #[must_use]
    pub const fn share_bytes(self) -> usize {
        match self {
            Self::X25519 => 32,
            Self::P256 => 65,
            Self::P384 => 97,
        }
    }

    /// Length of the shared secret, in bytes.
    #[must_use]
    pub const fn secret_bytes(self) -> usize {
        match self {
            Self::X25519 | Self::P256 => 32,
            Self::P384 => 48,
        }
    }
}

named!(DhGroup, "group");

/// A key exchange of TLS 1.3: a group, a key encapsulation, or one of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum KexGroup {
    /// ML-KEM-768 and X25519 (draft-ietf-tls-ecdhe-mlkem): safe while either is.
    X25519MlKem768,
    /// P-256 and ML-KEM-768.
    P256MlKem768,
    /// X25519 (RFC 7748).
    X25519,
    /// ECDH on P-256.
    P256,
    /// ECDH on P-384.
    P384,
    /// ML-KEM-768 alone (FIPS 203).
    MlKem768,
}

impl KexGroup {
    /// Every group, in the order of preference.
    pub const ALL: &[Self] =
        &[Self::X25519MlKem768, Self::P256MlKem768, Self::X25519, Self::P256, Self::P384, Self::MlKem768];

    /// What TLS offers unless told otherwise, the first with a key share.
    pub const DEFAULT: &[Self] = &[Self::X25519MlKem768, Self::X25519, Self::P256, Self::P384];

    /// The same where every part must be approved under FIPS 140-3, which X25519 is not.
    pub const DEFAULT_FIPS: &[Self] = &[Self::P256MlKem768, Self::P256, Self::P384];

    /// The name in configuration files and reports, which is that of the IANA registry.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::X25519MlKem768 => "X25519MLKEM768",
            Self::P256MlKem768 => "SecP256r1MLKEM768",
            Self::X25519 => "x25519",
            Self::P256 => "secp256r1",
            Self::P384 => "secp384r1",
            Self::MlKem768 => "MLKEM768",
        }
    }

    /// The code point of the TLS named group.
    #[must_use]
    pub const fn iana_code(self) -> u16 {
        match self {
            Self::X25519MlKem768 => 0x11ec,
            Self::P256MlKem768 => 0x11eb,
            Self::X25519 => 0x001d,
            Self::P256 => 0x0017,
            Self::P384 => 0x0018,
            Self::MlKem768 => 0x0201,
        }
    }

    /// The group of a code point.
    #[must_use]
    pub fn from_iana(code: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|group| group.iana_code() == code)
    }

    /// The part of Diffie and Hellman's kind, if it has one.
    #[must_use]
    pub const fn dh(self) -> Option<DhGroup> {
        match self {
            Self::X25519MlKem768 | Self::X25519 => Some(DhGroup::X25519),
            Self::P256MlKem768 | Self::P256 => Some(DhGroup::P256),
            Self::P384 => Some(DhGroup::P384),
            Self::MlKem768 => None,
        }
    }

    /// Whether ML-KEM-768 is a part of it.
    #[must_use]
    pub const fn has_ml_kem(self) -> bool {
        matches!(self, Self::X25519MlKem768 | Self::P256MlKem768 | Self::MlKem768)
    }

    /// Whether it has a classical and a post-quantum part: safe while either is.
    #[must_use]
    pub const fn is_hybrid(self) -> bool {
        self.has_ml_kem() && self.dh().is_some()
    }

    /// The name of the key exchange method in SSH (RFC 8731, RFC 5656 §4, draft-ietf-sshm-mlkem-hybrid-kex).
    #[must_use]
    pub const fn ssh_name(self) -> Option<&'static str> {
        match self {
            Self::X25519MlKem768 => Some("mlkem768x25519-sha256"),
            Self::P256MlKem768 => Some("mlkem768nistp256-sha256"),
            Self::X25519 => Some("curve25519-sha256"),
            Self::P256 => Some("ecdh-sha2-nistp256"),
            Self::P384 => Some("ecdh-sha2-nistp384"),
            Self::MlKem768 => None,
        }
    }
}

named!(KexGroup, "key exchange group");
