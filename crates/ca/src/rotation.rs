//! Replacing a certificate authority while everything goes on.
//!
//! ```text
//!            trusted        signs (host)   signs (all others)   what happens
//! standby    A              A              A
//! init       A, B           A              A                    hosts and users learn to trust B
//! update_clients
//!            A, B           A              B                    users get certificates of B
//! update_servers
//!            A, B           B              B                    hosts get certificates of B
//! standby    B              B              B                    A is forgotten
//! rollback   A, B           A              A                    all go back to A; then standby forgets B
//! ```
//!
//! The order is what makes it safe: a CA signs nothing before every verifier trusts it, and is not forgotten while a
//! certificate that it signed is in use. Users come first, because their verifiers are the hosts, which confirm what they trust; hosts
//! come last, because their verifiers are also the users' programs, which confirm nothing and get until then to learn.
//! So a phase may end only when every host has [confirmed](CaState::confirmed_by) it.
//!
//! All of this is pure: the states are values, time is an argument, and nothing is stored here.

use sallyport_sal::tls::rustls::pki_types::CertificateDer;
use sallyport_sal::tls::rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

pub use crate::phase::{Phase, UnknownPhase};
use crate::x509::{self, CaCertificate};
use crate::{AuthorityRecord, CaError, CaKind, RotationStatus};

/// Who decides when a phase ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum Mode {
    /// An administrator, each time.
    Manual,
    /// The authority, over a time that is split among the phases.
    Automatic {
        /// How long the whole rotation takes at least. Users who run no command of ours meanwhile log in again.
        #[serde(rename = "grace_seconds", with = "seconds")]
        grace: Duration,
    },
}

/// How far the rotation of one CA is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotation {
    /// Counts the rotations that were begun; 0 is the CA that the cluster was born with.
    pub generation: u64,
    /// The phase.
    pub phase: Phase,
    /// Who ends it.
    #[serde(flatten)]
    pub mode: Mode,
    /// When the rotation began; for a CA that never was rotated, when it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub started: OffsetDateTime,
    /// When the phase began.
    #[serde(with = "time::serde::rfc3339")]
    pub phase_since: OffsetDateTime,
}

impl Rotation {
    /// When the phase is over in automatic mode; none in manual mode and in standby.
    ///
    /// Of the grace, init gets a tenth, because only hosts have to learn of it; update_clients gets six tenths,
    /// because users' programs have to come by; update_servers gets the rest. A rollback waits for users again.
    #[must_use]
    pub fn due(&self) -> Option<OffsetDateTime> {
        let Mode::Automatic { grace } = self.mode else { return None };
        let tenths = match self.phase {
            Phase::Standby => return None,
            Phase::Init => 1,
            Phase::UpdateClients | Phase::Rollback => 6,
            Phase::UpdateServers => 3,
        };
        Some(self.phase_since + grace * tenths / 10)
    }

    /// What the trust bundle says of it, and a host that has applied it all.
    #[must_use]
    pub fn status(&self) -> RotationStatus {
        RotationStatus { generation: self.generation, phase: self.phase }
    }
}

impl RotationStatus {
    /// Whether a host that has applied this has applied `other`, too: it is the same step of the same rotation or a later
    /// one.
    #[must_use]
    pub fn reaches(self, other: Self) -> bool {
        (self.generation, self.phase.step()) >= (other.generation, other.phase.step())
    }
}

/// A CA as it is stored: the one in use, and the one that replaces it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct CaState {
    active: AuthorityRecord,
    #[serde(skip_serializing_if = "Option::is_none")]
    incoming: Option<AuthorityRecord>,
    rotation: Rotation,
}

/// What may be found in a store: today's form, or that of releases that knew no rotation.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    State {
        active: Box<AuthorityRecord>,
        #[serde(default)]
        incoming: Option<Box<AuthorityRecord>>,
        rotation: Rotation,
    },
    Plain(Box<AuthorityRecord>),
}

impl TryFrom<Stored> for CaState {
    type Error = CaError;

    fn try_from(stored: Stored) -> Result<Self, CaError> {
        match stored {
            Stored::Plain(active) => Ok(Self::new(*active)),
            Stored::State { active, incoming, rotation } => {
                let state = Self { active: *active, incoming: incoming.map(|record| *record), rotation };
                match (state.rotation.phase, &state.incoming) {
                    (Phase::Standby, Some(_)) => Err(state.wrong("the record has a CA that replaces it")),
                    (phase, None) if phase != Phase::Standby => {
                        Err(state.wrong("the record lacks the CA that replaces it"))
                    }
                    _ => Ok(state),
                }
            }
        }
    }
}

impl CaState {
    /// A CA that has never been rotated.
    #[must_use]
    pub fn new(active: AuthorityRecord) -> Self {
        let rotation = Rotation {
            generation: 0,
            phase: Phase::Standby,
            mode: Mode::Manual,
            started: active.created,
            phase_since: active.created,
        };
        Self { active, incoming: None, rotation }
    }

    /// What it certifies.
    #[must_use]
    pub fn kind(&self) -> CaKind {
        self.active.kind
    }

    /// The CA from before the rotation, which is the one in standby.
    #[must_use]
    pub fn active(&self) -> &AuthorityRecord {
        &self.active
    }

    /// The CA that replaces it.
    #[must_use]
    pub fn incoming(&self) -> Option<&AuthorityRecord> {
        self.incoming.as_ref()
    }

    /// How far the rotation is.
    #[must_use]
    pub fn rotation(&self) -> &Rotation {
        &self.rotation
    }

    /// The CA that signs now.
    #[must_use]
    pub fn signer(&self) -> &AuthorityRecord {
        match &self.incoming {
            Some(incoming) if self.incoming_signs() => incoming,
            _ => &self.active,
        }
    }

    /// Whom to trust, the one that signs first.
    pub fn trusted(&self) -> impl Iterator<Item = &AuthorityRecord> {
        std::iter::once(self.signer()).chain(self.other())
    }

    /// The CA whose certificates have to be replaced before the rotation can go on; none where nothing that it signed
    /// is about to be refused.
    #[must_use]
    pub fn leaving(&self) -> Option<&AuthorityRecord> {
        match self.rotation.phase {
            Phase::Rollback => self.incoming.as_ref(),
            _ if self.incoming_signs() => Some(&self.active),
            _ => None,
        }
    }

    /// Begins a rotation: `incoming` is trusted from now on, and signs nothing yet.
    ///
    /// # Errors
    /// [`CaError::RotationStep`] when one is under way, or `incoming` cannot replace this CA.
    pub fn begin(&self, incoming: AuthorityRecord, mode: Mode, now: OffsetDateTime) -> Result<Self, CaError> {
        if self.rotation.phase != Phase::Standby {
            return Err(self.wrong("a rotation is under way already; finish it or roll it back first"));
        }
        if (incoming.kind, &incoming.cluster) != (self.active.kind, &self.active.cluster) {
            return Err(self.wrong("the new CA is of another kind or cluster"));
        }
        if incoming.keys().any(|new| self.active.keys().any(|old| old.public_key == new.public_key)) {
            return Err(self.wrong("the new CA has a key of the old one"));
        }
        let rotation = Rotation {
            generation: self.rotation.generation + 1,
            phase: Phase::Init,
            mode,
            started: now,
            phase_since: now,
        };
        Ok(Self { active: self.active.clone(), incoming: Some(incoming), rotation })
    }

    /// The next phase. After update_servers the old CA is forgotten, after a rollback the new one.
    ///
    /// Whether every host has confirmed this phase is for the caller to know: see [`CaState::confirmed_by`].
    ///
    /// # Errors
    /// [`CaError::RotationStep`] in standby, where a rotation has to [begin](CaState::begin).
    pub fn advance(&self, now: OffsetDateTime) -> Result<Self, CaError> {
        let Some(incoming) = &self.incoming else {
            return Err(self.wrong("no rotation is under way"));
        };
        let phase = self.rotation.phase.next();
        let (active, incoming) = match self.rotation.phase {
            Phase::UpdateServers => (incoming, None),
            Phase::Rollback => (&self.active, None),
            _ => (&self.active, Some(incoming)),
        };
        Ok(self.moved(active, incoming, phase, now))
    }

    /// Goes back: the old CA signs again, and the new one stays trusted until no certificate that it signed is held.
    ///
    /// # Errors
    /// [`CaError::RotationStep`] when no rotation is under way, or when it is being rolled back already.
    pub fn rollback(&self, now: OffsetDateTime) -> Result<Self, CaError> {
        match (&self.incoming, self.rotation.phase) {
            (None, _) => Err(self.wrong("there is nothing to roll back: the old CA is not trusted any more")),
            (Some(_), Phase::Rollback) => Err(self.wrong("it is being rolled back already")),
            (Some(incoming), _) => Ok(self.moved(&self.active, Some(incoming), Phase::Rollback, now)),
        }
    }

    /// The same phase with another to end it.
    #[must_use]
    pub fn with_mode(&self, mode: Mode) -> Self {
        let rotation = Rotation { mode, ..self.rotation };
        Self { rotation, ..self.clone() }
    }

    /// Whether a host has applied the phase: it trusts whom it should, and, where hosts have to replace their
    /// certificates, it presents one of the CA that signs.
    #[must_use]
    pub fn confirmed_by(&self, applied: Option<RotationStatus>, signed_by: Option<&str>) -> bool {
        let trusts = applied.is_some_and(|applied| applied.reaches(self.rotation.status()));
        trusts
            && (!self.hosts_renew()
                || signed_by.is_some_and(|pin| Some(pin) == pin_of(self.signer()).as_deref()))
    }

    /// Whether hosts have to replace their certificates in this phase.
    #[must_use]
    pub fn hosts_renew(&self) -> bool {
        self.kind() == CaKind::Host && self.leaving().is_some()
    }

    fn incoming_signs(&self) -> bool {
        match self.rotation.phase {
            Phase::UpdateServers => true,
            Phase::UpdateClients => self.kind() != CaKind::Host,
            Phase::Standby | Phase::Init | Phase::Rollback => false,
        }
    }

    /// The trusted CA that does not sign.
    fn other(&self) -> Option<&AuthorityRecord> {
        let incoming = self.incoming.as_ref()?;
        Some(if self.incoming_signs() { &self.active } else { incoming })
    }

    fn moved(
        &self,
        active: &AuthorityRecord,
        incoming: Option<&AuthorityRecord>,
        phase: Phase,
        now: OffsetDateTime,
    ) -> Self {
        let rotation = Rotation { phase, phase_since: now, ..self.rotation };
        Self { active: active.clone(), incoming: incoming.cloned(), rotation }
    }

    fn wrong(&self, problem: &'static str) -> CaError {
        CaError::RotationStep { kind: self.kind(), phase: self.rotation.phase, problem }
    }
}

/// The pin of an authority's TLS key, as hosts find it in the chain that they present; none for a CA without one.
#[must_use]
pub fn pin_of(record: &AuthorityRecord) -> Option<String> {
    record.tls_key.as_ref()?.public_key().ok().map(|key| x509::pin_of(&key))
}

/// The pin of the CA in a host's chain (PEM), which is the one that signed it; none when the chain has none.
#[must_use]
pub fn signed_by(chain_pem: &str) -> Option<String> {
    CertificateDer::pem_slice_iter(chain_pem.as_bytes())
        .skip(1)
        .filter_map(Result::ok)
        .find_map(|der| CaCertificate::parse(&der).ok())
        .map(|ca| ca.pin())
}

/// Whole seconds.
mod seconds {
    use serde::{Deserialize, Deserializer, Serializer};
    use time::Duration;

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(duration.whole_seconds())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        i64::deserialize(deserializer).map(Duration::seconds)
    }
}
