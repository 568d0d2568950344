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
    /// When the sign count of the passkey last did not grow, whether it was let in or refused: a copy of it may be in use.
    #[serde(with = "time::serde::rfc3339::option", default, skip_serializing_if = "Option::is_none")]
    pub(crate) counter_went_back: Option<OffsetDateTime>,
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

/// What the use of a passkey has shown of it, where its proof holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Noticed {
    /// The sign count did not grow, and `counter: flag` let the passkey in: a copy of it may be in use.
    pub(crate) counter_went_back: bool,
    /// Whether the passkey is synced to other devices now, where that changed since it was used before.
    pub(crate) backup: Option<bool>,
}

impl Noticed {
    /// An event with it.
    pub(crate) fn on(self, event: Event) -> Event {
        let event = if self.counter_went_back { event.field("counter", "went_back") } else { event };
        match self.backup_word() {
            Some(backup) => event.field("backup", backup),
            None => event,
        }
    }

    /// The word for how its state of being synced has changed.
    pub(crate) fn backup_word(self) -> Option<&'static str> {
        self.backup.map(|synced| if synced { "now_synced" } else { "no_longer_synced" })
    }
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
        let mut after =
            Self { last_used: Some(now), secret: FactorSecret::Webauthn { credential }, ..self.clone() };
        if self.noticed(&after).counter_went_back {
            after.counter_went_back = Some(now);
        }
        after
    }

    /// What its use has shown, by what is on record of it before and after. The record keeps the higher sign count: one that stays where it was
    /// is one that the authenticator did not raise.
    pub(crate) fn noticed(&self, after: &Self) -> Noticed {
        match (self.credential(), after.credential()) {
            (Some(before), Some(after)) => Noticed {
                counter_went_back: before.sign_count != 0 && after.sign_count == before.sign_count,
                backup: (after.backed_up != before.backed_up).then_some(after.backed_up),
            },
            _ => Noticed::default(),
        }
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sallyport_webauthn::{Attestation, Binary, Format, Proof};

    use super::*;

    fn passkey(sign_count: u32, backed_up: bool) -> FactorRecord {
        let credential = Credential {
            id: Binary(vec![1]),
            user: UserHandle::new(vec![1]).unwrap(),
            public_key: Binary(vec![]),
            sign_count,
            backup_eligible: true,
            backed_up,
            user_verified: true,
            transports: Vec::new(),
            aaguid: Uuid::nil(),
            attestation: Attestation { format: Format::None, proof: Proof::Absent },
            discoverable: None,
            created: OffsetDateTime::UNIX_EPOCH,
            last_used: None,
            nickname: String::new(),
        };
        FactorRecord {
            id: Uuid::nil(),
            name: FactorName::new("laptop").unwrap(),
            created: OffsetDateTime::UNIX_EPOCH,
            last_used: None,
            counter_went_back: None,
            secret: FactorSecret::Webauthn { credential },
        }
    }

    #[test]
    fn a_passkey_keeps_when_its_count_last_did_not_grow() {
        let first = OffsetDateTime::UNIX_EPOCH;
        let (second, third) = (first + time::Duration::DAY, first + 2 * time::Duration::DAY);
        let of = |count| passkey(count, false).credential().cloned().unwrap();
        let used = passkey(7, false).after_use(of(8), first);
        assert_eq!(used.counter_went_back, None);
        let copied = used.after_use(of(8), second);
        assert_eq!(copied.counter_went_back, Some(second));
        assert_eq!(copied.after_use(of(9), third).counter_went_back, Some(second), "it stays on record");
        let text = serde_json::to_string(&used).unwrap();
        assert!(!text.contains("counter_went_back"), "{text}");
        let read: FactorRecord = serde_json::from_str(&text).unwrap();
        assert_eq!(read.counter_went_back, None, "a record of an earlier release is read");
    }

    #[test]
    fn a_use_shows_a_count_that_did_not_grow_and_a_passkey_that_is_synced_since() {
        let noticed = |before: (u32, bool), after: (u32, bool)| {
            let noticed = passkey(before.0, before.1).noticed(&passkey(after.0, after.1));
            (noticed.counter_went_back, noticed.backup_word())
        };
        assert_eq!(noticed((7, false), (8, false)), (false, None));
        assert_eq!(noticed((7, false), (7, false)), (true, None));
        // An authenticator without a counter says zero each time.
        assert_eq!(noticed((0, true), (0, true)), (false, None));
        assert_eq!(noticed((0, false), (0, true)), (false, Some("now_synced")));
        assert_eq!(noticed((3, true), (3, false)), (true, Some("no_longer_synced")));
        let codes = FactorRecord {
            secret: FactorSecret::Totp { sealed: String::new(), last_step: None },
            ..passkey(0, false)
        };
        assert_eq!(codes.noticed(&codes), Noticed::default());
    }
}
