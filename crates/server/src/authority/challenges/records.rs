//! Challenges, as they are stored.

use std::net::IpAddr;

use sallyport_access::{DeviceId, HostId, SessionFactor, SessionTarget, UserName};
use sallyport_store::Kind;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::authority::accounts::means::Means;
use crate::authority::challenges::ceremony::KeptCeremony;
use crate::authority::factors::names::FactorName;
use crate::authority::factors::records::FactorKind;
use crate::authority::secrets::hash_of;

/// How long a challenge may be proven, and used.
pub(crate) const LIFETIME: time::Duration = time::Duration::minutes(10);
/// How long one that was used or refused is kept, so that its program and its page can say so.
pub(crate) const OVER_KEPT: time::Duration = time::Duration::minutes(1);
/// How long the code is good that a browser brings back to the program.
pub(crate) const CODE_LIFETIME: time::Duration = time::Duration::seconds(60);
/// Wrong proofs after which a challenge ends.
pub(crate) const MOST_FAILURES: u8 = 5;

/// What a person has to prove, under the hash of its random id. Every change compares the revision that it was made for. It is in memory
/// alone ([`crate::authority::open`]): where the authority starts anew, the person begins again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ChallengeRecord {
    pub(crate) purpose: Purpose,
    /// Whose it is. None of a login, until it is proven; from then on it is that user's for good.
    pub(crate) user: Option<UserName>,
    /// The login that asked.
    pub(crate) login: Option<Uuid>,
    /// What the machine that asked calls itself.
    pub(crate) host_name: String,
    /// Where it asked from.
    pub(crate) address: IpAddr,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) created: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) expires: OffsetDateTime,
    pub(crate) state: State,
    /// The ceremony that was begun last.
    #[serde(default)]
    pub(crate) ceremony: Option<KeptCeremony>,
    /// Wrong proofs.
    #[serde(default)]
    pub(crate) failures: u8,
    /// Hash of the code that the terminal shows, and that the page asks for before anything is proven: of an approval and an enrolment, of
    /// a headless login, and of another whose browser is in another network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) terminal_code: Option<String>,
    /// The record of the way through an identity provider that was begun last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sso: Option<String>,
}

impl Kind for ChallengeRecord {
    const KIND: &'static str = "challenge";
}

impl ChallengeRecord {
    /// Whether it may still be proven and used.
    pub(crate) fn is_open(&self, now: OffsetDateTime) -> bool {
        self.expires > now
    }
}

/// What a challenge is for. A proof serves for this, and for nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Purpose {
    /// To log in.
    Login(LoginAsked),
    /// To add a factor.
    AddFactor { kind: FactorKind, name: FactorName },
    /// To remove a factor.
    RemoveFactor { id: Uuid },
    /// To make recovery codes.
    RecoveryCodes,
    /// To change the password.
    ChangePassword,
    /// To do what is dangerous to administer, for some minutes: what the login was last refused, where it was.
    Administer { asked: Option<String> },
    /// To admit a trusted device that waits.
    AdmitDevice { device: DeviceId },
    /// To see one's factors at a page. Nothing is proven for it: each removal there has an approval of its own.
    ShowFactors,
    /// To have sessions.
    Session(SessionsAsked),
    /// To register a passkey; that the user may is proven.
    EnrolPasskey { name: FactorName, allowed: AllowedBy },
    /// To confirm new one-time codes, by the first one.
    EnrolCodes { name: FactorName, sealed: String, allowed: AllowedBy },
    /// To try a connector of single sign-on that is not stored: its document, and what came of it, sealed.
    SsoTest { yaml: String, result: Option<String> },
}

impl Purpose {
    /// The word for pages and events.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Login(_) => "login",
            Self::AddFactor { .. } => "add-factor",
            Self::RemoveFactor { .. } => "remove-factor",
            Self::RecoveryCodes => "recovery-codes",
            Self::ChangePassword => "change-password",
            Self::Administer { .. } => "administer",
            Self::AdmitDevice { .. } => "admit-device",
            Self::ShowFactors => "show-factors",
            Self::Session(_) => "session",
            Self::EnrolPasskey { .. } => "enrol-passkey",
            Self::EnrolCodes { .. } => "enrol-codes",
            Self::SsoTest { .. } => "sso-test",
        }
    }

    /// Whether it is proven at the page of approvals.
    pub(crate) fn is_approval(&self) -> bool {
        matches!(
            self,
            Self::AddFactor { .. }
                | Self::RemoveFactor { .. }
                | Self::RecoveryCodes
                | Self::ChangePassword
                | Self::Administer { .. }
                | Self::AdmitDevice { .. }
                | Self::Session(_)
        )
    }

    /// Whether what was proven for this serves for what is wanted. What an administrator was refused is shown, and is not all that the
    /// proof is for.
    pub(crate) fn serves(&self, wanted: &Self) -> bool {
        self == wanted || matches!((self, wanted), (Self::Administer { .. }, Self::Administer { .. }))
    }

    /// The sessions that it is for.
    pub(crate) fn sessions(&self) -> Option<&SessionsAsked> {
        match self {
            Self::Session(asked) => Some(asked),
            _ => None,
        }
    }

    /// What a proof has to be worth.
    pub(crate) fn wants(&self) -> SessionFactor {
        self.sessions().map_or(SessionFactor::Yes, |asked| asked.factor)
    }
}

/// Sessions that a second factor is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionsAsked {
    /// What a proof has to be worth.
    pub(crate) factor: SessionFactor,
    /// Which ones, unless it is all of them.
    pub(crate) targets: Vec<NamedTarget>,
    /// All that the user may have.
    pub(crate) all: bool,
    /// For how many seconds a proof is to serve.
    pub(crate) seconds: u32,
    /// The proxy that asks, for a client that cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) proxy: Option<String>,
    /// A page has shown which sessions they are, and none is added any more.
    #[serde(default)]
    pub(crate) shown: bool,
    /// Of those that were proven: a code was typed for these, and more had been asked for.
    #[serde(default)]
    pub(crate) partly: bool,
}

/// A session, and what its resource is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamedTarget {
    pub(crate) target: SessionTarget,
    pub(crate) name: String,
}

/// What allows a user to register a factor, until it is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AllowedBy {
    /// The factor that was proven: it has to be theirs still. None of a password, and of a recovery code.
    pub(crate) factor: Option<Uuid>,
    /// The user had no factor, and proved the password: it is so still.
    pub(crate) first: bool,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) at: OffsetDateTime,
}

/// A login as it was asked for: fixed before it is proven.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoginAsked {
    pub(crate) ssh_public_key: String,
    /// DER, in base64.
    pub(crate) tls_public_key: String,
    /// 0: the roles' bound.
    pub(crate) ttl_seconds: u32,
    /// SHA-256 of the program's verifier, in hexadecimal.
    pub(crate) code_challenge: String,
    pub(crate) redirect: Redirect,
    /// The trusted device that gave its word over these keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<DeviceId>,
    /// The proxy that relayed the call, whose word is where the program is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) relayed_by: Option<HostId>,
}

/// How the program learns that its login is proven.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Redirect {
    /// The browser brings a code to this port of its own machine.
    Loopback { port: u16 },
    /// The program asks; the person types the terminal's code at the page.
    Headless,
    /// The program proves it itself, by a security key at its machine. No page does.
    SecurityKey,
}

/// How a challenge stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "there is one for each challenge, read and written as a whole")]
pub(crate) enum State {
    Pending,
    Proven(ProvenBy),
    Refused,
    Used,
}

impl State {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Proven(_) => "proven",
            Self::Refused => "refused",
            Self::Used => "used",
        }
    }
}

/// Who has proven a challenge, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProvenBy {
    pub(crate) means: Means,
    /// The user as they were.
    pub(crate) user_revision: u64,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) at: OffsetDateTime,
    /// What the browser brings to the program.
    pub(crate) code: Option<OneTimeCode>,
}

/// A code that is good once, and not for long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OneTimeCode {
    pub(crate) hash: String,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) expires: OffsetDateTime,
}

impl OneTimeCode {
    /// Whether this is the code, and whether it is still good.
    pub(crate) fn opens(&self, code: &str, now: OffsetDateTime) -> (bool, bool) {
        let right = sallyport_sal::constant_time_eq(hash_of(code).as_bytes(), self.hash.as_bytes());
        (right, now < self.expires)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_opens_nothing() {
        let now = OffsetDateTime::UNIX_EPOCH;
        let code = OneTimeCode { hash: hash_of("code"), expires: now + CODE_LIFETIME };
        assert_eq!(code.opens("code", now + CODE_LIFETIME - time::Duration::MILLISECOND), (true, true));
        assert_eq!(code.opens("code", now + CODE_LIFETIME), (true, false));
        assert_eq!(code.opens("other", now), (false, true));
        let record = ChallengeRecord {
            purpose: Purpose::RecoveryCodes,
            user: None,
            login: None,
            host_name: String::new(),
            address: "192.0.2.1".parse().unwrap(),
            created: now,
            expires: now + LIFETIME,
            state: State::Pending,
            ceremony: None,
            sso: None,
            failures: 0,
            terminal_code: None,
        };
        assert!(record.is_open(now + LIFETIME - time::Duration::MILLISECOND));
        assert!(!record.is_open(now + LIFETIME));
    }
}
