//! Who signs: the authorities in force, replaced as a whole, and the TLS that the authority presents.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use sallyport_access::HostId;
use sallyport_ca::rotation::CaState;
use sallyport_ca::{CaKind, CertificateKind, check_accepted};
use sallyport_sal::hpke::RecipientPublic;
use sallyport_store::{Store, StoreError};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tracing::{info, warn};

use crate::ServerError;
use crate::authority::audit::journal::Journal;
use crate::authority::config::AuthConfig;
use crate::authority::issuance::authorities::{Authorities, load, make};
use crate::authority::issuance::custodies::Custodies;
use crate::authority::issuance::presented::{own_certificate, own_ttl, server_config};
use crate::authority::issuance::words::wire_bundle;
use crate::authority::records::CaRecord;
use crate::authority::storage::storage;

/// After a start, other things come first.
const OTHERS_AFTER: Duration = Duration::from_secs(30);

/// The certificate authorities in force.
#[derive(Debug)]
pub(crate) struct Issuance {
    config: Arc<AuthConfig>,
    store: Store,
    journal: Arc<Journal>,
    custodies: Arc<Custodies>,
    now: watch::Sender<Arc<Authorities>>,
    changing: tokio::sync::Mutex<()>,
    recording_key: RecipientPublic,
    tls: RwLock<Arc<ServerConfig>>,
    auth_id: HostId,
    stop: CancellationToken,
}

impl Issuance {
    /// `own` is what the authority presents until it is renewed.
    #[allow(clippy::too_many_arguments, reason = "each is one that it takes")]
    pub(crate) fn new(
        config: &Arc<AuthConfig>,
        store: &Store,
        journal: &Arc<Journal>,
        custodies: &Arc<Custodies>,
        authorities: Authorities,
        recording_key: RecipientPublic,
        own: (HostId, ServerConfig),
        stop: &CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            config: Arc::clone(config),
            store: store.clone(),
            journal: Arc::clone(journal),
            custodies: Arc::clone(custodies),
            now: watch::Sender::new(Arc::new(authorities)),
            changing: tokio::sync::Mutex::new(()),
            recording_key,
            tls: RwLock::new(Arc::new(own.1)),
            auth_id: own.0,
            stop: stop.clone(),
        })
    }

    /// Where the keys are.
    pub(crate) fn custodies(&self) -> &Arc<Custodies> {
        &self.custodies
    }

    /// What the authority presents on connections now.
    pub(crate) fn tls(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.tls.read())
    }

    /// Held while records of authorities change, by who changes them.
    pub(crate) async fn change(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.changing.lock().await
    }

    /// The authorities as they are now.
    pub(crate) fn authorities(&self) -> Arc<Authorities> {
        Arc::clone(&self.now.borrow())
    }

    /// Wakes whenever they were replaced.
    pub(crate) fn follow(&self) -> watch::Receiver<Arc<Authorities>> {
        self.now.subscribe()
    }

    /// Reads them anew; called after every change to their records or to the suite. Callers wait for each other, so that
    /// the last to be read is the last to be seen.
    pub(crate) async fn reload(&self) -> Result<Arc<Authorities>, ServerError> {
        let _one = self.changing.lock().await;
        self.reload_locked().await
    }

    /// As [`Self::reload`], for a caller that holds the lock. What is there already stays in force when
    /// they cannot be read.
    pub(crate) async fn reload_locked(&self) -> Result<Arc<Authorities>, ServerError> {
        let now = OffsetDateTime::now_utc();
        let before = self.authorities();
        let loaded = load(&self.store, &self.custodies, self.recording_key, Some(&before), now).await?;
        let loaded = Arc::new(loaded);
        if loaded.trust().version() != before.trust().version() {
            self.present(&loaded).await;
        }
        self.now.send_replace(Arc::clone(&loaded));
        Ok(loaded)
    }

    /// Has the authority's own connections follow: certified by the host CA that signs now, and asking for
    /// certificates of every CA that is trusted now.
    pub(crate) async fn present(&self, authorities: &Arc<Authorities>) {
        let (shared, id) = (Arc::clone(authorities), self.auth_id);
        let ttl = own_ttl(&self.config);
        // A key may be slow to make, and a token slow to sign.
        let made =
            tokio::task::spawn_blocking(move || server_config(&shared, id, ttl, OffsetDateTime::now_utc()));
        match made.await {
            Ok(Ok((config, issued))) => {
                let event = own_certificate(&issued, OffsetDateTime::now_utc());
                if let Err(error) = self.journal.log().append(vec![event]).await {
                    warn!(%error, "the authority's own certificate is not on record and not used");
                    return;
                }
                *self.tls.write() = Arc::new(config);
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
    pub(crate) async fn with_signer(&self, kind: CaKind) -> Result<Arc<Authorities>, Status> {
        let authorities = self.authorities();
        if authorities.entry(kind).is_some() {
            return Ok(authorities);
        }
        let failed = |error: ServerError| {
            warn!(problem = ServerError::chain(&error), %kind, "a CA was not made");
            Status::unavailable(format!("the {kind} CA cannot be made; the authority's log says why"))
        };
        let _one = self.changing.lock().await;
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

    /// Makes the CAs that were not needed yet, when the start is over.
    pub(crate) async fn make_the_others(self: Arc<Self>) {
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

    /// Renews the authority's own certificate every day, until the authority stops.
    pub(crate) async fn renew_daily(self: Arc<Self>) {
        let mut days = tokio::time::interval(std::time::Duration::from_secs(86_400));
        days.tick().await;
        loop {
            tokio::select! {
                _ = days.tick() => {}
                () = self.stop.cancelled() => return,
            }
            self.present(&self.authorities()).await;
        }
    }

    /// Whether the cluster's suite accepts a host's keys.
    pub(crate) fn takes_keys(&self, ssh_public_key: &str, tls_spki: &[u8]) -> Result<(), Status> {
        check_accepted(self.authorities().suite(), ssh_public_key, tls_spki)
            .map_err(|error| Status::invalid_argument(error.to_string()))
    }

    /// A lifetime that the roles allow, within the policy. One that was asked for is refused rather than cut.
    pub(crate) fn within_policy(
        &self,
        kind: CertificateKind,
        ttl: std::time::Duration,
        asked: bool,
    ) -> Result<time::Duration, Status> {
        let ttl = time::Duration::try_from(ttl)
            .map_err(|_| Status::invalid_argument("the lifetime is out of range"))?;
        if asked {
            let chosen = self.config.lifetimes.choose(kind, Some(ttl));
            return chosen.map_err(|error| Status::invalid_argument(error.to_string()));
        }
        Ok(self.config.lifetimes.bounded(kind, ttl))
    }

    pub(crate) fn trust_bundle(&self) -> v1::TrustBundle {
        wire_bundle(self.authorities().trust())
    }
}
