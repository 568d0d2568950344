//! The authority of this process, as the other services of the process reach it.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, error, info_span};

use crate::ServerError;
use crate::authority::{Authority, Trouble};
use crate::health::Health;
use crate::local_authority::LocalAuthority;

/// Its connections end at `stop`.
pub(crate) fn authority(authority: &Authority, stop: CancellationToken) -> LocalAuthority {
    let served = authority.clone();
    let issuing = authority.clone();
    let trusting = authority.clone();
    LocalAuthority {
        sightings: authority.sightings(),
        serve: Arc::new(move |io, peer| {
            let (authority, stop) = (served.clone(), stop.clone());
            let span = info_span!("authority.connection", peer = %peer.address);
            Box::pin(
                async move {
                    tokio::select! {
                        () = authority.serve_boxed(io, peer) => {}
                        () = stop.cancelled() => {}
                    }
                }
                .instrument(span),
            )
        }),
        issue: Arc::new(move |request| {
            let authority = issuing.clone();
            Box::pin(async move { authority.issue_host(request).await })
        }),
        trust: Arc::new(move || trusting.trust().to_bundle()),
    }
}

/// Has health say what is the matter with the authority's disk.
pub(crate) async fn follow_disk(mut disk: watch::Receiver<Trouble>, health: Health, stop: CancellationToken) {
    const PART: &str = "auth";
    loop {
        match disk.borrow_and_update().clone() {
            Trouble::None => health.ready(PART),
            Trouble::Short(problem) => health.degraded(PART, problem),
            Trouble::Unwritable(problem) => health.waiting(PART, problem),
        }
        let changed = tokio::select! {
            changed = disk.changed() => changed,
            () = stop.cancelled() => return,
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Serves the administrators of this machine.
pub(crate) async fn admin_socket(authority: Authority, path: PathBuf, stop: CancellationToken) {
    let served = tokio::select! {
        served = authority.serve_admin_socket(&path) => served,
        () = stop.cancelled() => return,
    };
    if let Err(problem) = served {
        error!(error = %ServerError::chain(&problem), path = %path.display(), "the admin socket is not served");
    }
}
