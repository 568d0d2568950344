//! Factors, as they are stored.

use sallyport_access::{SessionFactor, UserName};
use sallyport_audit::Event;
use sallyport_store::Kind;
use sallyport_webauthn::{Credential, UserHandle};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::authority::factors::names::FactorName;

/// One factor of a user, under the user's name and its own id.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FactorRecord {
    pub(crate) id: Uuid,
    pub(crate) name: FactorName,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) created: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339::option", default)]
    pub(crate) last_used: Option<OffsetDateTime>,
    pub(crate) secret: FactorSecret,
}

/// What a factor is checked by.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "most factors are passkeys")]
pub(crate) enum FactorSecret {
    /// One-time codes.
    Totp {
        /// Their secret, sealed, in base64.
        sealed: String,
        /// The time step of the last code that was accepted: none is accepted twice.
        last_step: Option<u64>,
    },
    /// A passkey or security key.
    Webauthn {
        /// Its public key, counter and flags.
        credential: Credential,
    },
}

impl Kind for FactorRecord {
    const KIND: &'static str = "factor";
}

/// The kinds of factors that users add.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FactorKind {
    /// Passkeys and security keys.
    Webauthn,
    /// One-time codes.
    Totp,
}

impl FactorKind {
    /// The name on the wire.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Webauthn => "webauthn",
            Self::Totp => "totp",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Webauthn, Self::Totp].into_iter().find(|kind| kind.name() == name)
    }
}

impl FactorRecord {
    pub(crate) fn kind(&self) -> FactorKind {
        match self.secret {
            FactorSecret::Totp { .. } => FactorKind::Totp,
            FactorSecret::Webauthn { .. } => FactorKind::Webauthn,
        }
    }

    /// What a proof by it is worth for a session. That a passkey does not leave its device it says itself, where the cluster trusts no
    /// makers of authenticators.
    pub(crate) fn worth(&self) -> SessionFactor {
        match self.credential() {
            Some(credential) if !credential.backup_eligible => SessionFactor::Hardware,
            _ => SessionFactor::Yes,
        }
    }

    /// It as it is once its passkey was used.
    pub(crate) fn after_use(&self, credential: Credential, now: OffsetDateTime) -> Self {
        Self { last_used: Some(now), secret: FactorSecret::Webauthn { credential }, ..self.clone() }
    }

    /// An event with which factor it is about.
    pub(crate) fn on(&self, event: Event) -> Event {
        event
            .field("factor", self.name.to_string())
            .field("factor_kind", self.kind().name())
            .field("factor_id", self.id.to_string())
    }

    /// Its key among factors.
    pub(crate) fn key(user: &UserName, id: Uuid) -> String {
        format!("{user}/{id}")
    }

    /// The passkey that it is.
    pub(crate) fn credential(&self) -> Option<&Credential> {
        match &self.secret {
            FactorSecret::Webauthn { credential } => Some(credential),
            FactorSecret::Totp { .. } => None,
        }
    }
}

/// Whose a passkey is, under the hash of its credential ID: a passkey that is used without a user name is found by it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PasskeyRecord {
    pub(crate) user: UserName,
    pub(crate) factor: Uuid,
}

impl Kind for PasskeyRecord {
    const KIND: &'static str = "passkey";
}

/// What a user's factors have in common, under the user's name. Every addition and removal writes it, so that of two at a time
/// one sees the other.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FactorSetRecord {
    /// The user's name to authenticators.
    pub(crate) handle: UserHandle,
    /// How often a factor was added or removed.
    pub(crate) changes: u64,
}

impl Kind for FactorSetRecord {
    const KIND: &'static str = "factor_set";
}

/// A user's recovery codes, under the user's name: argon2id as PHC strings, by the code's index; none once it is used.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RecoveryRecord {
    pub(crate) codes: Vec<Option<String>>,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) made: OffsetDateTime,
}

impl Kind for RecoveryRecord {
    const KIND: &'static str = "recovery";
}
