//! The certificate authorities as they are now: who signs, who is trusted, which suite is in force.
//!
//! [`Authorities`] is replaced as a whole; whoever holds one goes on with it. [`Inner::follow_authorities`] hands out a
//! channel that wakes with each replacement.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use sallyport_access::ClusterName;
use sallyport_ca::rotation::CaState;
use sallyport_ca::{Authority as CertAuthority, CaKind, RotationStatus, Trust, TrustBundle};
use sallyport_sal::Suite;
use sallyport_sal::hpke::RecipientPublic;
use sallyport_store::{Store, StoreError, typed};
use time::OffsetDateTime;
use tokio::sync::watch;
use tonic::Status;
use tracing::{info, warn};

use super::Inner;
use super::custodies::{CaCustody, Custodies};
use super::hosts::storage;
use super::state::{CaRecord, ClusterRecord};
use crate::ServerError;

/// The CAs that a cluster is born with. The others are made when they are first needed, or when there is time: their
/// keys may be slow to make.
pub(super) const FROM_BIRTH: [CaKind; 2] = [CaKind::User, CaKind::Host];
/// After a start, other things come first.
const OTHERS_AFTER: Duration = Duration::from_secs(30);

/// One CA.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Of its record in the state.
    pub(super) revision: u64,
    /// The record: both CAs of a rotation, and how far it is.
    pub(super) state: CaState,
    /// The one that signs.
    pub(super) signer: CertAuthority,
    /// Trusted besides the one that signs.
    pub(super) also_trusted: Vec<CertAuthority>,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Authorities {
    entries: BTreeMap<CaKind, Entry>,
    trust: Trust,
    suite: Suite,
}

impl Authorities {
    /// Puts them together.
    pub(super) fn new(
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

    /// What everybody must trust.
    pub(super) fn trust(&self) -> &Trust {
        &self.trust
    }

    /// The suite in force.
    pub(super) fn suite(&self) -> Suite {
        self.suite
    }

    /// One CA, unless it was not made yet.
    pub(super) fn entry(&self, kind: CaKind) -> Option<&Entry> {
        self.entries.get(&kind)
    }

    /// Every CA that there is.
    pub(super) fn entries(&self) -> impl Iterator<Item = (CaKind, &Entry)> {
        self.entries.iter().map(|(kind, entry)| (*kind, entry))
    }

    /// The CA that signs for a kind, which every cluster is born with or which [`Inner::with_signer`] has made.
    pub(super) fn signer(&self, kind: CaKind) -> Result<&CertAuthority, Status> {
        let entry = self.entries.get(&kind);
        entry
            .map(|entry| &entry.signer)
            .ok_or_else(|| Status::unavailable(format!("there is no {kind} CA yet")))
    }
}

impl Inner {
    /// The authorities as they are now.
    pub(super) fn authorities(&self) -> Arc<Authorities> {
        Arc::clone(&self.authorities.borrow())
    }

    /// Wakes whenever they were replaced.
    pub(super) fn follow_authorities(&self) -> watch::Receiver<Arc<Authorities>> {
        self.authorities.subscribe()
    }

    /// Reads them anew; called after every change to their records or to the suite. Callers wait for each other, so that
    /// the last to be read is the last to be seen.
    pub(super) async fn reload_authorities(&self) -> Result<Arc<Authorities>, ServerError> {
        let _one = self.changing_authorities.lock().await;
        self.reload_locked().await
    }

    /// As [`Inner::reload_authorities`], for a caller that holds the lock. What is there already stays in force when
    /// they cannot be read.
    pub(super) async fn reload_locked(&self) -> Result<Arc<Authorities>, ServerError> {
        let now = OffsetDateTime::now_utc();
        let before = self.authorities();
        let loaded = load(&self.store, &self.custodies, self.recording_key, Some(&before), now).await?;
        let loaded = Arc::new(loaded);
        if loaded.trust().version() != before.trust().version() {
            self.present(&loaded).await;
        }
        self.authorities.send_replace(Arc::clone(&loaded));
        Ok(loaded)
    }

    /// Has the authority's own connections follow: certified by the host CA that signs now, and asking for
    /// certificates of everybody who is trusted now.
    pub(super) async fn present(&self, authorities: &Arc<Authorities>) {
        let (shared, id) = (Arc::clone(authorities), self.auth_id);
        let ttl = super::open::own_ttl(&self.config);
        // A key may be slow to make, and a token slow to sign.
        let made = tokio::task::spawn_blocking(move || {
            super::open::server_config(&shared, id, ttl, OffsetDateTime::now_utc())
        });
        match made.await {
            Ok(Ok((config, issued))) => {
                let event = super::open::own_certificate(&issued, OffsetDateTime::now_utc());
                if let Err(error) = self.log.append(vec![event]).await {
                    warn!(%error, "the authority's own certificate is not on record and not used");
                    return;
                }
                *self.tls.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
            }
            Ok(Err(problem)) => {
                warn!(
                    problem = ServerError::chain(&problem),
                    "the authority's own certificate was not renewed"
                );
            }
            Err(error) => warn!(%error, "the authority's own certificate was not renewed"),
        }
    }

    /// A snapshot with a CA that signs for this kind, made now if there was none.
    pub(super) async fn with_signer(&self, kind: CaKind) -> Result<Arc<Authorities>, Status> {
        let authorities = self.authorities();
        if authorities.entry(kind).is_some() {
            return Ok(authorities);
        }
        let failed = |error: ServerError| {
            warn!(problem = ServerError::chain(&error), %kind, "a CA was not made");
            Status::unavailable(format!("the {kind} CA cannot be made; the authority's log says why"))
        };
        let _one = self.changing_authorities.lock().await;
        let authorities = self.authorities();
        if authorities.entry(kind).is_some() {
            return Ok(authorities);
        }
        let made = make(kind, &self.config.cluster, self.custodies.of(kind), authorities.suite());
        let made = made.await.map_err(failed)?;
        let now = OffsetDateTime::now_utc();
        match self.store.create(kind.name(), &CaRecord(CaState::new(made.record().clone())), None, now).await
        {
            Ok(_) => info!(%kind, suite = %authorities.suite(), "a certificate authority was made"),
            Err(StoreError::Exists { .. }) => {}
            Err(error) => return Err(storage(&error)),
        }
        self.reload_locked().await.map_err(failed)
    }

    /// Makes the CAs that nobody needed yet, when the start is over.
    pub(super) async fn make_the_others(self: Arc<Self>) {
        tokio::select! {
            () = tokio::time::sleep(OTHERS_AFTER) => {}
            () = self.stop.cancelled() => return,
        }
        for kind in CaKind::ALL {
            if let Err(problem) = self.with_signer(*kind).await {
                warn!(%kind, problem = problem.message(), "a CA was not made; it is made when it is needed");
            }
        }
    }
}

/// Makes a CA, without a runtime thread waiting for slow keys or a slow token.
pub(super) async fn make(
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
pub(super) async fn load(
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
    let cluster =
        store.get::<ClusterRecord>(super::open::SELF, now).await.map_err(|error| failed(error.into()))?;
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
