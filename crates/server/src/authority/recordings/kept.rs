//! The recordings of sessions.

use std::sync::Arc;

use sallyport_access::{Identity, Principal, SessionId};
use sallyport_audit::recording::{RecordingStore, StoreError as RecordingStoreError};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::authority::audit::disk_reserve::DiskReserve;
use crate::authority::audit::journal::Journal;
use crate::authority::gate::calls::Gate;
use crate::authority::policy::Policy;
use crate::authority::reports::events::HostReports;
use crate::authority::sessions::running::LiveSessions;
use crate::authority::streams::Streams;
use crate::authority::workers::Workers;

/// The id of a session that a caller names.
pub(crate) fn session_id(text: &str) -> Result<SessionId, Status> {
    text.parse().map_err(|error: sallyport_access::IdError| Status::invalid_argument(error.to_string()))
}

/// By whom a recording is kept: the id of the host that uploads it.
pub(crate) fn host_id(identity: &Identity) -> String {
    match &identity.principal {
        Principal::Host { id, .. } => id.to_string(),
        Principal::User { name, .. } => name.to_string(),
    }
}

/// What a caller may read of a failure of recordings.
pub(crate) fn recording(error: &RecordingStoreError) -> Status {
    match error {
        RecordingStoreError::NotFound(_) => Status::not_found(error.to_string()),
        RecordingStoreError::Offset { .. } => Status::out_of_range(error.to_string()),
        RecordingStoreError::Closed(_) | RecordingStoreError::Held(_) | RecordingStoreError::Live(_) => {
            Status::failed_precondition(error.to_string())
        }
        RecordingStoreError::Owner(_) => Status::permission_denied(error.to_string()),
        RecordingStoreError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
            tracing::error!(%error, "the disk for recordings is full");
            Status::resource_exhausted(
                "the authority's disk for recordings is full: give it room, or remove some (sallyport recordings rm)",
            )
        }
        RecordingStoreError::Io { .. } => {
            tracing::error!(%error, "a recording cannot be stored");
            Status::unavailable("the authority cannot store recordings; its log says why")
        }
    }
}

/// Keeps the recordings.
#[derive(Debug)]
pub(crate) struct Recordings {
    pub(super) journal: Arc<Journal>,
    pub(super) gate: Arc<Gate>,
    pub(super) policy: Arc<Policy>,
    pub(super) streams: Arc<Streams>,
    pub(super) reading: Arc<Workers>,
    pub(super) reserve: Arc<DiskReserve>,
    pub(super) sessions: Arc<LiveSessions>,
    pub(super) reports: Arc<HostReports>,
    pub(super) store: Arc<RecordingStore>,
    pub(super) stop: CancellationToken,
}

impl Recordings {
    #[allow(clippy::too_many_arguments, reason = "each is one that it takes")]
    pub(crate) fn new(
        journal: &Arc<Journal>,
        gate: &Arc<Gate>,
        policy: &Arc<Policy>,
        streams: &Arc<Streams>,
        reading: &Arc<Workers>,
        reserve: &Arc<DiskReserve>,
        sessions: &Arc<LiveSessions>,
        reports: &Arc<HostReports>,
        store: &Arc<RecordingStore>,
        stop: &CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            journal: Arc::clone(journal),
            gate: Arc::clone(gate),
            policy: Arc::clone(policy),
            streams: Arc::clone(streams),
            reading: Arc::clone(reading),
            reserve: Arc::clone(reserve),
            sessions: Arc::clone(sessions),
            reports: Arc::clone(reports),
            store: Arc::clone(store),
            stop: stop.clone(),
        })
    }

    /// The files.
    #[cfg(test)]
    pub(crate) fn store(&self) -> &RecordingStore {
        &self.store
    }

    /// Holds a recording back from being removed, or lets it go again; says whether that is news.
    pub(crate) async fn hold(&self, session: SessionId, hold: bool) -> Result<bool, Status> {
        let recordings = Arc::clone(&self.store);
        let held = tokio::task::spawn_blocking(move || recordings.hold(session, hold)).await;
        held.map_err(|_| Status::internal("the recording could not be held"))?
            .map_err(|error| recording(&error))
    }

    /// How much of a recording is here, and whether it is whole.
    pub(crate) fn offset(&self, identity: &Identity, session: SessionId) -> Result<(u64, bool), Status> {
        self.store.offset(session, &host_id(identity)).map_err(|error| recording(&error))
    }

    /// How many there are.
    pub(crate) async fn count(&self) -> usize {
        let recordings = Arc::clone(&self.store);
        let counted =
            self.reading.run(move || recordings.sessions().map_or(0, |sessions| sessions.len())).await;
        counted.unwrap_or(0)
    }
}
