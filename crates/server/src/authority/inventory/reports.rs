//! The client inventory, with what the connections of the authority itself show.

use std::sync::Arc;
use std::time::Instant;

use sallyport_store::{Store, StoreError};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::authority::inventory::clients::{ClientRecord, Clients};
use crate::authority::storage::storage;
use crate::member::client_sightings::{MOST_REPORTED, Report, Sightings, UnknownClient, from_proto};

/// Why a host's report of clients is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadReport {
    /// More than a report may have.
    #[error("{0} clients in one report, at most {MOST_REPORTED} are allowed")]
    TooMany(usize),
    /// One of them cannot be understood.
    #[error(transparent)]
    Client(#[from] UnknownClient),
}

/// What is known of clients.
#[derive(Debug)]
pub(crate) struct ClientInventory {
    store: Store,
    clients: Clients,
    sightings: Sightings,
    stop: CancellationToken,
}

impl ClientInventory {
    /// Reads what was remembered.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read.
    pub(crate) async fn load(
        store: &Store,
        stop: &CancellationToken,
        now: OffsetDateTime,
    ) -> Result<Arc<Self>, StoreError> {
        let clients = Clients::load(store, now).await?;
        Ok(Arc::new(Self {
            store: store.clone(),
            clients,
            sightings: Sightings::default(),
            stop: stop.clone(),
        }))
    }

    /// Where the connections of this process note their clients.
    pub(crate) fn sightings(&self) -> Sightings {
        self.sightings.clone()
    }

    /// Every client, the last seen first; and whether some had to be forgotten.
    pub(crate) fn list(&self, now: OffsetDateTime) -> (Vec<ClientRecord>, bool) {
        self.clients.list(now)
    }

    /// Remembers what clients were seen to be able to do.
    pub(crate) async fn saw_clients(
        &self,
        reports: Vec<Report>,
        by: &str,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let steps = self.clients.take(reports, by, now).map_err(|error| storage(&error))?;
        if !steps.is_empty() {
            self.store.backend().transact(steps, now).await.map_err(|error| storage(&error))?;
        }
        Ok(())
    }

    /// Remembers what the authority's own connections show, until it stops.
    pub(crate) async fn remember_sightings(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(std::time::Duration::from_secs(1));
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.stop.cancelled() => return,
            }
            let due = self.sightings.due(Instant::now());
            if let Err(status) = self.saw_clients(due, "auth", OffsetDateTime::now_utc()).await {
                tracing::warn!(problem = status.message(), "what clients can do was not written down");
            }
        }
    }
}

/// Clients that a host has seen, within their bounds.
pub(crate) fn take_clients(
    clients: Vec<v1::SeenClient>,
    now: OffsetDateTime,
) -> Result<Vec<Report>, BadReport> {
    if clients.len() > MOST_REPORTED {
        return Err(BadReport::TooMany(clients.len()));
    }
    clients.into_iter().map(|client| Ok(from_proto(client, now)?)).collect()
}
