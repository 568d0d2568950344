//! What is measured of handshakes, and how much of it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use sallyport_sal::algorithm::{KexGroup, KeyAlgorithm};
use sallyport_sal::measure::handshake::Version;
use sallyport_ssh::measure::KeyExchange;
use serde::Serialize;

/// Certificates that a server sends unless it is said otherwise: its own and that of the authority which issued it, as
/// public servers do.
pub const CHAIN: usize = 2;

/// What shakes hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TLS 1.3.
    Tls13,
    /// SSH, to the end of the user's authentication.
    Ssh,
}

/// How bytes travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// From one buffer to another, in one thread.
    Memory,
    /// By TCP on loopback, between two threads.
    Loopback,
}

impl Transport {
    /// Both.
    pub const ALL: &[Self] = &[Self::Memory, Self::Loopback];

    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Loopback => "loopback",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no transport has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown transport {0:?}; there are memory and loopback")]
pub struct UnknownTransport(String);

impl FromStr for Transport {
    type Err = UnknownTransport;

    fn from_str(name: &str) -> Result<Self, UnknownTransport> {
        let unknown = || UnknownTransport(name.to_owned());
        Self::ALL.iter().copied().find(|transport| transport.name() == name).ok_or_else(unknown)
    }
}

/// How much time it may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Samples of each cell.
    pub(crate) rounds: usize,
    /// Time of one sample.
    pub(crate) batch: Duration,
}

/// What is measured.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Types of keys, the first one held while something else varies.
    pub keys: Vec<KeyAlgorithm>,
    /// Groups, likewise.
    pub groups: Vec<KexGroup>,
    /// Numbers of certificates that the server sends, likewise.
    pub chains: Vec<usize>,
    /// Versions of TLS, likewise; none leaves TLS out.
    pub versions: Vec<Version>,
    /// Key exchanges of SSH, likewise; none leaves SSH out. Its host keys are those of `keys` that it has.
    pub exchanges: Vec<KeyExchange>,
    /// How bytes travel.
    pub transports: Vec<Transport>,
    /// Whether handshakes that resume are measured too.
    pub resumed: bool,
    /// Whether handshakes in which the client has a certificate are measured too, and in SSH users with other types of
    /// keys.
    pub client_certificate: bool,
    /// Every combination, where the default varies one thing at a time.
    pub cross: bool,
    /// Samples of each.
    pub rounds: usize,
    /// Time of one sample.
    pub batch: Duration,
    /// After so long no more samples are taken; the first round is taken whatever the time.
    pub budget: Duration,
    /// Where every sample goes.
    pub csv: Option<PathBuf>,
}

impl Settings {
    /// A glance, in about twenty seconds.
    #[must_use]
    pub fn quick() -> Self {
        Self { rounds: 21, batch: Duration::from_millis(5), budget: Duration::from_secs(26), ..Self::full() }
    }

    /// Figures to believe, in some minutes.
    #[must_use]
    pub fn full() -> Self {
        use KeyAlgorithm as Key;
        Self {
            keys: vec![
                Key::EcdsaP256,
                Key::EcdsaP384,
                Key::Ed25519,
                Key::Rsa1024,
                Key::Rsa2048,
                Key::Rsa3072,
                Key::Rsa4096,
                Key::Rsa8192,
                Key::MlDsa44,
                Key::MlDsa65,
                Key::MlDsa87,
            ],
            groups: vec![
                KexGroup::X25519,
                KexGroup::P256,
                KexGroup::P384,
                KexGroup::X25519MlKem768,
                KexGroup::P256MlKem768,
                KexGroup::MlKem768,
            ],
            chains: vec![CHAIN, 1, 3],
            versions: Version::ALL.to_vec(),
            exchanges: KeyExchange::ALL.to_vec(),
            transports: Transport::ALL.to_vec(),
            resumed: true,
            client_certificate: true,
            cross: false,
            rounds: 61,
            batch: Duration::from_millis(20),
            budget: Duration::from_secs(1200),
            csv: None,
        }
    }
}
