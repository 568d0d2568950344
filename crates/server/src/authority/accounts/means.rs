//! By what people prove who they are.

use sallyport_access::{LoginClaims, UserName};
use sallyport_audit::Event;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::authority::factors::records::{FactorKind, FactorRecord, Noticed};

/// By what a person has proven who they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Means {
    pub(crate) way: Way,
    /// The factor; none of a password alone, and of a recovery code.
    pub(crate) factor: Option<UsedFactor>,
    /// More than a password.
    pub(crate) second_factor: bool,
    /// The authenticator has verified its user, by a PIN or a fingerprint.
    pub(crate) user_verified: bool,
    /// The identity provider, and what it said; none of every other way, and of a login that an earlier release let in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) said: Option<Said>,
    /// Until when certificates by it live at most, of a local user who is linked with a person of a provider; of others the user ends then.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<OffsetDateTime>,
}

/// By which connector of single sign-on a person came, and what its provider said, as login rules see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Said {
    pub(crate) connector: String,
    pub(crate) claims: LoginClaims,
}

/// The way of a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    Password,
    Passkey,
    Code,
    RecoveryCode,
    SingleSignOn,
}

/// The factor of a proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UsedFactor {
    pub(crate) id: Uuid,
    pub(crate) kind: FactorKind,
    pub(crate) name: String,
    /// What the use of a passkey has shown.
    #[serde(default)]
    pub(crate) noticed: Noticed,
}

impl UsedFactor {
    pub(crate) fn of(factor: &FactorRecord) -> Self {
        Self {
            id: factor.id,
            kind: factor.kind(),
            name: factor.name.to_string(),
            noticed: Noticed::default(),
        }
    }

    /// A passkey, by what is on record of it before and after its use.
    pub(crate) fn used(before: &FactorRecord, after: &FactorRecord) -> Self {
        Self { noticed: before.noticed(after), ..Self::of(before) }
    }

    /// Writes into the log what an operator should know of the use, once it is written: one that another call overtook was none.
    pub(crate) fn warn(&self, user: &UserName) {
        let factor = self.name.as_str();
        if self.noticed.counter_went_back {
            tracing::warn!(%user, factor, "the sign count of a passkey went back: a copy of it may be in use");
        }
        if let Some(backup) = self.noticed.backup_word() {
            tracing::warn!(%user, factor, backup, "whether a passkey is synced to other devices has changed");
        }
    }
}

impl Way {
    /// The word for events and people.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Password => "password",
            Self::Passkey => "passkey",
            Self::Code => "code",
            Self::RecoveryCode => "recovery code",
            Self::SingleSignOn => "single sign-on",
        }
    }
}

impl Means {
    /// A proof by no factor that is known here, and by no provider.
    pub(crate) fn by(way: Way, second_factor: bool) -> Self {
        Self { way, factor: None, second_factor, user_verified: false, said: None, until: None }
    }

    /// An event with what it was proven by.
    pub(crate) fn on(&self, event: Event) -> Event {
        let event = event.field("way", self.way.word()).field("second_factor", self.second_factor);
        let event = match &self.said {
            Some(said) => event.field("connector", said.connector.clone()),
            None => event,
        };
        match &self.factor {
            Some(factor) => {
                let event = event
                    .field("factor", factor.name.clone())
                    .field("factor_kind", factor.kind.name())
                    .field("user_verified", self.user_verified);
                factor.noticed.on(event)
            }
            None => event,
        }
    }
}
