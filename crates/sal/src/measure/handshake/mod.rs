//! TLS handshakes: whole, in memory or over a stream, and taken apart.
//!
//! In memory one thread plays client and server, and its processor time is booked on the one whose turn it is. Production
//! speaks TLS 1.3 alone; what is here composes TLS 1.2 as well, to be measured, from rustls' own suites of aws-lc with
//! key exchange, signatures and verification by the selection. The same holds for RSA keys of 1024 and of 8192 bits.

mod credentials;
mod pair;
mod phases;

use std::fmt;
use std::str::FromStr;

pub use credentials::{Credentials, provider};
pub use pair::{Pair, Sides};
pub use phases::{Operations, Phase, Phases, Retry, compare, phases, retry};

use crate::algorithm::{KexGroup, KeyAlgorithm, KeyKind, UnknownName};

/// Most certificates that a server of ours sends in a measurement.
pub const LONGEST_CHAIN: usize = 4;

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// RFC 5246, with the extended master secret of RFC 7627.
    Tls12,
    /// RFC 8446.
    Tls13,
}

impl Version {
    /// Both, the newer first.
    pub const ALL: &[Self] = &[Self::Tls13, Self::Tls12];

    /// The number alone.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tls12 => "1.2",
            Self::Tls13 => "1.3",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Version {
    type Err = UnknownName;
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::ALL.iter().copied().find(|version| version.name() == name).ok_or_else(|| UnknownName {
            what: "version of TLS",
            got: name.to_owned(),
            known: "1.3, 1.2".to_owned(),
        })
    }
}

/// What a handshake is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The version.
    pub version: Version,
    /// Type of the keys of server, client and authorities.
    pub key: KeyAlgorithm,
    /// The group that both sides use.
    pub group: KexGroup,
    /// Certificates that each side sends: its own, and the authorities between it and the root, which is never sent. From
    /// 1 to [`LONGEST_CHAIN`].
    pub chain: usize,
    /// Whether the client has a certificate.
    pub client_certificate: bool,
    /// Whether it resumes an earlier session (RFC 8446 §2.2, RFC 5246 §7.3), which leaves the certificates out.
    pub resumed: bool,
    /// A group for which the client sends a share first, and which the server does not have: it asks for another one by a
    /// HelloRetryRequest (RFC 8446 §4.1.4).
    pub guessed: Option<KexGroup>,
}

impl Shape {
    /// A full handshake of TLS 1.3 in which the server sends one certificate and the client none.
    #[must_use]
    pub const fn new(key: KeyAlgorithm, group: KexGroup) -> Self {
        Self {
            version: Version::Tls13,
            key,
            group,
            chain: 1,
            client_certificate: false,
            resumed: false,
            guessed: None,
        }
    }

    /// Why there is no such handshake, if there is none.
    #[must_use]
    pub fn impossible(self) -> Option<&'static str> {
        if self.version == Version::Tls12 {
            if self.key.kind() == KeyKind::MlDsa {
                return Some("TLS 1.2 has no ML-DSA");
            }
            if self.group.has_ml_kem() {
                return Some("TLS 1.2 has no key exchange with ML-KEM");
            }
            if self.guessed.is_some() {
                return Some("TLS 1.2 has no HelloRetryRequest");
            }
        }
        if self.guessed.is_some_and(|guessed| guessed == self.group || guessed.dh() == self.group.dh()) {
            return Some("a share of the one group serves the other too");
        }
        (self.chain == 0 || self.chain > LONGEST_CHAIN).then_some("a chain has from one to four certificates")
    }
}
