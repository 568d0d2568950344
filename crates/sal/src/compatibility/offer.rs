//! What a client said.

use serde::{Deserialize, Serialize};

use crate::algorithm::KexGroup;
use crate::{SignatureScheme, hash};

/// Longest text of an offer that is kept, in bytes.
const LONGEST_SOFTWARE: usize = 200;
/// Longest name of an algorithm (RFC 4251 §6).
const LONGEST_NAME: usize = 64;
/// Names of one list that are kept.
const MOST_NAMES: usize = 64;

/// How the client came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An SSH client.
    Ssh,
    /// A TLS client that did not say what it is.
    Tls,
    /// Software of this project: the command line, a node, a proxy.
    Sallyport,
    /// A reader of the public pages: a browser, or a program that fetches keys.
    Http,
}

impl Kind {
    /// Every kind.
    pub const ALL: &[Self] = &[Self::Ssh, Self::Tls, Self::Sallyport, Self::Http];

    /// The word in reports and on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ssh => "ssh",
            Self::Tls => "tls",
            Self::Sallyport => "sallyport",
            Self::Http => "http",
        }
    }

    /// The kind of a word.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}

/// What a client is and can do, in its own words. Lists are in the client's order; those that its protocol does not have
/// are empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// How it came.
    pub kind: Kind,
    /// What it calls itself, such as `OpenSSH_9.2p1 Debian-2+deb12u3`; may be empty.
    pub software: String,
    /// SSH key exchange methods, or TLS named groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key_exchange: Vec<String>,
    /// SSH host key algorithms, or TLS signature schemes: what it can verify.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<String>,
    /// SSH ciphers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ciphers: Vec<String>,
    /// SSH MACs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub macs: Vec<String>,
    /// ALPN protocols of TLS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<String>,
    /// Versions of TLS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<String>,
}

impl Offer {
    /// An offer of nothing.
    #[must_use]
    pub fn of(kind: Kind, software: impl Into<String>) -> Self {
        Self {
            kind,
            software: software.into(),
            key_exchange: Vec::new(),
            signatures: Vec::new(),
            ciphers: Vec::new(),
            macs: Vec::new(),
            protocols: Vec::new(),
            versions: Vec::new(),
        }
    }

    /// The same within the bounds of what is kept: printable ASCII, of bounded length and number. The client that sent it may
    /// have meant harm.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let shown = |text: &str, longest: usize| -> String {
            text.chars()
                .map(|character| if matches!(character, ' '..='~') { character } else { '?' })
                .take(longest)
                .collect()
        };
        self.software = shown(self.software.trim(), LONGEST_SOFTWARE);
        for list in self.lists_mut() {
            list.retain(|name| !name.is_empty() && name.len() <= LONGEST_NAME);
            list.truncate(MOST_NAMES);
            list.iter_mut().for_each(|name| *name = shown(name, LONGEST_NAME));
        }
        self
    }

    /// What tells this client from others, in 32 hexadecimal digits. The order of a list does not count: OpenSSH moves
    /// the host keys that it knows to the front.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let mut text = format!("{}\n{}\n", self.kind.name(), self.software);
        for list in self.clone().lists_mut() {
            list.sort_unstable();
            text.push_str(&list.join(","));
            text.push('\n');
        }
        let digest = hash::sha256(text.as_bytes());
        data_encoding::HEXLOWER.encode(digest.get(..16).unwrap_or_default())
    }

    fn lists_mut(&mut self) -> [&mut Vec<String>; 6] {
        [
            &mut self.key_exchange,
            &mut self.signatures,
            &mut self.ciphers,
            &mut self.macs,
            &mut self.protocols,
            &mut self.versions,
        ]
    }
}

/// Values that a TLS client throws in to keep servers tolerant (RFC 8701). They differ from one connection to the next.
#[must_use]
pub const fn is_grease(value: u16) -> bool {
    let [high, low] = value.to_be_bytes();
    high == low && low & 0x0f == 0x0a
}

/// The name of a TLS named group in the IANA registry; the number in hexadecimal when this build knows none.
#[must_use]
pub fn group_name(code: u16) -> String {
    let name = match code {
        0x0019 => "secp521r1",
        0x001e => "x448",
        0x0100 => "ffdhe2048",
        0x0101 => "ffdhe3072",
        0x0102 => "ffdhe4096",
        0x0103 => "ffdhe6144",
        0x0104 => "ffdhe8192",
        0x0200 => "MLKEM512",
        0x0202 => "MLKEM1024",
        0x11ed => "SecP384r1MLKEM1024",
        0x6399 => "X25519Kyber768Draft00",
        _ => return KexGroup::from_iana(code).map_or_else(|| number(code), |group| group.name().to_owned()),
    };
    name.to_owned()
}

/// The name of a TLS signature scheme in the IANA registry; the number in hexadecimal when this build knows none.
#[must_use]
pub fn scheme_name(code: u16) -> String {
    let name = match code {
        0x0201 => "rsa_pkcs1_sha1",
        0x0203 => "ecdsa_sha1",
        0x0808 => "ed448",
        0x0809 => "rsa_pss_pss_sha256",
        0x080a => "rsa_pss_pss_sha384",
        0x080b => "rsa_pss_pss_sha512",
        _ => {
            let known = SignatureScheme::ALL.iter().find(|scheme| scheme.iana_code() == code);
            return known.map_or_else(|| number(code), |scheme| scheme.iana_name().to_owned());
        }
    };
    name.to_owned()
}

/// The name of a TLS version; the number in hexadecimal when this build knows none.
#[must_use]
pub fn version_name(code: u16) -> String {
    match code {
        0x0300 => "SSL 3.0".to_owned(),
        0x0301 => "TLS 1.0".to_owned(),
        0x0302 => "TLS 1.1".to_owned(),
        0x0303 => "TLS 1.2".to_owned(),
        0x0304 => "TLS 1.3".to_owned(),
        other => number(other),
    }
}

fn number(code: u16) -> String {
    format!("0x{code:04x}")
}
