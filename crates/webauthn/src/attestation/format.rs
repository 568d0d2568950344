//! Formats of attestation statements, and what is kept of one.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A format of attestation statements (WebAuthn L3 §8, IANA registry "WebAuthn Attestation Statement Format Identifiers").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// No statement (§8.7).
    None,
    /// WebAuthn's own (§8.2).
    Packed,
    /// Of U2F keys (§8.6).
    FidoU2f,
    /// Of TPMs (§8.3). Not checked.
    Tpm,
    /// Of Android's keystore (§8.4). Not checked.
    AndroidKey,
    /// Of Android's SafetyNet (§8.5), which is no longer served. Not checked.
    AndroidSafetynet,
    /// Of Apple's devices (§8.8). Not checked.
    Apple,
}

impl Format {
    const ALL: [Self; 7] = [
        Self::None,
        Self::Packed,
        Self::FidoU2f,
        Self::Tpm,
        Self::AndroidKey,
        Self::AndroidSafetynet,
        Self::Apple,
    ];

    /// Its identifier.
    #[must_use]
    pub const fn identifier(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Packed => "packed",
            Self::FidoU2f => "fido-u2f",
            Self::Tpm => "tpm",
            Self::AndroidKey => "android-key",
            Self::AndroidSafetynet => "android-safetynet",
            Self::Apple => "apple",
        }
    }

    /// §8.1: identifiers are compared byte by byte.
    pub(crate) fn of(identifier: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.identifier() == identifier)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.identifier())
    }
}

/// How far what an authenticator says of its model is proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    /// It says nothing (type None of §6.5.3).
    Absent,
    /// Signed by the credential's own key (type Self): the key is there, the model is not proven.
    SelfSigned,
    /// Signed under a certificate that was held against no root: the model is not proven.
    Unanchored,
    /// In a format that is not checked here: nothing is proven.
    Unchecked,
    /// Signed under a certificate that leads to a root of the model's.
    Trusted,
}

/// What is kept of an attestation statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attestation {
    /// Its format.
    pub format: Format,
    /// How far it proves the model.
    pub proof: Proof,
}
