//! What is found: keys, signatures on what holds them, and where.

use sallyport_sal::strength::{Digest, Problem, Verdict};
use serde::Serialize;

/// A key, as far as it is known here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// One whose strength can be said.
    Known(Problem),
    /// Another one, in words.
    Unknown(String),
}

impl Key {
    pub(super) fn rsa(bits: u32) -> Self {
        Problem::rsa(bits).map_or_else(|error| Self::Unknown(error.to_string()), Self::Known)
    }
}

/// A signature on a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Signature {
    /// How it was made, such as `ECDSA with SHA-256`.
    pub name: String,
    /// The hash that it is over; none when that is not known.
    pub digest: Option<Digest>,
    /// Whether anything rests upon it: no client believes a root because of its own signature.
    pub matters: bool,
    /// Whether the certificate that it is on is self-signed.
    pub own: bool,
}

impl Signature {
    /// What is to be said of a broken hash that does not count, because the certificate is self-signed.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let broken = self.digest.is_some_and(|digest| digest.verdict() <= Verdict::Weak);
        (self.own && broken).then(|| own_signature(&self.name))
    }
}

/// What is said of every self-signed certificate with a broken hash.
pub(crate) fn own_signature(name: &str) -> String {
    format!(
        "its own signature ({name}) protects nothing: a client believes a self-signed certificate because it was told \
         to, so the broken hash does not count"
    )
}

/// A key that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where in the file or the answer: `line 3`, `block 2`; empty when there is only one place.
    pub place: String,
    /// What holds it.
    pub what: String,
    /// The key.
    pub key: Key,
    /// The signature on what holds it.
    pub signature: Option<Signature>,
}

impl Found {
    pub(super) fn new(what: impl Into<String>, key: Key) -> Self {
        Self { place: String::new(), what: what.into(), key, signature: None }
    }
}

/// What is in a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contents {
    /// The keys, in their order.
    pub found: Vec<Found>,
    /// What was left out, in words.
    pub notes: Vec<String>,
}

/// Text from a file or a server, fit for a terminal: without control characters, and no longer than a line.
pub(super) fn printable(bytes: &[u8]) -> String {
    const LONGEST: usize = 64;
    let text = String::from_utf8_lossy(bytes);
    // Also what turns the direction of writing around.
    let fit = |letter: &char| {
        !letter.is_control()
            && !matches!(*letter, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
    };
    let mut short: String = text.chars().filter(fit).take(LONGEST).collect();
    if text.chars().count() > LONGEST {
        short.push('…');
    }
    short
}
