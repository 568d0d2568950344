//! Who asks for passkeys, and by which rules.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::attestation::metadata::Metadata;
use crate::cose::Algorithm;
use crate::error::WebAuthnError;
use crate::origin::{self, Origin};

/// How much the user has to be verified, by a PIN or a fingerprint at the authenticator (WebAuthn L3 §5.8.6).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UserVerification {
    /// Always; a response without it is refused. The default: a passkey alone is two factors only then.
    #[default]
    Required,
    /// Where the authenticator can. A response without it is accepted, and says so.
    Preferred,
    /// Not, where that can be avoided: the passkey is a second factor after a password.
    Discouraged,
}

/// What is asked about the authenticator's model (WebAuthn L3 §5.4.7, §6.5.3).
#[derive(Debug, Clone, Default)]
pub enum AttestationPolicy {
    /// Nothing: any authenticator is good. Statements that come all the same have to be valid where they can be checked
    /// (`none`, `packed`, `fido-u2f`); `tpm`, `android-key` and `apple` are kept as not verified. The default.
    #[default]
    None,
    /// Only these models, proven by a certificate that leads to a root in the metadata. Self attestation, no attestation and
    /// statements that cannot be checked here are refused.
    ///
    /// U2F keys do not say their model; the AAGUID of zeros stands for all of those whose roots the metadata has under it.
    AllowList {
        /// The models, by AAGUID.
        models: BTreeSet<Uuid>,
        /// Their roots and reports.
        metadata: Metadata,
    },
}

/// Whether login pages may be shown inside pages of other origins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CrossOrigin {
    /// Never. The default: a frame can be dressed up as something else.
    #[default]
    Refused,
    /// Inside these, besides the relying party's own origins. Browsers that do not say in which page are believed.
    Within(Vec<Origin>),
}

/// What a counter that did not grow means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CounterPolicy {
    /// The login is refused. The default.
    #[default]
    Refuse,
    /// The login goes on, and [`Authentication::clone_suspected`](crate::Authentication::clone_suspected) says so.
    Flag,
}

/// Which passkeys are taken, by whether they can be copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackupPolicy {
    /// All. The default.
    #[default]
    Any,
    /// Those that never leave their device (BE is not set).
    DeviceBound,
}

/// A relying party: the login page of one cluster.
#[derive(Debug, Clone)]
pub struct RelyingParty {
    name: String,
    rp_id: String,
    origins: Vec<Origin>,
    cross_origin: CrossOrigin,
    user_verification: UserVerification,
    attestation: AttestationPolicy,
    counter: CounterPolicy,
    backup: BackupPolicy,
    algorithms: Vec<Algorithm>,
}

impl RelyingParty {
    /// A relying party with the default rules.
    ///
    /// `name` is what browsers show. `rp_id` is a domain, to which passkeys are bound for good: with another one, all of them
    /// are lost. `origins` are the pages that may ask, each at the RP ID or a subdomain of it.
    ///
    /// # Errors
    /// [`WebAuthnError::BadRpId`], [`WebAuthnError::BadOrigin`] and [`WebAuthnError::NoOrigin`] with what to give instead.
    pub fn new<'o>(
        name: &str,
        rp_id: &str,
        origins: impl IntoIterator<Item = &'o str>,
    ) -> Result<Self, WebAuthnError> {
        origin::check_domain(rp_id)
            .map_err(|reason| WebAuthnError::BadRpId { rp_id: rp_id.to_owned(), reason })?;
        let origins =
            origins.into_iter().map(|text| Origin::of(text, rp_id)).collect::<Result<Vec<_>, _>>()?;
        if origins.is_empty() {
            return Err(WebAuthnError::NoOrigin { rp_id: rp_id.to_owned() });
        }
        Ok(Self {
            name: name.to_owned(),
            rp_id: rp_id.to_owned(),
            origins,
            cross_origin: CrossOrigin::default(),
            user_verification: UserVerification::default(),
            attestation: AttestationPolicy::default(),
            counter: CounterPolicy::default(),
            backup: BackupPolicy::default(),
            algorithms: Algorithm::ALL.to_vec(),
        })
    }

    /// The same, with another rule about the user's verification.
    #[must_use]
    pub fn with_user_verification(mut self, rule: UserVerification) -> Self {
        self.user_verification = rule;
        self
    }

    /// The same, with another rule about attestation.
    #[must_use]
    pub fn with_attestation(mut self, policy: AttestationPolicy) -> Self {
        self.attestation = policy;
        self
    }

    /// The same, with another rule about frames.
    #[must_use]
    pub fn with_cross_origin(mut self, rule: CrossOrigin) -> Self {
        self.cross_origin = rule;
        self
    }

    /// The same, with another rule about counters.
    #[must_use]
    pub fn with_counter(mut self, policy: CounterPolicy) -> Self {
        self.counter = policy;
        self
    }

    /// The same, with another rule about passkeys that can be copied.
    #[must_use]
    pub fn with_backup(mut self, policy: BackupPolicy) -> Self {
        self.backup = policy;
        self
    }

    /// The same, offering these algorithms to new passkeys, the preferred first. An empty list offers all.
    #[must_use]
    pub fn with_algorithms(mut self, algorithms: &[Algorithm]) -> Self {
        self.algorithms = if algorithms.is_empty() { Algorithm::ALL.to_vec() } else { algorithms.to_vec() };
        self
    }

    /// What browsers show.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The domain that passkeys are bound to.
    #[must_use]
    pub fn rp_id(&self) -> &str {
        &self.rp_id
    }

    /// The pages that may ask.
    #[must_use]
    pub fn origins(&self) -> &[Origin] {
        &self.origins
    }

    /// The rule about the user's verification.
    #[must_use]
    pub fn user_verification(&self) -> UserVerification {
        self.user_verification
    }

    /// The algorithms that new passkeys may have.
    #[must_use]
    pub fn algorithms(&self) -> &[Algorithm] {
        &self.algorithms
    }

    pub(crate) fn cross_origin(&self) -> &CrossOrigin {
        &self.cross_origin
    }

    pub(crate) fn attestation(&self) -> &AttestationPolicy {
        &self.attestation
    }

    pub(crate) fn counter(&self) -> CounterPolicy {
        self.counter
    }

    pub(crate) fn backup(&self) -> BackupPolicy {
        self.backup
    }
}
