//! The list of what was issued and denied, as it is read.

use std::collections::HashMap;
use std::sync::Arc;

use sallyport_store::Store;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::authority::audit::journal::Journal;
use crate::authority::issuance::index::Index;
use crate::authority::issuance::issued::{CertificateRecord, DenialRecord};
use crate::authority::storage::{PAGE, storage};

/// The certificates on the list, and the denials.
#[derive(Debug)]
pub(crate) struct IssuedList {
    store: Store,
    journal: Arc<Journal>,
    index: Index,
    stop: CancellationToken,
}

impl IssuedList {
    pub(crate) fn new(store: &Store, journal: &Arc<Journal>, stop: &CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            store: store.clone(),
            journal: Arc::clone(journal),
            index: Index::new(),
            stop: stop.clone(),
        })
    }

    /// Visits everything on the list, also what was issued a moment ago.
    pub(crate) async fn each_certificate(
        &self,
        mut visit: impl FnMut(CertificateRecord),
    ) -> Result<(), Status> {
        self.index.caught_up(self.journal.log()).await?;
        let now = OffsetDateTime::now_utc();
        let mut after = None::<String>;
        loop {
            let page = self
                .store
                .list::<CertificateRecord>(after.as_deref(), PAGE, now)
                .await
                .map_err(|error| storage(&error))?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.name.clone());
            page.into_iter().for_each(|stored| visit(stored.value));
        }
    }

    /// Every denial that still counts, by the fingerprint of the certificate.
    pub(crate) async fn denials(&self) -> Result<HashMap<String, DenialRecord>, Status> {
        let now = OffsetDateTime::now_utc();
        let mut denials = HashMap::new();
        let mut after = None::<String>;
        loop {
            let page = self
                .store
                .list::<DenialRecord>(after.as_deref(), PAGE, now)
                .await
                .map_err(|error| storage(&error))?;
            let Some(last) = page.last() else { return Ok(denials) };
            after = Some(last.name.clone());
            denials.extend(page.into_iter().map(|stored| (stored.name, stored.value)));
        }
    }

    /// Keeps the list true until the authority stops.
    pub(crate) async fn follow(self: Arc<Self>) {
        self.index.follow(&self.store, self.journal.log(), &self.stop).await;
    }
}
