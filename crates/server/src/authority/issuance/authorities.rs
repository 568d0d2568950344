//! The certificate authorities as they are at one time: who signs, who is trusted, which suite is in force.
//!
//! [`Authorities`] is replaced as a whole; a holder of one goes on with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use sallyport_access::ClusterName;
use sallyport_ca::rotation::CaState;
use sallyport_ca::{Authority as CertAuthority, CaKind, RotationStatus, Trust, TrustBundle};
use sallyport_sal::Suite;
use sallyport_sal::hpke::RecipientPublic;
use sallyport_store::{Store, typed};
use time::OffsetDateTime;
use tonic::Status;

use crate::ServerError;
use crate::authority::issuance::custodies::{CaCustody, Custodies};
use crate::authority::records::{CaRecord, ClusterRecord};
use crate::authority::storage::SELF;

/// The CAs that a cluster is born with. The others are made when they are first needed, or when there is time: their
/// keys may be slow to make.
pub(crate) const FROM_BIRTH: [CaKind; 2] = [CaKind::User, CaKind::Host];

/// One CA.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Of its record in the state.
    pub(crate) revision: u64,
    /// The record: both CAs of a rotation, and how far it is.
    pub(crate) state: CaState,
    /// The one that signs.
    pub(crate) signer: CertAuthority,
    /// Trusted besides the one that signs.
    pub(crate) also_trusted: Vec<CertAuthority>,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Authorities {
    entries: BTreeMap<CaKind, Entry>,
    trust: Trust,
    suite: Suite,
}

impl Authorities {
    /// Puts them together.
    pub(crate) fn new(
        entries: BTreeMap<CaKind, Entry>,
        suite: Suite,
        recording_key: RecipientPublic,
    ) -> Result<Self, sallyport_ca::CaError> {
        let all: Vec<&CertAuthority> = entries
            .values()
            .flat_map(|entry| std::iter::once(&entry.signer).chain(&entry.also_trusted))
            .collect();
        let mut bundle = TrustBundle::from_authorities(&all, Some(recording_key))?;
        suite.name().clone_into(&mut bundle.suite);
        bundle.rotations = entries
            .iter()
            .map(|(kind, entry)| (*kind, entry.state.rotation().status()))
            .filter(|(_, status)| *status != RotationStatus::default())
            .collect();
        Ok(Self { trust: Trust::from_bundle(&bundle)?, entries, suite })
    }

    /// What every host and client must trust.
    pub(crate) fn trust(&self) -> &Trust {
        &self.trust
    }

    /// The suite in force.
    pub(crate) fn suite(&self) -> Suite {
        self.suite
    }

    /// One CA, unless it was not made yet.
    pub(crate) fn entry(&self, kind: CaKind) -> Option<&Entry> {
        self.entries.get(&kind)
    }

    /// Every CA that there is.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (CaKind, &Entry)> {
        self.entries.iter().map(|(kind, entry)| (*kind, entry))
    }

    /// The CA that signs for a kind, which every cluster is born with or which `Issuance::with_signer` has made.
    pub(crate) fn signer(&self, kind: CaKind) -> Result<&CertAuthority, Status> {
        let entry = self.entries.get(&kind);
        entry
            .map(|entry| &entry.signer)
            .ok_or_else(|| Status::unavailable(format!("there is no {kind} CA yet")))
    }
}

/// Makes a CA, without a runtime thread waiting for slow keys or a slow token.
pub(crate) async fn make(
    kind: CaKind,
    cluster: &ClusterName,
    custody: CaCustody,
    suite: Suite,
) -> Result<CertAuthority, ServerError> {
    let cluster = cluster.clone();
    let now = OffsetDateTime::now_utc();
    let place = custody.token().map(|token| {
        let hint = if suite.is_for_tokens() {
            String::new()
        } else {
            format!(" ({} is the suite whose keys every token holds)", Suite::HsmV1)
        };
        format!(" in the token {token}{hint}")
    });
    let made =
        tokio::task::spawn_blocking(move || CertAuthority::generate(kind, &cluster, &custody, suite, now));
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| ServerError::Authority {
        action: format!("make the {kind} CA under the suite {suite}{}", place.unwrap_or_default()),
        source,
    };
    match made.await {
        Ok(made) => made.map_err(|error| failed(error.into())),
        Err(error) => Err(failed(error.into())),
    }
}

/// Reads the authorities. Those of `known` that did not change are kept as they are.
pub(crate) async fn load(
    store: &Store,
    custodies: &Arc<Custodies>,
    recording_key: RecipientPublic,
    known: Option<&Authorities>,
    now: OffsetDateTime,
) -> Result<Authorities, ServerError> {
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| ServerError::Authority {
        action: "read its certificate authorities".to_owned(),
        source,
    };
    let cluster = store.get::<ClusterRecord>(SELF, now).await.map_err(|error| failed(error.into()))?;
    let suite = cluster.map(|stored| stored.value.suite).unwrap_or_default();
    let mut entries = BTreeMap::new();
    for kind in CaKind::ALL {
        let stored = store.get::<CaRecord>(kind.name(), now).await.map_err(|error| failed(error.into()))?;
        let Some(stored) = stored else { continue };
        let same =
            known.and_then(|known| known.entry(*kind)).filter(|entry| entry.revision == stored.revision);
        let entry = match same {
            Some(entry) => entry.clone(),
            None => entry(stored, custodies.of(*kind)).await.map_err(failed)?,
        };
        entries.insert(*kind, entry);
    }
    Authorities::new(entries, suite, recording_key).map_err(|error| failed(error.into()))
}

async fn entry(
    stored: typed::Stored<CaRecord>,
    custody: CaCustody,
) -> Result<Entry, Box<dyn std::error::Error + Send + Sync>> {
    let (revision, state) = (stored.revision, stored.value.0);
    tokio::task::spawn_blocking(move || {
        let mut trusted = Vec::new();
        for record in state.trusted() {
            trusted.push(CertAuthority::load(record, &custody)?);
        }
        let mut trusted = trusted.into_iter();
        let signer = trusted.next().ok_or("a CA without keys is in the state")?;
        Ok(Entry { revision, signer, also_trusted: trusted.collect(), state })
    })
    .await?
}
