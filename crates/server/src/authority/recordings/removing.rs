//! Recordings as they are removed: by hand, by age, and what a stop has left half done.

use std::sync::Arc;
use std::time::Duration;

use sallyport_access::SessionId;
use sallyport_audit::recording::Aside;
use sallyport_audit::{Code, Event};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::recordings::kept::{Recordings, recording};

/// A recording that may still grow and has not for so long belongs to a host that is gone.
const SILENCE: Duration = Duration::from_secs(3600);

/// How often it is looked for recordings that are too old, and how many of them go at once.
const RETENTION_LOOK: Duration = Duration::from_secs(30);

const REMOVED_AT_ONCE: usize = 200;

impl Recordings {
    /// Removes a recording; the event says whose it was.
    pub(crate) async fn remove(&self, session: SessionId, event: Event) -> Result<u64, Status> {
        // An idle session adds nothing to its recording, for as long as its user likes.
        if self.sessions.runs(&session) {
            return Err(recording(&sallyport_audit::recording::StoreError::Live(session)));
        }
        let recordings = Arc::clone(&self.store);
        let aside = tokio::task::spawn_blocking(move || recordings.set_aside(session, SILENCE)).await;
        let aside = aside
            .map_err(|_| Status::internal("the recording could not be removed"))?
            .map_err(|error| recording(&error))?;
        self.discard_recording(session, aside, event).await
    }

    /// Removes what was set aside once that is on record; what cannot be put on record stays.
    async fn discard_recording(&self, session: SessionId, aside: Aside, event: Event) -> Result<u64, Status> {
        let mut event = event.session(session).field("bytes", aside.bytes);
        if let Some(metadata) = aside.metadata {
            event = event.node(metadata.node).login(metadata.login).field("owner", metadata.user);
        }
        // It makes room.
        let recorded = self.journal.record_urgent(vec![event]).await;
        let (recordings, goes) = (Arc::clone(&self.store), recorded.is_ok());
        let done = tokio::task::spawn_blocking(move || match goes {
            true => recordings.discard(session),
            false => recordings.put_back(session),
        });
        let done = done.await.map_err(|_| Status::internal("the recording could not be removed"))?;
        recorded?;
        done.map_err(|error| recording(&error))?;
        Ok(aside.bytes)
    }

    /// Removes what was about to be removed when the authority ended.
    pub(crate) async fn finish_removals(&self) {
        let recordings = Arc::clone(&self.store);
        let left = tokio::task::spawn_blocking(move || {
            let left = recordings.all_aside()?;
            Ok(left.into_iter().map(|session| (session, recordings.aside(session))).collect::<Vec<_>>())
        });
        let left = match left.await {
            Ok(Ok(left)) => left,
            Ok(Err(error)) => {
                let error: std::io::Error = error;
                return tracing::error!(%error, "the recordings cannot be looked at");
            }
            Err(_) => return,
        };
        for (session, aside) in left {
            let event = Event::new(Code::RecordingRemoved, OffsetDateTime::now_utc())
                .user("auth")
                .origin("auth")
                .message("its removal had begun when the authority ended");
            let done = match aside {
                Ok(aside) => self.discard_recording(session, aside, event).await.map(drop),
                Err(error) => Err(recording(&error)),
            };
            if let Err(status) = done {
                tracing::warn!(%session, message = status.message(), "a recording was not removed");
            }
        }
    }

    /// Removes what is older than the session policy keeps it, until the authority stops.
    pub(crate) async fn retain(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(RETENTION_LOOK);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.stop.cancelled() => return,
            }
            let Some(retention) = self.policy.cache().policies.sessions().retention else { continue };
            let Some(before) = std::time::SystemTime::now().checked_sub(retention) else { continue };
            let recordings = Arc::clone(&self.store);
            let old =
                tokio::task::spawn_blocking(move || recordings.older_than(before, REMOVED_AT_ONCE)).await;
            let old = match old {
                Ok(Ok(old)) => old,
                Ok(Err(error)) => {
                    tracing::error!(%error, "the recordings cannot be looked at");
                    continue;
                }
                Err(_) => continue,
            };
            for session in old {
                let event = Event::new(Code::RecordingRemoved, OffsetDateTime::now_utc())
                    .user("auth")
                    .origin("auth")
                    .message("older than the session policy keeps recordings");
                if self.stop.is_cancelled() {
                    return;
                }
                if let Err(status) = self.remove(session, event).await {
                    // One that may still grow is not old yet.
                    if status.code() != tonic::Code::FailedPrecondition {
                        tracing::warn!(%session, message = status.message(), "an old recording was not removed");
                    }
                }
            }
        }
    }
}
